"""Tables from CSV, Parquet and frames of other libraries."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

from rpdp.errors import InputError
from rpdp.tables import find_table, read_table

if TYPE_CHECKING:
    from pathlib import Path

TEXT = 'ID,"A, b",C\n1,"x\ny",007\n2,,NA\n'


def test_cells_of_a_csv_are_texts(tmp_path: Path) -> None:
    for name, data in (("t.csv", TEXT.encode("utf-8-sig")), ("t.csv.gz", gzip.compress(TEXT.encode()))):
        (tmp_path / name).write_bytes(data)
        table = read_table(tmp_path / name)
        assert table.to_pydict() == {"ID": ["1", "2"], "A, b": ["x\ny", ""], "C": ["007", "NA"]}


def test_parquet(tmp_path: Path) -> None:
    pa_parquet.write_table(pa.table({"A": [1, None]}), tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet").to_pydict() == {"A": [1, None]}


class Stream:
    """A frame of some library: it speaks the Arrow protocol, and nobody imports it."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


class Interchange:
    """A frame of an older library, with the dataframe protocol."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __dataframe__(self, *arguments: Any, **more: Any) -> Any:
        return self._table.__dataframe__(*arguments, **more)


def test_frames() -> None:
    table = pa.table({"A": [1, 2], "B": ["x", "y"]})
    for frame in (table, Stream(table), Interchange(table)):
        assert read_table(frame).to_pydict() == table.to_pydict()


def test_a_pandas_frame() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"A": [1.0, None], "B": ["x", None]})
    assert read_table(frame).to_pydict()["A"] == [1.0, None]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.xlsx", "", "must end in .csv, .csv.gz, .parquet"),
        ("t.csv", "", "the file is empty"),
        ("t.csv", "A;B\n1;2\n", "separate fields by commas"),
        ("t.csv", "A,A\n1,2\n", "must name every column, each once"),
        ("t.csv", "A,B\n1\n", "cannot be read: .*Expected 2 columns"),
        ("t.parquet", "A", "cannot be read"),
        ("t.csv.gz", "A,B\n", "cannot be read"),
    ],
)
def test_errors(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_table(tmp_path / name)


def test_no_such_file_and_no_frame(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_table(tmp_path / "t.csv")
    with pytest.raises(InputError, match=r"must be a file .* not int"):
        read_table(3)


def test_a_table_is_found_beside_or_below_the_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data/x").mkdir(parents=True)
    (tmp_path / "data/x/t.csv").touch()
    monkeypatch.delenv("RPDP_DATA", raising=False)
    with pytest.raises(InputError, match="set RPDP_DATA"):
        find_table("x/t.csv", tmp_path)
    monkeypatch.setenv("RPDP_DATA", str(tmp_path / "data"))
    assert find_table("x/t.csv", tmp_path) == tmp_path / "data/x/t.csv"
    with pytest.raises(InputError, match="nor below"):
        find_table("y.csv", tmp_path)
