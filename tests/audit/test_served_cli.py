"""`rpdp audit --served` as somebody uses it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rpdp.audit import read_audit
from rpdp.audit.audit_page import canary_section
from tests.audit.world import mutant
from tests.cli.conftest import rpdp  # noqa: F401 a fixture
from tests.studies.toy import write_run

if TYPE_CHECKING:
    from tests.cli.conftest import Command

# ruff: noqa: F811 the fixture is an argument
SMALL = ("--groups", "1,5", "--canaries", "300")
STORED = Path("runs/run/audit/audit.json")


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary directories are made."""
    folder = tmp_path_factory.mktemp("t")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_an_honest_silo_passes(rpdp: Command, tmp_path: Path, place: Path) -> None:
    run = write_run(tmp_path)
    done = rpdp("audit", run, *SMALL, "--served")
    assert done.code == 0, done
    words = " ".join(done.out.split())
    assert "served" in done.out.splitlines()[1] + done.out.splitlines()[2]
    assert "Served as in a deployment, with 600 canaries: No promise is broken" in words
    assert "Its ledger verifies. Passed." in words
    assert "3/3 rounds served" in done.err
    assert not list(place.glob("rpdp-*"))
    assert not list(tmp_path.glob("**/*.db"))

    stored = json.loads(STORED.read_text())
    served, alone = stored["served"], stored["alone"]
    assert (served["view"], served["seed"], served["ledger"]) == ("rounds", None, [])
    assert (alone["view"], alone["seed"], alone["ledger"]) == ("steps", 1, None)
    assert [stored["is_simulation"], alone["is_simulation"], served["is_simulation"]] == [False, True, False]
    assert stored["confidence"] == pytest.approx(0.95)
    assert [part["confidence"] for part in (served, alone)] == pytest.approx([1.0 - 0.05 / 3.0] * 2)
    read = read_audit(STORED)
    assert json.loads(json.dumps(read.to_json())) == stored
    page = STORED.with_suffix(".html").read_text()
    assert "proven served" in page
    assert "No account of a real record changed." in page

    assert rpdp("train", run, "--seed", "1", "--out", "trained").code == 0
    assert rpdp("report", "trained", "--audit", STORED, "--out", "with-audit.html").code == 0
    assert "proven served" in Path("with-audit.html").read_text()


def test_json(rpdp: Command, tmp_path: Path) -> None:
    told = rpdp("audit", write_run(tmp_path), *SMALL, "--served", "--silo", "b", "--json").json
    assert (told["silo"], told["passed"], told["served"]["passed"]) == ("b", True, True)


def test_a_served_silo_with_a_bug_is_found(rpdp: Command, tmp_path: Path) -> None:
    with mutant("clip at 2L"):
        told = rpdp("audit", write_run(tmp_path), "--groups", "1,5", "--canaries", "2000", "--served", "--json")
    assert told.code == 3
    assert not told.json["served"]["conforms"]


def test_without_it_nothing_changes_and_old_files_are_read(rpdp: Command, tmp_path: Path, place: Path) -> None:
    done = rpdp("audit", write_run(tmp_path), *SMALL)
    assert "served" not in done.out + done.err
    stored = json.loads(STORED.read_text())
    assert (stored["served"], stored["is_simulation"], stored["confidence"]) == (None, True, 0.975 + 0.975 - 1.0)
    assert "No ledger is touched." in STORED.with_suffix(".html").read_text()
    assert "proven served" not in STORED.with_suffix(".html").read_text()
    assert not list(place.glob("rpdp-*"))

    del stored["served"]
    for part in ("beside", "alone"):
        del stored[part]["ledger"], stored[part]["is_simulation"]
    Path("old.json").write_text(json.dumps(stored))
    assert read_audit(Path("old.json")) == read_audit(STORED)


def test_one_part_is_enough_not_to_pass(rpdp: Command, tmp_path: Path) -> None:
    rpdp("audit", write_run(tmp_path), *SMALL, "--served")
    stored = json.loads(STORED.read_text())
    stored["served"]["ledger"] = ["chain: event 2 was changed"]
    stored["served"]["groups"][1]["bound"]["epsilon"] = 99.0
    STORED.write_text(json.dumps(stored))
    found = read_audit(STORED)
    assert found.alone.passed
    assert not found.passed
    assert "BROKEN PROMISE" in found.verdict()[2]
    assert "ITS LEDGER DOES NOT VERIFY: chain: event 2 was changed." in found.verdict()[2]
    page = canary_section(found)
    assert "NOT PASSED." in page
    assert '<td data-label="proven served" class="alarm">99</td>' in page
    stored["served"]["groups"][1]["allowed"] = 100.0  # as if its coin had let it join more rounds
    STORED.write_text(json.dumps(stored))
    assert '<td data-label="proven served">99 (allowed 100)</td>' in canary_section(read_audit(STORED))


@pytest.mark.parametrize(
    ("changes", "arguments", "message"),
    [
        ((), ("--method", "scf"), "method scf is for simulations only"),
        ((), ("--method", "dp_fedavg"), "method dp_fedavg is for simulations only"),
        ((("training.momentum", "0.9"),), (), "plain SGD only, not with momentum = 0.9; leave --served out"),
        ((("training.optimiser", '"adam"'),), (), "optimiser = adam"),
        ((), ("--model-only",), "--model-only plants none"),
    ],
    ids=["scf", "dp_fedavg", "momentum", "adam", "model-only"],
)
def test_what_cannot_be_served(
    rpdp: Command,
    tmp_path: Path,
    changes: tuple[tuple[str, str | None], ...],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    refused = rpdp("audit", write_run(tmp_path, *changes), "--served", *arguments)
    assert refused.code == 2
    assert message in " ".join(refused.err.split())
    assert not Path("runs").exists()
