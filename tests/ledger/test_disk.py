"""A full or broken disk at every write and every sync: nothing is released, the message is clear, and it goes on."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import pytest

from rpdp import BudgetTable
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.ledger import Charge, Ledger, LedgerInUseError
from rpdp.ledger.inspection import verification
from rpdp.ledger.store import writer_lock
from rpdp.ledger.store.database import Database
from tests.ledger import small
from tests.ledger.account_suite import never
from tests.ledger.faulty import BROKEN_SYNC, FULL, KINDS, FaultyVFS
from tests.ledger.small import LIFETIME_DELTA, heads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

UPDATE = bytes(range(256)) * 40
MOST = 200


@pytest.fixture
def vfs() -> Iterator[FaultyVFS]:
    made = FaultyVFS("faulty")
    yield made
    made.unregister()


@pytest.fixture(autouse=True)
def _without_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "reprice", lambda ledger, progress: iter(()))


def reserve(ledger: Ledger) -> None:
    table = small.budgets()
    ledger.reserve("second", small.by_hand(small.public(), table.ids, 0.1), None)


def charge(ledger: Ledger) -> None:
    assert ledger.charge("run", 2, heads) == Charge(2, True, is_new=True)


def store(ledger: Ledger) -> None:
    ledger.store("run", 1, UPDATE)


def add(ledger: Ledger) -> None:
    ledger.add(BudgetTable(["new"], [1.0]))


def prune(ledger: Ledger) -> None:
    assert [one.count for one in ledger.prune("run")] == [1]


def state(ledger: Ledger) -> tuple[object, ...]:
    left = ledger.left(small.budgets(), LIFETIME_DELTA).epsilon.tolist()
    return ledger.status(), left, ledger.stored("run", 1), len(ledger.records), ledger.chain.head


def attempted(ledger: Ledger, action: Callable[[Ledger], None], kind: str) -> bool:
    """Whether it got through; if not, with the right message."""
    try:
        action(ledger)
    except PrivacyRefusal as error:
        told = str(error)
    else:
        return True
    expected = "the disk is full. Nothing was changed" if kind == FULL else "the disk reported an error"
    assert expected in told
    return False


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("action", [reserve, charge, store, add, prune])
def test_it_fails_closed_and_goes_on(
    tmp_path: Path, vfs: FaultyVFS, kind: str, action: Callable[[Ledger], None]
) -> None:
    """Fails at the first write, the second, …, until the action gets through; each time from the same state."""
    tried = 0
    for place in range(MOST):
        directory = tmp_path / str(place)
        directory.mkdir()
        with small.admitted(directory) as ledger:
            ledger.charge("run", 1, heads)
            if action is prune:
                store(ledger)
            before = state(ledger)
        ledger = Ledger.open(directory / "ledger.db", vfs=vfs.name)
        vfs.arm(kind, place)
        done = attempted(ledger, action, kind)
        tried += not done
        failed = vfs.failed
        vfs.disarm()
        if kind == FULL and not done:
            assert state(ledger) == before
            action(ledger)  # after some space was freed, the same ledger goes on
            done = True
        elif not done:
            with pytest.raises(PrivacyRefusal, match="open it again"):
                charge(ledger)
        ledger.close()
        with Ledger.open(directory / "ledger.db") as again:
            assert again.verify().is_good
            assert done <= (state(again) != before)
        if failed == 0:
            break
    assert failed == 0
    assert tried >= (1 if kind == BROKEN_SYNC else 2)


def test_a_steward_action_on_a_full_disk_is_an_error_and_leaves_no_half_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small.admitted(tmp_path) as ledger:

        def full(file: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(PrivacyRefusal, match=r"No space left on device\) and is not in force"):
            ledger.withdraw(["r1"])
        monkeypatch.undo()
        assert list((tmp_path / "ledger.db.inbox").iterdir()) == []
        ledger.withdraw(["r1"])
        assert ledger.switched_off().tolist() == [1]


def test_a_creation_on_a_full_disk_leaves_nothing_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("rpdp.ledger.store.creation._sync", full)
    with pytest.raises(InputError, match=r"could not be created \(No space left on device\)"):
        small.make(tmp_path)
    monkeypatch.undo()
    small.make(tmp_path).close()


def test_a_new_ledger_is_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power cut there is a whole ledger, or none."""
    synced: set[int] = set()
    sync, link = os.fsync, os.link

    def noted(file: int) -> None:
        synced.add(os.fstat(file).st_ino)
        sync(file)

    def checked(source: Path, target: Path) -> None:
        assert source.stat().st_ino in synced
        link(source, target)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(os, "link", checked)
    small.make(tmp_path).close()
    assert tmp_path.stat().st_ino in synced  # its name, too


def test_a_charge_whose_state_cannot_be_noted_is_not_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older file would go unnoticed. The charge itself is kept, and its coin is not drawn again."""
    with small.make(tmp_path) as ledger:
        ledger.reserve("run", small.by_hand(small.public(), small.budgets().ids, 0.1), None)

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as broken:
            broken.setattr(os, "pwrite", full)
            with pytest.raises(PrivacyRefusal, match=r"ledger.db.head cannot be written .* nothing was released"):
                ledger.charge("run", 1, heads)
        assert ledger.charge("run", 1, never) == Charge(1, True, is_new=False)


def test_a_closed_ledger_leaves_no_open_files(tmp_path: Path) -> None:
    """Nor does one that was refused: a descriptor of the database would keep, or drop, somebody's lock."""
    path = tmp_path / "ledger.db"
    with small.make(tmp_path) as ledger:
        inode = (path.stat().st_dev, path.stat().st_ino)
        with pytest.raises(LedgerInUseError):
            Ledger.open(path)
        Ledger.read(path).close()
        ledger.acknowledge(ledger.public_head())
        assert len(opened_below(tmp_path)) > 1
        assert writer_lock._open[inode].users == 1
    assert opened_below(tmp_path) == []
    assert not ledger.files.log.exists()  # all of it is in the database
    assert inode not in writer_lock._open


class BrokenDisk:
    """A connection whose disk fails whenever it is asked to do something optional."""

    def wal_checkpoint(self, **_: object) -> None:
        raise apsw.IOError("disk I/O error")

    def execute(self, statement: str) -> None:
        raise apsw.IOError("disk I/O error")


@pytest.mark.parametrize("tidy", [Database.shorten_log, Database.shrink])
def test_after_an_error_in_tidying_nothing_more_is_written(tmp_path: Path, tidy: Callable[[Database], None]) -> None:
    with small.make(tmp_path) as ledger:
        database, connection = ledger.database, ledger.database._connection
        database._connection = BrokenDisk()  # type: ignore[assignment]
        tidy(database)
        database._connection = connection
        with pytest.raises(PrivacyRefusal, match="an earlier write failed"):
            ledger.reserve("run", small.by_hand(small.public(), small.budgets().ids, 0.1), None)


def opened_below(directory: Path) -> list[str]:
    files = [file.readlink() for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
    return [str(file) for file in files if file.is_relative_to(directory)]
