"""Two writers of one ledger: the lock is on the database, and checks read the file in the transaction that books."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import apsw
import numpy as np
import pytest

from rpdp import BudgetTable
from rpdp.errors import BudgetError, InputError, PrivacyRefusal
from rpdp.ledger import Ledger, LedgerInUseError, StewardKey
from rpdp.ledger.store import database, writer_lock
from tests.ledger import small
from tests.ledger.account_suite import never
from tests.ledger.small import LIFETIME_DELTA, heads, tails

ROOT = Path(__file__).parents[2]
SPENT = 1.999
"""What a run books of a lifetime ε of 2."""


@pytest.fixture
def table() -> BudgetTable:
    return BudgetTable(["a", "b"], [2.0, 2.0])


@pytest.fixture
def unlocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that lets everybody in: what is under it must hold by itself."""
    monkeypatch.setattr("fcntl.flock", lambda file, how: None)
    if hasattr(writer_lock, "DatabaseFile"):
        monkeypatch.setattr(writer_lock.DatabaseFile, "lock", lambda self: True)


def spend(ledger: Ledger, run: str, table: BudgetTable, cost: float = SPENT) -> None:
    ledger.reserve(run, small.by_hand(small.public(), table.ids, cost), None)


def booked(path: Path, record: str = "a") -> float:
    with Ledger.read(path) as reader:
        return sum(run.epsilon for run in reader.explain(record).runs)


def test_a_removed_lock_file_lets_nobody_in(tmp_path: Path, table: BudgetTable) -> None:
    """It looks stale, and somebody tidies up. Another process and another object of this one are still kept out."""
    with small.make(tmp_path, table) as ledger:
        (tmp_path / "ledger.db.lock").unlink()
        with pytest.raises(LedgerInUseError, match="another process"):
            Ledger.open(tmp_path / "ledger.db")
        code = "import sys; from rpdp.ledger import Ledger; Ledger.open(sys.argv[1])"
        other = [sys.executable, "-c", code, str(tmp_path / "ledger.db")]
        done = subprocess.run(other, cwd=ROOT, capture_output=True, text=True, check=False)
        assert "LedgerInUseError" in done.stderr
        spend(ledger, "run", table)
    Ledger.open(tmp_path / "ledger.db").close()


@pytest.mark.usefixtures("unlocked")
def test_a_retry_after_a_failed_reservation_counts_what_another_writer_spent(
    tmp_path: Path, table: BudgetTable
) -> None:
    """The attack: lifetime 2.0, two full runs. The first attempt fails on the other's events; so must every retry."""
    path = tmp_path / "ledger.db"
    with small.make(tmp_path, table) as first:
        first.left(table, LIFETIME_DELTA)
        with Ledger.open(path) as second:
            spend(second, "theirs", table)
        for _ in range(3):
            with pytest.raises(PrivacyRefusal):
                spend(first, "ours", table)
        assert first.left(table, LIFETIME_DELTA).epsilon[0] == pytest.approx(2.0 - SPENT)
        spend(first, "small", table, 0.0009)
        assert first.verify().findings == () or {one.check for one in first.verify().findings} == {"prices"}
    assert booked(path) < 2.0


@pytest.mark.usefixtures("unlocked")
def test_a_round_is_charged_once_whoever_writes(tmp_path: Path) -> None:
    """No second coin for a round that the other writer has charged, and its cap counts."""
    with small.admitted(tmp_path) as first, Ledger.open(tmp_path / "ledger.db") as second:
        first.charge("run", 1, heads)
        second.charge("run", 2, tails)
        assert first.charge("run", 2, never).joined is False
        assert second.charge("run", 1, never).joined is True
        first.store("run", 1, b"update")
        with pytest.raises(PrivacyRefusal, match="already stored"):
            second.store("run", 1, b"another")
        assert first.public_head() == second.public_head()


