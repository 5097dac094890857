"""`rpdp audit` as somebody uses it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rpdp.audit import read_audit
from rpdp.audit.silo_audit import GROUPS
from rpdp.cli import audit_command as command
from rpdp.errors import InputError
from tests.audit.world import mutant
from tests.cli.conftest import rpdp  # noqa: F401 a fixture
from tests.studies.toy import write_run

if TYPE_CHECKING:
    from tests.cli.conftest import Command

# ruff: noqa: F811 the fixture is an argument
SMALL = ("--groups", "1,5", "--canaries", "300")


def test_help(rpdp: Command) -> None:
    shown = rpdp("audit", "--help")
    assert (shown.code, shown.err) == (0, "")
    assert "Example: rpdp audit" in " ".join(shown.out.split())
    assert "--json" in shown.out
    assert ",".join(f"{epsilon:g}" for epsilon in GROUPS) == command.GROUPS


def test_an_honest_run_passes(rpdp: Command, tmp_path: Path) -> None:
    done = rpdp("audit", write_run(tmp_path), *SMALL)
    assert done.code == 0, done
    assert "Passed." in done.out
    assert "Beside 40 records of silo a" in done.out
    assert "3/3 rounds alone" in done.err
    stored = json.loads(Path("runs/run/audit/audit.json").read_text())
    assert (stored["format"], stored["kind"], stored["passed"]) == ("rpdp-audit/1", "canaries", True)
    assert (stored["beside"]["records"], stored["alone"]["records"]) == (40, 0)
    assert [group["epsilon"] for group in stored["alone"]["groups"]] == [1.0, 5.0]
    read = read_audit(Path("runs/run/audit/audit.json"))
    assert json.loads(json.dumps(read.to_json())) == stored
    page = Path("runs/run/audit/audit.html").read_text()
    assert "What is promised, and what an attacker can prove" in page
    assert not list(tmp_path.glob("**/*.db"))


def test_json_and_files(rpdp: Command, tmp_path: Path) -> None:
    path = write_run(tmp_path)
    told = rpdp("audit", path, *SMALL, "--out", "here", "--seed", 5, "--silo", "b", "--json").json
    assert (told["silo"], told["alone"]["seed"], told["confidence"]) == ("b", 5, pytest.approx(0.95))
    assert told["files"] == {"result": "here/audit.json", "page": "here/audit.html"}
    again = rpdp("audit", path, *SMALL, "--out", "here", "--json")
    assert (again.code, again.json["kind"]) == (2, "InputError")
    assert rpdp("audit", path, *SMALL, "--out", "here", "--force", "--json").code == 0


def test_a_method_that_breaks_promises_is_found(rpdp: Command, tmp_path: Path) -> None:
    done = rpdp("audit", write_run(tmp_path), *SMALL, "--method", "dp_fedavg")
    assert done.code == 3
    assert "BROKEN PROMISE: records that allow ε = 1" in " ".join(done.out.split())
    assert "NOT PASSED." in done.out


def test_a_build_with_a_bug_is_found(rpdp: Command, tmp_path: Path) -> None:
    with mutant("clip at 2L"):
        told = rpdp("audit", write_run(tmp_path), *SMALL, "--json")
    assert told.code == 3
    assert not told.json["beside"]["conforms"]
    assert not told.json["alone"]["conforms"]


def test_released_updates_only(rpdp: Command, tmp_path: Path) -> None:
    assert rpdp("audit", write_run(tmp_path), *SMALL, "--view", "rounds", "--json").json["alone"]["view"] == "rounds"
    refused = rpdp("audit", write_run(tmp_path, ("training.momentum", "0.9")), *SMALL, "--view", "rounds", "--out", "b")
    assert refused.code == 2
    assert "plain SGD only" in refused.err


def test_the_run_file_of_a_real_run_can_be_audited(rpdp: Command, tmp_path: Path) -> None:
    """Its ledgers are named, and neither made nor opened."""
    path = write_run(
        tmp_path,
        ("run.seeds", None),
        ("run.id", '"trial"'),
        ("ledgers.a", '"a.db"'),
        ("ledgers.b", '"b.db"'),
        ("ledgers.c", '"c.db"'),
    )
    assert rpdp("audit", path, *SMALL, "--seed", 1, "--json").code == 0
    assert not list(tmp_path.glob("**/*.db"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--groups", "a"), "--groups 'a' must be numbers"),
        (("--groups", "1,1"), "different budgets"),
        (("--canaries", "5"), "--canaries=5 must be between 100 and"),
        (("--silo", "z"), "silo='z' must be one of a, b, c"),
        (("--view", "all"), "--view='all' must be one of steps, rounds"),
        (("--method", "privacy_free"), "nothing to audit"),
        (("--runs", "10"), "--runs goes with --model-only"),
        (("--model-only", "--runs", "3"), "--runs=3 must be between 8 and"),
        (("--model-only", "--canaries", "500"), "--model-only plants none"),
        (("--seed", "-1"), "--seed=-1"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_input(rpdp: Command, tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    refused = rpdp("audit", write_run(tmp_path), *arguments)
    assert refused.code == 2
    assert message in refused.err
    assert not Path("runs").exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "rpdp-audit/1", "kind": "model-only"}'])
def test_a_file_that_is_no_audit(tmp_path: Path, text: str) -> None:
    (tmp_path / "audit.json").write_text(text)
    with pytest.raises(InputError, match=r"audit\.json: not an audit"):
        read_audit(tmp_path / "audit.json")
    with pytest.raises(InputError, match="cannot be read"):
        read_audit(tmp_path / "missing.json")


def test_model_only(rpdp: Command, tmp_path: Path) -> None:
    path = write_run(tmp_path)
    done = rpdp("audit", path, "--model-only", "--groups", "1,5", "--runs", 8)
    assert done.code == 0, done
    words = " ".join(done.out.split())
    assert "A demonstration" in words
    assert "nobody's risk depends on the others" in words
    stored = json.loads(Path("runs/run/audit/membership.json").read_text())
    assert (stored["kind"], stored["runs"], stored["records"]) == ("model-only", 8, 120)
    assert [report["epsilon"] for report in stored["others"]] == [1.0, 5.0]
    assert "What an outsider can tell" in Path("runs/run/audit/membership.html").read_text()


def test_an_audit_becomes_a_section_of_the_silos_report(rpdp: Command, tmp_path: Path) -> None:
    file = write_run(tmp_path)
    assert rpdp("train", str(file), "--seed", "1", "--out", str(tmp_path / "run")).code == 0
    assert rpdp("audit", str(file), *SMALL, "--out", str(tmp_path / "audit")).code == 0
    audit, made = str(tmp_path / "audit" / "audit.json"), tmp_path / "with-audit.html"
    assert rpdp("report", str(tmp_path / "run"), "--audit", audit, "--out", str(made)).code == 0
    assert "Audit with canaries" in made.read_text()
    assert "Audit with canaries" not in (tmp_path / "run" / "report.html").read_text()
    refused = rpdp("report", str(tmp_path / "run"), "--audit", audit, "--edition", "share")
    assert refused.code == 2
    assert "--audit goes with --edition silo" in refused.err


def test_persons_with_several_records(rpdp: Command, tmp_path: Path) -> None:
    told = rpdp("audit", write_run(tmp_path), "--groups", "2", "--canaries", "300", "--records-per-person", 3)
    assert told.code == 0, told
    assert "Beside 40 records of silo a, with 300 canary persons with 3 records:" in " ".join(told.out.split())
    read = read_audit(Path("runs/run/audit/audit.json"))
    assert (read.alone.records_per_person, read.alone.silos, read.passed) == (3, 1, True)
    assert read.alone.groups[0].probability > 0.0


def test_persons_in_as_many_silos_as_the_study_declares(rpdp: Command, tmp_path: Path) -> None:
    declared = [("policy.silos_per_person", "2"), ("privacy.account", '"renyi"')]
    told = rpdp("audit", write_run(tmp_path, *declared), "--groups", "2", "--canaries", "300", "--json").json
    assert (told["passed"], told["alone"]["silos"], told["alone"]["joined"]) == (True, 2, 6)
    path = write_run(tmp_path, *declared)
    one = rpdp("audit", path, "--groups", "2", "--canaries", "300", "--silos-per-person", 1, "--out", "one", "--json")
    assert (one.code, one.json["alone"]["silos"]) == (0, 1)
    assert one.json["alone"]["groups"][0]["probability"] == told["alone"]["groups"][0]["probability"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--silos-per-person", "2"), "silos_per_person=2, but the plan declares 1"),
        (("--records-per-person", "0"), "--records-per-person=0 must be between 1 and 100"),
        (("--records-per-person", "2", "--model-only"), "--model-only plants none"),
        (("--records-per-person", "2", "--served"), "leave --served or --records-per-person out"),
    ],
)
def test_persons_that_cannot_be_audited(rpdp: Command, tmp_path: Path, options: tuple[str, ...], told: str) -> None:
    refused = rpdp("audit", write_run(tmp_path), *options)
    assert refused.code == 2
    assert told in " ".join(refused.err.split())


def test_statistics_and_private_evaluation_are_audited_too(rpdp: Command, tmp_path: Path) -> None:
    from tests.cli.test_statistics import STUDY
    from tests.studies.test_private_evaluation import PRIVATE

    rows = [f"p-{row},north,{30 + row % 50},100,{'FM'[row % 2]},{row % 3 % 2}" for row in range(300)]
    (tmp_path / "patients.csv").write_text("\n".join(["PATIENT,CLINIC,AGE,BP,SEX,OUTCOME", *rows]) + "\n")
    (tmp_path / "study.toml").write_text(STUDY)
    asked = ("audit", tmp_path / "study.toml", *SMALL, "--purpose", "statistics", "--columns", "AGE,SEX")
    done = rpdp(*asked, "--out", "counted")
    assert done.code == 0, done
    assert "Beside 300 records of silo north" in done.out
    assert " w " in done.out
    stored = json.loads(Path("counted/audit.json").read_text())
    assert (stored["method"], stored["alone"]["purpose"]) == ("statistics", "statistics")
    assert json.loads(json.dumps(read_audit(Path("counted/audit.json")).to_json())) == stored
    evaluated = rpdp("audit", write_run(tmp_path, *PRIVATE), *SMALL, "--purpose", "evaluation", "--out", "tested")
    assert evaluated.code == 0, evaluated
    assert "Beside 60 records of silo a" in evaluated.out  # of which 20 are held out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--purpose", "statistics"), "--columns belong together"),
        (("--columns", "AGE"), "--columns belong together"),
        (("--purpose", "evaluation", "--served"), "are for training"),
        (("--purpose", "evaluation"), "there is no private evaluation to audit"),
        (("--purpose", "counting"), "must be one of training, evaluation, statistics"),
    ],
)
def test_purposes_that_do_not_fit_are_refused(
    rpdp: Command, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    refused = rpdp("audit", write_run(tmp_path), *SMALL, *options)
    assert refused.code == 2
    assert message in refused.err
