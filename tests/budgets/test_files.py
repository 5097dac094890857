"""Parquet, writing, and round trips."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpdp.budgets import BudgetTable
from rpdp.errors import BudgetError

if TYPE_CHECKING:
    from tests.budgets.conftest import Refuses

ENDINGS = ["csv", "parquet"]
IDS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1, max_size=12)
ROWS = st.lists(
    st.tuples(IDS, st.floats(1e-300, 1000.0), st.floats(1e-300, 1.0, exclude_max=True), IDS),
    min_size=1,
    max_size=8,
    unique_by=(lambda row: row[0], lambda row: row[3]),
)


def same(left: BudgetTable, right: BudgetTable) -> bool:
    def columns(table: BudgetTable) -> list[Any]:
        delta = None if table.delta is None else table.delta.tolist()
        subjects = None if table.subjects is None else table.subjects.to_pylist()
        return [table.ids.to_pylist(), table.epsilon.tolist(), delta, subjects]

    return columns(left) == columns(right)


@pytest.mark.parametrize("ending", ENDINGS)
@given(rows=ROWS)
@settings(max_examples=50, deadline=None)
def test_round_trip_keeps_every_bit_and_the_order(
    tmp_path_factory: pytest.TempPathFactory, ending: str, rows: list[tuple[str, float, float, str]]
) -> None:
    path = tmp_path_factory.mktemp("round") / f"budgets.{ending}"
    ids, epsilon, delta, subjects = zip(*rows, strict=True)
    for table in (BudgetTable(ids, epsilon), BudgetTable(ids, epsilon, delta=delta, subjects=subjects)):
        table.write(path)
        assert same(BudgetTable.read(path), table)


def test_csv_is_plain_where_it_can_be(tmp_path: Path) -> None:
    path = tmp_path / "budgets.csv"
    BudgetTable(["b", "a"], [0.1, 5.0]).write(path)
    assert path.read_text() == "record,epsilon\nb,0.1\na,5\n"
    BudgetTable(["b,c"], [0.1]).write(path)
    assert path.read_text() == 'record,epsilon\n"b,c",0.1\n'


def test_csv_refuses_line_breaks_and_keeps_the_older_file(tmp_path: Path) -> None:
    path = tmp_path / "budgets.csv"
    path.write_text("precious")
    with pytest.raises(BudgetError, match=r"line break.*write \.parquet instead"):
        BudgetTable(["a\nb"], [1.0]).write(path)
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]
    BudgetTable(["a\nb"], [1.0]).write(tmp_path / "budgets.parquet")
    assert BudgetTable.read(tmp_path / "budgets.parquet").ids.to_pylist() == ["a\nb"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_refuses_to_write_where_it_cannot(tmp_path: Path, ending: str) -> None:
    with pytest.raises(BudgetError, match=r"cannot be written: .*No such file or directory"):
        BudgetTable(["a"], [1.0]).write(tmp_path / "nowhere" / f"budgets.{ending}")


def parquet(columns: dict[str, Any]) -> bytes:
    sink = pa.BufferOutputStream()
    pa_parquet.write_table(pa.table(columns), sink)
    return bytes(sink.getvalue())


@pytest.mark.parametrize(
    ("ids", "epsilon"),
    [
        (pa.array([7, 8]), pa.array([1, 2])),
        (pa.array(["7", "8"], pa.large_string()), pa.array([1.0, 2.0], pa.float32())),
        (pa.array(["7", "8"]).dictionary_encode(), pa.array(["1.0", "2.0"]).cast(pa.decimal128(5, 2))),
    ],
    ids=["whole numbers", "large text, float32", "categories, decimals"],
)
def test_parquet_types_that_mean_the_same(tmp_path: Path, ids: pa.Array, epsilon: pa.Array) -> None:
    path = tmp_path / "budgets.parquet"
    path.write_bytes(parquet({"record": ids, "epsilon": epsilon}))
    assert same(BudgetTable.read(path), BudgetTable(["7", "8"], [1.0, 2.0]))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"record": ["a"], "epsilon": ["1.0"]}, "column 'epsilon' must hold numbers, but holds string"),
        ({"record": ["a"], "epsilon": [True]}, "column 'epsilon' must hold numbers, but holds bool"),
        ({"record": ["a"], "epsilon": [[1.0]]}, "column 'epsilon' must hold numbers, but holds list"),
        ({"record": [1.5], "epsilon": [1.0]}, "column 'record' must hold text or whole numbers, but holds double"),
        ({"record": ["a"], "epsilon": [1.0], "subject": [1.5]}, "column 'subject' must hold text or whole numbers"),
        ({"record": ["a"]}, "column 'epsilon' is missing"),
        ({"record": ["a"], "epsilon": [1.0], "age": [3]}, "unknown column 'age'"),
        ({"record": ["a", None], "epsilon": [1.0, 1.0]}, "row 2 has no record id"),
        ({"record": ["a", "b"], "epsilon": [1.0, None]}, "row 2, record 'b': epsilon is missing"),
        ({"record": ["a", "b", "b"], "epsilon": [1.0] * 3}, "record id 'b' occurs in row 2 and again in row 3"),
        ({"record": pa.array([], pa.string()), "epsilon": pa.array([], pa.float64())}, "there are no records"),
    ],
)
def test_parquet_refusals(refuses: Refuses, columns: dict[str, Any], message: str) -> None:
    assert refuses(parquet(columns), "budgets.parquet").startswith(message)


def test_parquet_with_the_same_column_twice(refuses: Refuses) -> None:
    sink = pa.BufferOutputStream()
    column = pa.array([1.0])
    table = pa.Table.from_arrays([pa.array(["a"]), column, column], names=["record", "epsilon", "epsilon"])
    pa_parquet.write_table(table, sink)
    assert refuses(bytes(sink.getvalue()), "budgets.parquet").startswith("column 'epsilon' occurs twice")


@pytest.mark.parametrize("cut", [slice(0), slice(50), slice(4, None), slice(-8)], ids=str)
def test_corrupt_parquet(refuses: Refuses, cut: slice) -> None:
    whole = parquet({"record": ["a"] * 1000, "epsilon": [1.0] * 1000})
    message = refuses(whole[cut], "budgets.parquet")
    assert message.startswith(("not a readable Parquet file of budgets", "the file is empty", "cannot be read"))


def test_damaged_pages_of_a_parquet_file(refuses: Refuses) -> None:
    whole = bytearray(parquet({"record": [f"r-{number}" for number in range(1000)], "epsilon": [1.0] * 1000}))
    whole[4:400] = b"\xff" * 396
    assert refuses(bytes(whole), "budgets.parquet").startswith(("not a readable Parquet file", "cannot be read"))