@pytest.mark.usefixtures("unlocked")
def test_steward_actions_and_records_of_another_writer_count(tmp_path: Path, table: BudgetTable) -> None:
    with small.make(tmp_path, table) as first:
        made = small.plan(first, table)
        with Ledger.open(tmp_path / "ledger.db") as second:
            second.withdraw(["a"])
            second.left(table, LIFETIME_DELTA)
            second.add(BudgetTable(["c"], [1.0]))
        with pytest.raises(PrivacyRefusal, match="or have withdrawn"):
            first.reserve("run", made, None)
        with pytest.raises(BudgetError, match="'c' is in the ledger already"):
            first.add(BudgetTable(["c"], [1.0]))
        first.reserve("run", small.plan(first, table), None)
        assert first.switched_off().tolist() == [0]
        wider = BudgetTable(["c", "b", "a"], [1.0, 2.0, 2.0])
        assert first.left(wider, LIFETIME_DELTA).epsilon[[0, 2]].tolist() == [1.0, 0.0]
        assert first.verify().is_good


@pytest.mark.usefixtures("unlocked")
def test_a_withdrawal_that_another_writer_booked_is_in_force_after_the_next_charge(tmp_path: Path) -> None:
    """Nothing fails here, and the file is gone from the inbox: only the chain tells."""
    with small.admitted(tmp_path) as first:
        assert first.switched_off().size == 0
        with Ledger.open(tmp_path / "ledger.db") as second:
            second.withdraw(["r2"])
            second.left(small.budgets(), LIFETIME_DELTA)
        first.charge("run", 1, heads)
        assert first.pending() == []
        assert first.switched_off().tolist() == [2]


@pytest.mark.usefixtures("unlocked")
def test_an_action_is_booked_once_by_two_writers(tmp_path: Path, table: BudgetTable) -> None:
    key = StewardKey()
    with small.make(tmp_path, table, steward=key.public) as first, Ledger.open(tmp_path / "ledger.db") as second:
        second.raise_budgets(["a"], 3.0, key=key)
        second.left(table, LIFETIME_DELTA)
        first.left(table, LIFETIME_DELTA)
        assert [event.kind for event in first.chain.events()] == ["create", "raise"]


