"""`rpdp consent import` as a steward types it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpdp.cli.run import run
from rpdp.ledger import Ledger

from .made import bundle, consent, ledger, the_map, written

PERSONS = {"anna": ["a1", "a2"], "ben": ["b1"]}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    ledger(tmp_path, PERSONS).close()
    the_map(tmp_path)
    return tmp_path


def rpdp(capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str, str]:
    code = run(["consent", "import", "consents.json", "--map", "consent.toml", "--ledger", "ledger.db", *more])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_look_import_and_again(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    revoked = consent("1", "anna", status="inactive", written="2024-05-03")
    written(place, bundle(revoked, consent("2", "new", written="2024-05-03")))
    code, shown, _ = rpdp(capsys, "--dry-run")
    assert code == 0
    assert "anna: withdrawn (Consent/1, status inactive)" in shown
    with Ledger.read(place / "ledger.db") as opened:
        assert not opened.actions()
    code, done, _ = rpdp(capsys, "--budgets", "new.csv")
    assert code == 0
    assert "anna: withdrawn" in done
    assert "budgets of new persons: new.csv" in done
    assert Path("new.csv").read_text().splitlines()[0].replace('"', "") == "subject,epsilon,delta"
    assert rpdp(capsys, "--budgets", "new.csv")[0] == 2  # not overwritten
    code, again, _ = rpdp(capsys, "--json")
    assert code == 0
    assert '"withdraw": []' in again


def test_refusals_have_their_exit_codes(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(place, bundle(consent("1", "anna", "unheard-of", written="2024-05-03")))
    code, _, said = rpdp(capsys)
    assert code == 2
    assert "Consent/1" in said
    written(place, bundle(consent("1", "anna", "broad", written="2024-05-03")))
    code, _, said = rpdp(capsys)
    assert code == 3
    assert "steward" in said


def test_beside_a_writer_it_is_in_force_and_waits_to_be_booked(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(place, bundle(consent("1", "anna", status="inactive", written="2024-05-03")))
    with Ledger.open(place / "ledger.db") as running:
        code, said, _ = rpdp(capsys)
        assert code == 0
        assert "the run that holds the ledger books it" in " ".join(said.split())
        assert [one.kind for one in running.pending()] == ["withdraw"]
