"""A full or broken disk at every write and every sync: nothing is released, the message is clear, and it goes on."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rpdp import BudgetTable
from rpdp.errors import PrivacyRefusal
from rpdp.ledger import Charge, Ledger
from rpdp.ledger.inspection import verification
from tests.ledger import small
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
        with pytest.raises(OSError, match="No space left"):
            ledger.withdraw(["r1"])
        monkeypatch.undo()
        assert list((tmp_path / "ledger.db.inbox").iterdir()) == []
        ledger.withdraw(["r1"])
        assert ledger.switched_off().tolist() == [1]


def test_a_creation_on_a_full_disk_leaves_nothing_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("rpdp.ledger.store.creation._sync", full)
    with pytest.raises(OSError, match="No space left"):
        small.make(tmp_path)
    monkeypatch.undo()
    small.make(tmp_path).close()