def test_after_a_failed_reservation_nothing_cached_is_used(
    tmp_path: Path, table: BudgetTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the failed transaction left in memory."""
    with small.make(tmp_path, table) as ledger:
        ledger.left(table, LIFETIME_DELTA)
        spend(ledger, "run", table, 0.5)

        def broken(*arguments: object, **options: object) -> int:
            balances = ledger.balances(table.ids)
            balances.booked[:] = 0
            balances.epsilon[:] = 900.0
            raise PrivacyRefusal("in the middle of it")

        monkeypatch.setattr(ledger.chain, "append", broken)
        with pytest.raises(PrivacyRefusal, match="in the middle"):
            spend(ledger, "again", table, 0.5)
        monkeypatch.undo()
        assert ledger.left(table, LIFETIME_DELTA).epsilon.tolist() == pytest.approx([1.5, 1.5])
        with pytest.raises(PrivacyRefusal, match="go over their budgets"):
            spend(ledger, "again", table, 1.6)
        assert ledger.switched_off().size == 0


@pytest.mark.parametrize("how", ["renamed", "removed", "copied over by a rename"])
def test_a_ledger_whose_file_was_replaced_books_nothing_more(tmp_path: Path, how: str, table: BudgetTable) -> None:
    """What is booked in a file that has no name is lost with the process, and the next one would spend it again."""
    path = tmp_path / "ledger.db"
    ledger = small.make(tmp_path, table)
    shutil.copy(path, tmp_path / "backup")
    if how == "copied over by a rename":
        (tmp_path / "backup").replace(path)
    elif how == "renamed":
        path.rename(tmp_path / "elsewhere.db")
    else:
        path.unlink()
    for attempt in (lambda: spend(ledger, "run", table), lambda: ledger.add(BudgetTable(["c"], [1.0]))):
        with pytest.raises(PrivacyRefusal, match="moved, removed or replaced while it was open"):
            attempt()
    ledger.close()


def test_a_file_replaced_during_a_commit_releases_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with small.admitted(tmp_path) as ledger:
        path = tmp_path / "ledger.db"
        shutil.copy(path, tmp_path / "backup")

        def swap(label: str) -> None:
            if label == "charge: marked":
                (tmp_path / "backup").replace(path)

        monkeypatch.setattr("rpdp.ledger.store.crash_points.reached", swap)
        with pytest.raises(PrivacyRefusal, match="replaced while it was open"):
            ledger.charge("run", 1, heads)


def test_several_objects_in_one_process_keep_the_locks_of_sqlite(tmp_path: Path, table: BudgetTable) -> None:
    """Readers come and go and a second writer is refused: no descriptor is closed that would drop SQLite's locks.

    If it were, another process could think that nobody has the file open, and take the log away at its end.
    """
    path = tmp_path / "ledger.db"
    code = (
        "import sys, apsw\nconnection = apsw.Connection(sys.argv[1])\n"
        "connection.execute('SELECT count(*) FROM event').fetchall()\nconnection.close()\n"
    )
    with small.admitted(tmp_path, table) as ledger:
        ledger.charge("run", 1, heads)
        Ledger.read(path).close()
        with pytest.raises(LedgerInUseError):
            Ledger.open(path)
        subprocess.run([sys.executable, "-c", code, str(path)], check=True)
        assert (tmp_path / "ledger.db-wal").exists()
        ledger.charge("run", 2, heads)
        reader = Ledger.read(path)
    assert reader.status().runs[0].announced == 2
    reader.close()
    reader.close()  # a second time does nothing
    with Ledger.open(path) as again, pytest.raises(LedgerInUseError):
        Ledger.open(path)
    assert again.is_writer is False


def test_a_forked_child_that_closes_does_not_end_the_parents_lock(tmp_path: Path, table: BudgetTable) -> None:
    with small.make(tmp_path, table) as ledger:
        child = os.fork()
        if child == 0:  # pragma: no cover
            try:
                ledger._unlock()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        code = "import sys; from rpdp.ledger import Ledger; Ledger.open(sys.argv[1])"
        other = [sys.executable, "-c", code, str(tmp_path / "ledger.db")]
        assert subprocess.run(other, cwd=ROOT, capture_output=True, check=False).returncode == 1


def test_two_creations_make_one_ledger(tmp_path: Path, table: BudgetTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process creates and spends between the look at the path and the last step."""
    others = tmp_path / "others"
    others.mkdir()
    with small.make(others, table) as theirs:
        spend(theirs, "run", table)

    def appear(label: str) -> None:
        if label == "create: built":
            shutil.copy(others / "ledger.db", tmp_path / "ledger.db")

    monkeypatch.setattr("rpdp.ledger.store.crash_points.reached", appear)
    with pytest.raises(InputError, match="a ledger is never overwritten"):
        small.make(tmp_path, table)
    shutil.copy(others / "ledger.db.key", tmp_path / "ledger.db.key")
    assert booked(tmp_path / "ledger.db") == SPENT


def test_a_budget_is_checked_against_the_file_not_the_memory(tmp_path: Path, table: BudgetTable) -> None:
    """Memory that says more is left than there is: the reservation reads the file."""
    with small.make(tmp_path, table) as ledger:
        spend(ledger, "run", table)
        ledger.balances(table.ids).booked[:] = 0
        assert ledger.left(table, LIFETIME_DELTA).epsilon.tolist() == [2.0, 2.0]
        with pytest.raises(PrivacyRefusal, match="go over their budgets"):
            spend(ledger, "again", table)
        assert np.allclose(ledger.left(table, LIFETIME_DELTA).epsilon, 2.0 - SPENT)


def test_the_note_of_the_writer_replaces_what_was_there(tmp_path: Path, table: BudgetTable) -> None:
    small.make(tmp_path, table).close()
    (tmp_path / "ledger.db.lock").write_text('{"pid": 1, "host": "another", "since": "long ago"}' + "x" * 500)
    with Ledger.open(tmp_path / "ledger.db"), pytest.raises(LedgerInUseError, match=f"process {os.getpid()} on "):
        Ledger.open(tmp_path / "ledger.db")


def test_a_writer_that_locks_the_note_alone_is_heeded(tmp_path: Path, table: BudgetTable) -> None:
    """As release 0.1 does."""
    small.make(tmp_path, table).close()
    with (tmp_path / "ledger.db.lock").open("r+") as note:
        fcntl.flock(note, fcntl.LOCK_EX)
        for _ in range(2):
            with pytest.raises(LedgerInUseError, match="is being written by"):
                Ledger.open(tmp_path / "ledger.db")
    Ledger.open(tmp_path / "ledger.db").close()


def test_a_file_that_another_program_keeps_busy_is_a_refusal(
    tmp_path: Path, table: BudgetTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_PATIENCE_MS", 1)
    with small.make(tmp_path, table) as ledger:
        other = apsw.Connection(str(tmp_path / "ledger.db"))
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(PrivacyRefusal, match="another program keeps the file busy"):
            spend(ledger, "run", table)
        other.execute("ROLLBACK")
        other.close()
        spend(ledger, "run", table)


def test_a_file_that_is_replaced_while_it_is_opened_is_refused(tmp_path: Path, table: BudgetTable) -> None:
    small.make(tmp_path, table).close()
    path = tmp_path / "ledger.db"
    shutil.copy(path, tmp_path / "copy.db")
    file = writer_lock.DatabaseFile(path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    (tmp_path / "copy.db").replace(path)
    with pytest.raises(InputError, match="was replaced while it was being opened"):
        file.lock()
    path.unlink()
    with pytest.raises(InputError, match="cannot be opened for writing"):
        file.lock()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    file.close()


def test_without_a_place_for_the_note_nobody_writes(tmp_path: Path, table: BudgetTable) -> None:
    small.make(tmp_path, table).close()
    note = tmp_path / "ledger.db.lock"
    note.unlink()
    note.mkdir()
    with pytest.raises(InputError, match="nobody could see who is writing the ledger"):
        Ledger.open(tmp_path / "ledger.db")
    note.rmdir()
    Ledger.open(tmp_path / "ledger.db").close()


def test_while_a_reader_stays_the_next_writer_may_come(tmp_path: Path, table: BudgetTable) -> None:
    with small.make(tmp_path, table) as ledger:
        reader = Ledger.read(tmp_path / "ledger.db")
        ledger.close()
        Ledger.open(tmp_path / "ledger.db").close()
        reader.close()


def test_in_a_file_that_was_moved_away_no_coin_is_drawn(tmp_path: Path, table: BudgetTable) -> None:
    with small.make(tmp_path, table) as ledger:
        spend(ledger, "run", table)
        shutil.copy(tmp_path / "ledger.db", tmp_path / "copy.db")
        (tmp_path / "ledger.db").rename(tmp_path / "away.db")
        (tmp_path / "copy.db").rename(tmp_path / "ledger.db")
        with pytest.raises(PrivacyRefusal, match="was moved, removed or replaced"):
            ledger.charge("run", 1, never)


def test_what_could_not_be_read_again_is_read_before_it_is_used(
    tmp_path: Path, table: BudgetTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed transaction, on a disk that fails for reads as well."""
    with small.make(tmp_path, table) as ledger:

        def broken() -> None:
            raise PrivacyRefusal("the disk reported an error")

        with monkeypatch.context() as failing:
            failing.setattr(ledger.records, "reload", broken)
            ledger._forget()
        assert ledger._is_stale
        ledger.records.chunks.clear()
        assert ledger.status().records == 2
        assert not ledger._is_stale
