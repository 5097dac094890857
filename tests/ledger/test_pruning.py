"""Updates of runs that are over can be removed; nothing else changes, and no round is answered with fresh noise."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import apsw
import pytest

from rpdp.cli.run import run as command
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.ledger import Charge, Ledger
from rpdp.ledger.stewardship.pruning import Updates
from tests.federation.world import announced, make_public
from tests.ledger import small
from tests.ledger.account_suite import never
from tests.ledger.small import LIFETIME_DELTA, heads, tails
from tests.ledger.test_announcements import ledger_of, silo_with

UPDATE = bytes(range(256)) * 4


def played(ledger: Ledger, run: str, rounds: int) -> None:
    """A run of four rounds, the second sat out."""
    table = small.budgets()
    ledger.reserve(run, small.plan(ledger, table), None)
    for number in range(1, rounds + 1):
        if ledger.charge(run, number, tails if number == 2 else heads).joined:
            ledger.store(run, number, UPDATE + run.encode())


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Two runs that are over and one that is not."""
    made = small.make(tmp_path)
    for run, rounds in (("one", 4), ("two", 4), ("open", 3)):
        played(made, run, rounds)
    return made


def test_updates_of_finished_runs_go_and_nothing_else(ledger: Ledger, tmp_path: Path) -> None:
    table = small.budgets()
    before = (ledger.status(), ledger.public_head(), ledger.left(table, LIFETIME_DELTA).epsilon.tolist())
    size = len(UPDATE) + 3
    assert ledger.prune() == [Updates("one", 3, 3 * size), Updates("two", 3, 3 * size)]
    assert (ledger.status(), ledger.public_head(), ledger.left(table, LIFETIME_DELTA).epsilon.tolist()) == before
    assert ledger.stored("one", 1) is None
    assert ledger.stored("open", 1) == UPDATE + b"open"
    assert ledger.prune() == []
    assert ledger.verify().is_good
    ledger.close()
    with Ledger.open(tmp_path / "ledger.db") as again:
        assert again.status() == before[0]
        assert again.public_head() == before[1]
        assert again.verify().is_good
        assert [event.facts["run"] for event in again.chain.events("prune")] == ["one", "two"]
        assert (again.overview().updates, again.overview().update_bytes) == (2, 2 * (len(UPDATE) + 4))


def test_a_run_that_was_given_up_is_named(ledger: Ledger) -> None:
    assert [one.run for one in ledger.prune("open", reason="the study was stopped")] == ["open"]
    assert [ledger.stored(run, 1) is None for run in ("one", "two", "open")] == [False, False, True]
    assert ledger.charge("open", 4, heads) == Charge(4, True, is_new=True)  # it was not over after all
    ledger.store("open", 4, UPDATE)
    assert ledger.stored("open", 4) == UPDATE
    assert ledger.verify().is_good
    assert [(one.run, one.count) for one in ledger.prune()] == [("one", 3), ("open", 1), ("two", 3)]
    assert ledger.verify().is_good
    with pytest.raises(InputError, match=r"run 'three' is not in this ledger \(its runs: one, two, open\)"):
        ledger.prune("three")


def test_nothing_to_remove_leaves_no_event(tmp_path: Path) -> None:
    with small.admitted(tmp_path) as ledger:
        head = ledger.chain.head
        assert ledger.prune() == ledger.prune("run") == []
        assert ledger.chain.head == head


def test_a_removed_update_is_never_made_again(ledger: Ledger) -> None:
    ledger.prune()
    for number in (1, 3, 4):
        assert ledger.charge("one", number, never) == Charge(number, True, is_new=False)
        with pytest.raises(PrivacyRefusal, match="its update is already stored"):
            ledger.store("one", number, UPDATE)
    assert ledger.status().runs[0].released == (1, 3, 4)


def test_a_silo_sits_out_rounds_whose_updates_are_gone(tmp_path: Path) -> None:
    """Asked again before: the same bytes. After: nothing, however often; with its neighbour the control."""
    public = make_public(rounds=4, local_steps=1)
    silo = silo_with(tmp_path, public)
    first = [silo.answer(announced(public, number)) for number in (1, 2, 3, 4)]
    assert all(update is not None for update in first)
    again = silo.answer(announced(public, 2))
    assert again is not None
    assert first[1] is not None
    assert again.to_bytes() == first[1].to_bytes()
    head = ledger_of(silo).public_head()
    assert [one.count for one in ledger_of(silo).prune()] == [4]
    for _ in range(3):
        for number in (1, 2, 3, 4):
            assert silo.answer(announced(public, number)) is None
    assert ledger_of(silo).public_head() == head
    assert ledger_of(silo).verify().is_good


def test_the_file_becomes_smaller(tmp_path: Path) -> None:
    with small.admitted(tmp_path, rounds=8) as ledger:
        for number in range(1, 9):
            ledger.charge("run", number, heads)
            ledger.store("run", number, bytes(1_000_000))
        ledger.prune()
    assert (tmp_path / "ledger.db").stat().st_size < 200_000
    with Ledger.open(tmp_path / "ledger.db") as again:
        assert again.verify().is_good


# What `verify` knows


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("INSERT INTO outbox SELECT min(seq), x'00' FROM event WHERE kind = 'release'", {"bulk"}),
        ("DELETE FROM outbox", {"bulk"}),
        ("DELETE FROM event WHERE kind = 'prune'", {"chain", "bulk"}),
        ("UPDATE event SET payload = replace(payload, '\"updates\":3', '\"updates\":2')", {"chain", "bulk"}),
        ('UPDATE event SET payload = replace(payload, \'"run":"one"\', \'"run":"open"\')', {"chain", "bulk"}),
    ],
)
def test_a_removal_that_was_changed_is_found(ledger: Ledger, tmp_path: Path, statement: str, found: set[str]) -> None:
    ledger.prune()
    ledger.close()
    connection = apsw.Connection(str(tmp_path / "ledger.db"))
    connection.execute(statement).fetchall()
    connection.close()
    with Ledger.read(tmp_path / "ledger.db") as damaged:
        assert {finding.check for finding in damaged.verify().findings} >= found


def test_the_state_before_is_refused_afterwards(ledger: Ledger, tmp_path: Path) -> None:
    ledger.close()
    shutil.copy(tmp_path / "ledger.db", tmp_path / "earlier.db")
    with Ledger.open(tmp_path / "ledger.db") as later:
        later.prune()
    shutil.copy(tmp_path / "earlier.db", tmp_path / "ledger.db")
    with pytest.raises(PrivacyRefusal, match="was rolled back"):
        Ledger.open(tmp_path / "ledger.db")


# The command


def test_the_command(ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "ledger.db")
    assert command(["ledger", "prune", path]) == 3
    assert "is being written by process" in capsys.readouterr().err
    ledger.close()
    assert command(["ledger", "prune", path, "--run", "two", "--reason", "disk"]) == 0
    assert "3 updates of run two removed (0.0 MB)" in " ".join(capsys.readouterr().out.split())
    assert command(["ledger", "prune", path, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(one["run"], one["count"]) for one in told["removed"]] == [("one", 3)]
    assert command(["ledger", "prune", path]) == 0
    assert "there is nothing to remove" in " ".join(capsys.readouterr().out.split())
    assert command(["ledger", "prune", path, "--run", "three"]) == 2
    capsys.readouterr()
    assert command(["ledger", "show", path]) == 0
    assert "2 updates kept" in " ".join(capsys.readouterr().out.split())
    assert command(["ledger", "verify", path]) == 0
