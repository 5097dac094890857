"""A copy that is put back over the file of a ledger while its writer has it open: `cp`, which keeps the inode."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from rpdp import BudgetTable
from rpdp.errors import PrivacyRefusal
from rpdp.ledger import Ledger
from tests.ledger import small
from tests.ledger.small import LIFETIME_DELTA, heads

if TYPE_CHECKING:
    from rpdp.ledger.store.database import Database


def spent(directory: Path, table: BudgetTable) -> tuple[Ledger, Path]:
    """A ledger that is open and has spent everything in one run, and a copy of its file from before the run."""
    path, copy = directory / "ledger.db", directory / "copy.db"
    small.make(directory, table).close()
    shutil.copy(path, copy)
    ledger = Ledger.open(path)
    ledger.reserve("one", small.plan(ledger, table, share=1.0), None)
    ledger.charge("one", 1, heads)
    ledger.store("one", 1, b"update")
    return ledger, copy


def without_memory(ledger: Ledger) -> None:
    """Let SQLite drop the pages that it holds, as it does in a large ledger."""
    ledger.database.rows("PRAGMA shrink_memory")


def test_it_is_refused_when_the_ledger_is_opened_again(tmp_path: Path) -> None:
    """The attack: closing moved the last pages into the old file; events and notes agreed, totals were from before."""
    table = small.budgets()
    ledger, copy = spent(tmp_path, table)
    shutil.copyfile(copy, tmp_path / "ledger.db")
    ledger.close()
    for _ in range(2):
        with pytest.raises(PrivacyRefusal, match="is not as its writer left it"):
            Ledger.open(tmp_path / "ledger.db")


@pytest.mark.parametrize("in_memory", [True, False])
def test_the_open_ledger_admits_nothing_from_it(tmp_path: Path, in_memory: bool) -> None:
    table = small.budgets()
    ledger, copy = spent(tmp_path, table)
    shutil.copyfile(copy, tmp_path / "ledger.db")
    for attempt in range(3):
        if not in_memory:
            without_memory(ledger)
        with pytest.raises(PrivacyRefusal):
            ledger.reserve(f"again-{attempt}", small.by_hand(small.public(), table.ids, 1.999), None)
    ledger.close()


def test_older_totals_under_newer_events_are_refused_in_the_transaction(tmp_path: Path) -> None:
    table = BudgetTable(["a", "b"], [2.0, 2.0])
    with small.make(tmp_path, table) as ledger:
        ledger.reserve("one", small.by_hand(small.public(), table.ids, 1.0), None)
        before = ledger.database.rows("SELECT segment, chunk, epsilon, delta FROM total")
        ledger.reserve("two", small.by_hand(small.public(), table.ids, 0.9), None)
        _put(ledger.database, before)
        with pytest.raises(PrivacyRefusal, match="changed while it was open"):
            ledger.reserve("three", small.by_hand(small.public(), table.ids, 0.9), None)
        with pytest.raises(PrivacyRefusal, match="changed while it was open"):
            ledger.cancel("two")


def test_an_older_file_is_refused_in_every_transaction(tmp_path: Path) -> None:
    """All of it is consistent, and older than the notes beside it."""
    table = BudgetTable(["a", "b"], [2.0, 2.0])
    with small.make(tmp_path, table) as ledger:
        ledger.reserve("one", small.by_hand(small.public(), table.ids, 1.9), None)
        for name in ("total", "class", "member"):
            ledger.database.rows(f"DELETE FROM {name}")  # noqa: S608
        ledger.database.rows("DELETE FROM event WHERE kind = 'admit'")
        for _ in range(2):
            with pytest.raises(PrivacyRefusal, match="rolled back"):
                ledger.reserve("two", small.by_hand(small.public(), table.ids, 1.9), None)


def test_what_nobody_touched_is_as_before(tmp_path: Path) -> None:
    table = small.budgets()
    ledger, _ = spent(tmp_path, table)
    ledger.close()
    with Ledger.open(tmp_path / "ledger.db") as again:
        assert np.all(again.left(table, LIFETIME_DELTA).epsilon < 0.1)
        again.charge("one", 2, heads)
        assert again.verify().is_good


def _put(database: Database, totals: list[tuple[object, ...]]) -> None:
    for row in totals:
        database.rows("INSERT OR REPLACE INTO total VALUES(?, ?, ?, ?)", row)
