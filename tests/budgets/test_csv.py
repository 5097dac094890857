"""Budget files in CSV: what is read, what is refused, and that messages name the line an editor shows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rpdp.budgets import BudgetTable
from rpdp.errors import BudgetError

if TYPE_CHECKING:
    from tests.budgets.conftest import Refuses

LINE_FEED, WINDOWS, OLD_MAC = "\n", "\r\n", "\r"


@pytest.mark.parametrize("end", [LINE_FEED, WINDOWS, OLD_MAC], ids=repr)
@pytest.mark.parametrize("opening", ["", "\ufeff"], ids=["", "BOM"])
@pytest.mark.parametrize("last", [True, False])
def test_reads_every_kind_of_text_file(tmp_path: Path, end: str, opening: str, last: bool) -> None:
    path = tmp_path / "budgets.CSV"
    text = opening + end.join(["record,epsilon,delta,subject", "é,1,1e-5,p", "b,0.5,0.1,q"]) + (end if last else "")
    path.write_bytes(text.encode())
    table = BudgetTable.read(path)
    assert table.ids.to_pylist() == ["é", "b"]
    assert table.epsilon.tolist() == [1.0, 0.5]
    assert table.delta is not None
    assert table.delta.tolist() == [1e-5, 0.1]
    assert table.subjects is not None
    assert table.subjects.to_pylist() == ["p", "q"]


def test_columns_in_any_order_quoted_fields_and_names_like_null(tmp_path: Path) -> None:
    path = tmp_path / "budgets.csv"
    path.write_text('"epsilon","record"\n1,"a, b"\n2,"say ""x"""\n3,NA\n4,null\n5,007\n')
    table = BudgetTable.read(str(path))
    assert table.ids.to_pylist() == ["a, b", 'say "x"', "NA", "null", "007"]
    assert table.epsilon.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("id,epsilon", "unknown column 'id'"),
        ("record,epsilom", "unknown column 'epsilom' (did you mean 'epsilon'?)"),
        ("Record,epsilon", "unknown column 'Record' (did you mean 'record'?)"),
        ("record, epsilon", "unknown column ' epsilon' (did you mean 'epsilon'?)"),
        ("record,epsilon,age", "unknown column 'age'; the header must be record,epsilon"),
        ("record,epsilon,", "unknown column ''"),
        ("record;epsilon", "unknown column 'record;epsilon' (fields seem to be separated by semicolons; use commas)"),
        ("record\tepsilon", "(fields seem to be separated by tabs; use commas)"),
        ("record", "column 'epsilon' is missing"),
        ("epsilon,delta", "column 'record' is missing"),
        ("record,epsilon,epsilon", "column 'epsilon' occurs twice"),
        ("a,1", "unknown column 'a'"),
        ("", "column 'record' is missing"),
    ],
)
def test_refuses_wrong_headers(refuses: Refuses, header: str, message: str) -> None:
    found = refuses(f"{header}\na,1\n")
    assert message in found
    assert found.endswith("the header must be record,epsilon and optionally delta and subject")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("a,1\nb,lots\n", "line 3: epsilon is 'lots', which is not a number; write it like 0.5 or 1e-5"),
        ("a,1\nb,1_0\n", "line 3: epsilon is '1_0', which is not a number"),
        ("a,1\nb,١\n", "line 3: epsilon is '١', which is not a number"),
        ('"a, 1",1\nb,2\nc,x\n', "line 4: epsilon is 'x'"),
        ("a,1\nb\n", "line 3: 1 field where the header names 2: 'b'"),
        ("a,1\nb,0,5\n", "line 3: 3 fields where the header names 2: 'b,0,5'; write decimals with a point"),
        ('a,1\n"b,2\nc,3\n', "line 3: a field continues on the next line (is a quote left open?)"),
        ('a,1\n"b\nb",2\nc,3\n', "line 3: a field continues on the next line"),
        ("a,1\n\nb,2\n", "line 3 has no record id; give every record one, and remove empty lines"),
        ("a,1\n\n", "line 3 has no record id"),
        ("a,1\n,2\n", "line 3 has no record id"),
        ("a,1\nb,\n", "line 3, record 'b': epsilon is missing or not a number"),
        ("a,1\nb,nan\n", "line 3, record 'b': epsilon is missing or not a number"),
        ("a,1\nb,NA\n", "line 3, record 'b': epsilon is missing or not a number"),
        ("a,0\nb,1\n", "line 2, record 'a': epsilon is 0, must be above 0"),
        ("a,1\nb,-1\n", "line 3, record 'b': epsilon is -1"),
        ("a,1\nb,inf\n", "line 3, record 'b': epsilon is inf"),
        ("a,1\nb,1e400\n", "line 3, record 'b': epsilon is inf"),
        ("a,1\nb,5000\n", "line 3, record 'b': epsilon is 5000"),
        ("a,1\nb,2\na,3\n", "record id 'a' occurs in line 2 and again in line 4"),
    ],
)
def test_refusals_name_the_line(refuses: Refuses, rows: str, message: str) -> None:
    assert refuses(f"record,epsilon\n{rows}").startswith(message)


