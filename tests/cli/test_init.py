"""`rpdp init`: a study from a table, a template or a built-in task, that runs as it is."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from rpdp.cli.run import run
from rpdp.studies.study_file import StudyFile
from rpdp.tables import TableSchema, read_table
from rpdp.tables.schema_proposal import Roles, propose_schema
from tests.studies.patients import write_hospitals

if TYPE_CHECKING:
    from tests.cli.conftest import Command


@pytest.mark.parametrize("template", ["tabular", "images", "text"])
def test_a_template_trains_as_it_is(rpdp: Command, tmp_path: Path, template: str) -> None:
    assert rpdp("init", template, "--out", "s").code == 0
    trained = rpdp("train", "s/study.toml", "--seed", "1", "--out", "run", "--json")
    assert trained.json["accuracy"] > 0.7


@pytest.mark.parametrize("source", ["flower", "breast_cancer", "digits"])
def test_a_built_in_task_is_a_study(rpdp: Command, tmp_path: Path, source: str) -> None:
    assert rpdp("init", source, "--out", "s").code == 0
    spec = StudyFile.read(tmp_path / "s/study.toml")
    assert spec.named_task is not None


def test_a_table_nobody_has_seen(rpdp: Command, tmp_path: Path) -> None:
    """Three commands and no line by hand, from a CSV to a trained model with its report."""
    write_hospitals(tmp_path, "north", "south")
    shown = rpdp("init", "all.csv", "--target", "ILL", "--silo", "HOSPITAL", "--out", "s")
    assert shown.code == 0
    assert "No promise covers that" in " ".join(shown.out.split())
    examined = rpdp("doctor", "s/study.toml", "--json").json
    assert examined["runnable"]
    assert any("from_data" in finding["message"] for finding in examined["findings"])
    assert rpdp("train", "s/study.toml", "--seed", "1", "--out", "run").code == 0
    assert (tmp_path / "run/report.html").is_file()
    plan = json.loads((tmp_path / "run/public-plan.json").read_text())
    assert any("were read from private data" in note for note in plan["notes"])

    template = tmp_path / "s/budgets/north.csv"
    assert stat.S_IMODE(template.stat().st_mode) == 0o600
    lines = template.read_text().splitlines()
    assert lines[0] == "record,epsilon"
    assert all(line.startswith("north-") and line.endswith(",") for line in lines[1:])
    refused = rpdp("budgets", "check", template)
    assert (refused.code, "epsilon" in refused.err) == (2, True)


def test_a_study_that_asks_for_its_ranges(rpdp: Command, tmp_path: Path) -> None:
    """No range of a feature is read from the table, whatever it holds; the study begins once levels are declared."""
    write_hospitals(tmp_path, "north", "south", rows=300)
    whole, schemas = (tmp_path / "all.csv").read_text(), []
    for out in ("one", "other"):
        shown = rpdp(
            "init", "all.csv", "--target", "ILL", "--silo", "HOSPITAL", "--private-ranges", "-100,400", "-o", out
        )
        assert shown.code == 0, shown.err
        assert "It begins once from_data is removed" in " ".join(shown.out.split())
        schemas.append((tmp_path / out / "schema.toml").read_text())
        (tmp_path / "all.csv").write_text(re.sub(r"(-\d+),", r"\1,1", whole))  # ages of 120 and more
    (tmp_path / "all.csv").write_text(whole)
    assert schemas[0] == schemas[1]
    assert 'AGE = { kind = "number", range = [-100, 400] }' in schemas[0]
    study = tmp_path / "one/study.toml"
    study.write_text(
        study.read_text().replace("[budgets]", "[budgets]\noverrides = { levels = [20.0], shares = [1.0] }")
    )
    assert "from_data says" in rpdp("train", study, "--seed", "1", "--out", "run").err
    (tmp_path / "one/schema.toml").write_text(schemas[0].replace("from_data = true\n", ""))
    trained = rpdp("train", study, "--seed", "1", "--out", "run", "--json")
    low, high = trained.json["private_scale"]["columns"]["AGE"]["range"]
    assert -100 < low < high < 400
    assert not any("were read from private data" in note for note in trained.json["notes"])


@pytest.mark.parametrize("given", ["5", "5,5", "7,3", "1,2,3", "a,b"])
def test_wide_ranges_are_two_numbers_that_rise(rpdp: Command, tmp_path: Path, given: str) -> None:
    write_hospitals(tmp_path, "north")
    refused = rpdp("init", "all.csv", "--target", "ILL", "--private-ranges", given, "-o", "s")
    assert (refused.code, "--private-ranges" in refused.err) == (2, True)
    assert "goes with a table" in rpdp("init", "tabular", "--private-ranges", "0,9", "-o", "s").err


def test_columns_that_are_known_late_are_named_and_kept(rpdp: Command, tmp_path: Path) -> None:
    rows = [
        f"{number},2024-01-{1 + number % 20:02d},2024-02-{1 + number % 20:02d},{number % 2}" for number in range(40)
    ]
    (tmp_path / "t.csv").write_text("\n".join(["AGE,CAME,LEFT,DIED", *rows]) + "\n", encoding="utf-8")
    shown = rpdp("init", "t.csv", "--target", "DIED", "--out", "s")
    assert "LEFT is never before CAME" in " ".join(shown.out.split())
    assert "You decide" in " ".join(shown.out.split())
    assert 'LEFT = { kind = "date"' in (tmp_path / "s/schema.toml").read_text(encoding="utf-8")
    assert rpdp("init", "t.csv", "--target", "AGE", "--out", "a", "--json").json["late_columns"] == {
        "LEFT": "is never before CAME",
        "DIED": "has a name of something that happens later",
    }
    assert "known only later?" in (tmp_path / "a/schema.toml").read_text(encoding="utf-8")


def test_declared_schemas_carry_no_note(rpdp: Command, tmp_path: Path) -> None:
    write_hospitals(tmp_path, "north", "south")
    rpdp("init", "all.csv", "--target", "ILL", "--silo", "HOSPITAL", "--out", "s")
    schema = tmp_path / "s/schema.toml"
    read = TableSchema.read(schema)
    schema.write_text(schema.read_text().replace("from_data = true\n", ""))
    assert read.from_data
    assert not TableSchema.read(schema).from_data
    assert TableSchema.read(schema).fingerprint == read.fingerprint


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["all.csv"], "which column is to be learnt? all.csv has PATIENT, AGE"),
        (["all.csv", "--target", "IL"], "--target IL: the table has no such column; did you mean ILL?"),
        (["all.csv", "--target", "HOSPITAL", "--silo", "SITE"], "--silo SITE: the table has no such column"),
        (["all.csv", "--target", "PATIENT"], "different texts are no classes"),
        (["tabulra"], "nor a template or built-in task; did you mean tabular?"),
        (["tabular", "--target", "X"], "--target goes with a table"),
        (["tabular", "--out", "."], "is not an empty directory"),
        (["nowhere.csv", "--target", "X"], "there is no such table"),
    ],
)
def test_errors(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RPDP_DATA", raising=False)
    write_hospitals(tmp_path, "north")
    assert run(["init", *arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_kinds_are_proposed_from_what_is_there() -> None:
    columns = {
        "id": [f"a{number}" for number in range(40)],
        "age": [str(20 + number) for number in range(39)] + ["?"],
        "code": [str(number % 4) for number in range(40)],
        "smokes": ["Y", "n"] * 20,
        "day": [f"2021-03-{1 + number % 28:02d}" for number in range(40)],
        "same": ["x"] * 40,
        "text": [f"note {number}" for number in range(40)],
        "a b": ["u", ""] * 20,
        "y": ["", *[str(number % 3) for number in range(39)]],
    }
    text = propose_schema(pa.table(columns), Roles("y", "id"), "t.csv")
    assert 'record = "id"' in text
    assert 'missing = ["?"]' in text
    for line in (
        'age = { kind = "number", range = [20, 60], missing = 40 }',
        'code = { kind = "category", levels = ["0", "1", "2", "3"], base = "0" }',
        'smokes = { kind = "yes_no" }',
        'day = { kind = "date", range = ["2021-01-01", "2021-12-31"] }',
        'same = { kind = "ignore" }    # at most one value',
        'text = { kind = "ignore" }    # 40 different texts',
        '"a b" = { kind = "ignore" }    # at most one value',
        'y = ["0", "1", "2"]',
    ):
        assert line in text


def test_dates_amounts_and_ids_as_offices_write_them(rpdp: Command, tmp_path: Path) -> None:
    """Dates with slashes, amounts of few sizes, an id with a space in its name; sizes of silos, with or without ids."""
    rows = [
        f"L{row:03d},{'NSE'[row % 3]},{1 + row % 28:02d}/{1 + row % 12:02d}/2022,{1 + row % 9}.{1 + row % 9}.2023,"
        f"{(500, 1000, 2500, 7500, 20000)[row % 5]},{(12, 24, 36, 48, 60)[row % 5]},{'yes' if row % 4 else 'no'}"
        for row in range(300)
    ]
    (tmp_path / "loans.csv").write_text("\n".join(["Loan No,Branch,Asked On,Paid,Amount,Months,Late", *rows]) + "\n")
    said = rpdp("init", "loans.csv", "--target", "Late", "--silo", "Branch", "--out", "s")
    assert said.code == 0, said.err
    schema, study = (tmp_path / "s/schema.toml").read_text(), (tmp_path / "s/study.toml").read_text()
    for line in (
        'record = "Loan No"',
        '"Asked On" = { kind = "date", range = ["2022-01-01", "2022-12-31"], format = "%d/%m/%Y" }\n',
        'Paid = { kind = "date", range = ["2023-01-01", "2023-12-31"], format = "%d.%m.%Y" }\n',
        'Amount = { kind = "number", range = [0, 20000] }',
        'Months = { kind = "category"',
    ):
        assert line in schema
    assert "records_per_silo = 100 " in study
    (tmp_path / "loans.csv").write_text("\n".join(["Loan,Branch,A,B,Amount,Months,Late", *rows]) + "\n")
    assert rpdp("init", "loans.csv", "--target", "Late", "--silo", "Branch", "--out", "t").code == 0
    assert "records_per_silo = 100 " in (tmp_path / "t/study.toml").read_text()


def test_days_and_months_that_cannot_be_told_apart_are_said() -> None:
    table = pa.table({"day": ["01/02/2020", "05/11/2021", "12/12/2022"] * 4, "y": ["0", "1"] * 6})
    assert 'format = "%d/%m/%Y" }    # or "%m/%d/%Y": every day fits both' in propose_schema(table, Roles("y"), "t.csv")
    table = pa.table({"day": ["01/13/2020", "05/11/2021"] * 6, "y": ["0", "1"] * 6})
    assert 'format = "%m/%d/%Y" }\n' in propose_schema(table, Roles("y"), "t.csv")


def test_proposed_schemas_read_their_own_table(tmp_path: Path) -> None:
    write_hospitals(tmp_path, "north")
    for target in ("ILL", "DAYS", "AGE"):
        path = tmp_path / f"{target}.toml"
        table = read_table(tmp_path / "north.csv")
        path.write_text(propose_schema(table, Roles(target, "PATIENT", silo="HOSPITAL"), "north.csv"), encoding="utf-8")
        encoded = TableSchema.read(path).encode(table)
        assert all(not is_warning for is_warning, _, _ in encoded.survey.remarks())


@pytest.mark.parametrize(("words", "place", "expected"), [("rpdp bud", 1, "budgets"), ("rpdp budgets m", 2, "make")])
def test_the_shell_completes_commands_and_subcommands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str, place: int, expected: str
) -> None:
    monkeypatch.setenv("_RPDP_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(place))
    with pytest.raises(SystemExit):
        run([])
    assert capsys.readouterr().out.split() == [expected]
