"""The balances of a silo's table, kept in memory and never trusted beyond the transaction that read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpdp.errors import BudgetError
from rpdp.ledger.balances import Balances
from rpdp.ledger.stewardship.wanted_budgets import BulkActions
from rpdp.ledger.store import crash_points
from rpdp.ledger.store.roster import ABSENT, Roster

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from rpdp.ledger.stewardship.actions import Action


class CachedBalances(BulkActions):
    """The part of a ledger that knows the balances of one table, and books what stewards did to them.

    Guarantee: after a transaction that failed, or one of another process, the balances are read again before they are
    used. What a reservation rests on is read inside its own transaction, never taken from here.
    """

    _balances: Balances | None = None
    _is_bound = False
    """Whether `_balances` belongs to a run. If so, queries about another table must not replace it."""
    _are_balances_stale = False
    """Whether `_balances` must be read from the file again before the next use."""

    def _forget(self) -> None:
        self._are_balances_stale = True
        super()._forget()

    def _bind(self, ids: pa.ChunkedArray) -> Balances:
        """Return the balances of a run's records; positions refer to them from now on."""
        self._is_bound = False
        balances = self.balances(ids)
        self._is_bound = self.is_writer
        return balances

    def balances(self, ids: pa.ChunkedArray) -> Balances:
        """Return the balances of a table's records, all of which must be in the ledger."""
        if self.is_writer and self._balances is not None and self._balances.roster.is_of(ids):
            return self._current(self._balances)
        roster = Roster(self.key.records(ids), ids)
        with self.reading():
            places = self.records.places(roster)
            if int((places != ABSENT).sum()) != len(roster):
                raise BudgetError(_unknown(ids, places, len(self.records)))
            actions = self.booked_actions() if self.is_writer else self.actions()
            made = Balances(self.records, roster, places, actions, self.terms)
        if not self._is_bound:
            self._balances, self._are_balances_stale = made, False
        return made

    def _current(self, balances: Balances) -> Balances:
        """Return the cached balances, read again if a transaction failed or another process wrote the file."""
        if self._are_balances_stale:
            with self.reading():
                self._read_balances(balances)
        return balances

    def _read_balances(self, balances: Balances) -> None:
        balances.read(self.records, self.booked_actions())
        if balances.followed:
            self._follow(balances, *balances.followed)
        if balances is self._balances:
            self._are_balances_stale = False

    def _follow(self, balances: Balances, *runs: str) -> None:
        """Read from the file who has withdrawn since these runs were admitted."""
        for admission in self.runs.admissions():
            if admission.run in runs:
                balances.follow(admission.run, self.booked_actions(after=admission.seq))

    def _book_pending(self) -> None:
        """Book the actions in the inbox."""
        pending = self.pending()
        if pending:
            with self._writing():
                self._action_book.book(pending)
                crash_points.reached("actions: booked")
            self._after_booking(pending)
            self._note_head()

    def _after_booking(self, actions: list[Action]) -> None:
        """Treat these committed actions as booked from now on."""
        self._action_book.done(actions)
        if self._balances is not None and actions and not self._are_balances_stale:
            self._balances.apply(actions)


def _unknown(ids: pa.ChunkedArray, places: NDArray[np.int32], records: int) -> str:
    known = np.zeros(len(ids), dtype=bool)
    known[places[places != ABSENT]] = True
    missing = np.flatnonzero(~known)
    first = ids[int(missing[0])].as_py()
    return (
        f"{missing.size:,} of {len(ids):,} records are not in the ledger of {records:,} (the first is {first!r}); add "
        "them with `rpdp ledger add`"
    )