def test_further_mistakes_are_counted_in_lines(refuses: Refuses) -> None:
    assert refuses("record,epsilon\na,0\nb,-1\n").endswith("(1 more line is wrong)")


def test_other_columns_name_the_line_too(refuses: Refuses) -> None:
    opening = "record,epsilon,delta,subject\na,1,0.1,p\n"
    assert refuses(opening + "b,1,1,q\n").startswith("line 3, record 'b': delta is 1, must lie strictly between")
    assert refuses(opening + "b,1,much,q\n").startswith("line 3: delta is 'much'")
    assert refuses(opening + "b,1,0.1,\n").startswith("line 3 has no subject")
    assert refuses(opening + "b,2,0.1,p\n").startswith("line 3: subject 'p' has epsilon 2 here and 1 in line 2")
    assert "in all lines of a subject" in refuses(opening + "b,1,0.2,p\n")
    assert refuses(opening + 'b,1,0.1,"q\nr"\n').startswith("line 3: a field continues on the next line")


def test_the_line_is_right_far_down_a_large_file(refuses: Refuses) -> None:
    good = [f"r-{number:06d},0.5" for number in range(100_000)]  # more than one block of the reader
    header = "record,epsilon\n"
    text = header + "\n".join([*good[:90_000], "r-000007,0.5", *good[90_000:]])
    assert "occurs in line 9 and again in line 90002" in refuses(text)
    assert refuses(header + "\n".join([*good[:90_000], "x,-2", *good[90_000:]])).startswith("line 90002, record 'x'")
    assert refuses(header + "\n".join([*good[:90_000], "x,y", *good[90_000:]])).startswith("line 90002: epsilon is 'y'")
    assert refuses(header + "\n".join([*good[:90_000], "x", *good[90_000:]])).startswith("line 90002: 1 field")


def test_refuses_what_is_not_utf8(refuses: Refuses) -> None:
    assert refuses(b"record,epsilon\na,1\nb\xe9,1\n").startswith("line 3: not text in UTF-8; save it as CSV in UTF-8")
    assert refuses("record,epsilon\na,1\n".encode("utf-16")).startswith("this is not a text file in UTF-8; save it")
    assert refuses(b"PK\x03\x04\x00\x00,\x00").startswith("this is not a text file in UTF-8")


def test_refuses_empty_files(refuses: Refuses) -> None:
    assert refuses("").startswith("the file is empty; the header must be record,epsilon")
    assert refuses("record,epsilon\n") == "there are no records; give at least one"
    assert refuses("record,epsilon") == "there are no records; give at least one"


@pytest.mark.parametrize("name", ["budgets.txt", "budgets", "budgets.csv.gz", ".csv"])
def test_refuses_unknown_endings(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("record,epsilon\na,1\n")
    with pytest.raises(BudgetError, match=r"must end in \.csv or \.parquet"):
        BudgetTable.read(path)
    with pytest.raises(BudgetError, match=r"must end in \.csv or \.parquet"):
        BudgetTable(["a"], [1.0]).write(path)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_refuses_what_is_no_file(tmp_path: Path, ending: str) -> None:
    with pytest.raises(BudgetError, match=rf"nowhere\.{ending}: no such file"):
        BudgetTable.read(tmp_path / f"nowhere.{ending}")
    (tmp_path / f"folder.{ending}").mkdir()
    with pytest.raises(BudgetError, match="is a directory; name the file in it"):
        BudgetTable.read(tmp_path / f"folder.{ending}")
