"""Budgets by person beside a table of records."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

from rpdp import BudgetTable
from rpdp.cli.run import run
from rpdp.errors import BudgetError
from rpdp.ledger import Ledger

PERSONS = "subject,epsilon,delta\nann,4,1e-3\nbob,1,1e-4\n"
RECORDS = "visit_year,record,subject\n2020,a1,ann\n2021,b1,bob\n2022,a2,ann\n"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    persons, records = tmp_path / "persons.csv", tmp_path / "records.csv"
    persons.write_text(PERSONS)
    records.write_text(RECORDS)
    return persons, records


def assert_joined(table: BudgetTable) -> None:
    assert table.ids.to_pylist() == ["a1", "b1", "a2"]
    assert table.subjects is not None
    assert table.subjects.to_pylist() == ["ann", "bob", "ann"]
    assert table.epsilon.tolist() == [4.0, 1.0, 4.0]
    assert table.delta is not None
    assert table.delta.tolist() == [1e-3, 1e-4, 1e-3]
    assert table.per_record().epsilon.tolist() == [2.0, 1.0, 2.0]


def test_the_two_files_become_one_table(files: tuple[Path, Path]) -> None:
    """Other columns of the table of records are passed over."""
    assert_joined(BudgetTable.read(files[0], records=files[1]))


def test_the_persons_of_the_data(files: tuple[Path, Path]) -> None:
    assert_joined(BudgetTable.read(files[0], records=(["a1", "b1", "a2"], ["ann", "bob", "ann"])))
    by_record = files[0].with_name("by-record.csv")
    BudgetTable(["r"], [1.0]).write(by_record)
    assert len(BudgetTable.read(by_record, records=(["r"], ["p"]))) == 1


def test_parquet(files: tuple[Path, Path], tmp_path: Path) -> None:
    pa_parquet.write_table(
        pa.table({"subject": ["ann", "bob"], "epsilon": [4.0, 1.0], "delta": [1e-3, 1e-4]}), tmp_path / "p.parquet"
    )
    pa_parquet.write_table(
        pa.table({"age": [1, 2, 3], "record": ["a1", "b1", "a2"], "subject": ["ann", "bob", "ann"]}),
        tmp_path / "r.parquet",
    )
    assert_joined(BudgetTable.read(tmp_path / "p.parquet", records=tmp_path / "r.parquet"))
    assert_joined(BudgetTable.read(files[0], records=tmp_path / "r.parquet"))


@pytest.mark.parametrize(
    ("persons", "records", "message"),
    [
        (PERSONS + "cleo,1,1e-3\n", RECORDS, r"1 of 3 persons in .*persons.csv have no record .* first is 'cleo'"),
        (PERSONS, RECORDS + "2023,c1,cleo\n", r"1 of 3 persons in .*records.csv have no budget .* first is 'cleo'"),
        (PERSONS + "ann,1,1e-3\n", RECORDS, "person 'ann' occurs in line 2 and again in line 4"),
        (PERSONS.replace("bob,1,", "bob,-1,"), RECORDS, "line 3, person 'bob': epsilon is -1"),
        (PERSONS.replace("1e-4", "2"), RECORDS, "line 3, person 'bob': delta is 2"),
        (PERSONS + ",1,1e-3\n", RECORDS, "line 4 has no subject"),
        (PERSONS, RECORDS + "2023,c1,\n", r"records.csv: line 5 has no subject"),
        (PERSONS, RECORDS + "2023,a1,ann\n", "record id 'a1' occurs in line 2 and again in line 5"),
        (PERSONS, "record\na1\n", "column 'subject' is missing; the header must have the columns record and subject"),
        ("subject,epsilon,age\nann,4,3\n", RECORDS, "unknown column 'age'"),
        ("subject,epsilon\n", RECORDS, "there are no"),
    ],
)
def test_what_does_not_fit_is_named(files: tuple[Path, Path], persons: str, records: str, message: str) -> None:
    files[0].write_text(persons)
    files[1].write_text(records)
    with pytest.raises(BudgetError, match=message):
        BudgetTable.read(files[0], records=files[1])


def test_budgets_by_person_need_their_records_and_others_need_none(files: tuple[Path, Path]) -> None:
    with pytest.raises(BudgetError, match="Budgets by person need the table of their records"):
        BudgetTable.read(files[0])
    by_record = files[0].with_name("by-record.csv")
    BudgetTable(["r"], [1.0]).write(by_record)
    with pytest.raises(BudgetError, match=r"leave .*records.csv out"):
        BudgetTable.read(by_record, records=files[1])


def test_the_commands(files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    persons, records = (str(file) for file in files)
    given = ["--budgets", persons, "--records", records]
    assert run(["budgets", "check", persons, "--records", records, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["records"], found["has_subjects"], found["largest_subject"]) == (3, True, 2)
    assert run(["budgets", "check", persons]) == 2
    ledger = str(tmp_path / "ledger.db")
    assert run(["ledger", "create", ledger, *given, "--lifetime-delta", "1e-3", "--account", "sums"]) == 0
    files[0].write_text("subject,epsilon\nann,4\ncleo,2\n")
    files[1].write_text("record,subject\na3,ann\nc1,cleo\n")
    assert run(["ledger", "add", ledger, *given, "--reason", "visits of May"]) == 0
    with Ledger.read(ledger) as opened:
        assert opened.explain_subject("ann").epsilon == pytest.approx(4.0)
        assert len(opened.explain_subject("ann").records) == 3
        assert opened.explain("c1").epsilon == 2.0
        assert opened.verify().is_good
