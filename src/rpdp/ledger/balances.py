"""The balance of each record in a silo's table: its budget in force, what is booked, whether it may be drawn.

Balances are kept in memory in the order of the table. The check before every local step ("which records must not be
drawn any more?") therefore touches no database, and a forked worker can make it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpdp.ledger.record_accounts import RecordAccounts, is_overbooked, lifetime_budgets
from rpdp.ledger.stewardship.actions import apply_actions
from rpdp.ledger.store.roster import ABSENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rpdp.ledger.account_terms import AccountTerms
    from rpdp.ledger.stewardship.actions import Action, ActionKind
    from rpdp.ledger.store.fixed_point import FloatArray
    from rpdp.ledger.store.record_store import RecordStore
    from rpdp.ledger.store.roster import Roster
    from rpdp.planning import SiloPlan


class Balances(RecordAccounts):
    """The balances of the records in a roster.

    Args:
        store: The ledger's records.
        roster: The records of the silo's table.
        places: For each record of the ledger, its position in the roster, or −1.
        actions: The steward actions so far.
        terms: The terms of the ledger's accounts.
    """

    def __init__(
        self,
        store: RecordStore,
        roster: Roster,
        places: NDArray[np.int32],
        actions: Sequence[Action],
        terms: AccountTerms,
    ) -> None:
        self.roster = roster
        self.terms = terms
        self.places = places
        self._withdrawn_since: dict[str, NDArray[np.int64]] = {}
        self.read(store, actions)

    def read(self, store: RecordStore, actions: Sequence[Action]) -> None:
        """Read all balances from the file: at the start, and wherever a decision must not rest on memory."""
        if len(self.places) != len(store):  # another process added records, which only ever come after the old ones
            self.places = store.places(self.roster)
        size = len(self.roster)
        self.epsilon, self.delta = store.gather(self.places, size, store.budgets)
        self.booked, self.booked_delta = store.gather(self.places, size, store.totals)
        self.order = store.gather_orders(self.places, size)
        self.withdrawn = np.zeros(size, dtype=bool)
        self._apply(actions)

    def apply(self, actions: Sequence[Action]) -> None:
        """Apply steward actions that were just booked."""
        self._apply(actions)
        for run, rows in self._withdrawn_since.items():
            self._withdrawn_since[run] = np.union1d(rows, self._named_by("withdraw", actions))

    def _apply(self, actions: Sequence[Action]) -> None:
        apply_actions(actions, self.roster.find, self.epsilon, self.delta, self.withdrawn, self.order)
        self._changed()

    def follow(self, run: str, since: Sequence[Action]) -> None:
        """Keep who has withdrawn since a run was admitted: a re-consent never brings a record back into that run.

        Args:
            run: The run.
            since: The actions that were booked after its admission.
        """
        self._withdrawn_since[run] = self._named_by("withdraw", since)

    @property
    def followed(self) -> tuple[str, ...]:
        """The runs for which it is kept who has withdrawn."""
        return tuple(self._withdrawn_since)

    def _named_by(self, kind: ActionKind, actions: Sequence[Action]) -> NDArray[np.int64]:
        """The positions of the records that actions of this kind name."""
        named = [action.hashes for action in actions if action.kind == kind]
        if not named:
            return np.zeros(0, dtype=np.int64)
        found = np.unique(self.roster.find(np.concatenate(named)))
        rows: NDArray[np.int64] = found[found != ABSENT]
        return rows

    def _changed(self) -> None:
        self._off: NDArray[np.int64] | None = None
        self._pending: Sequence[Action] = ()
        self._of_run: tuple[str, object, Sequence[Action], NDArray[np.int64]] | None = None

    def extend(self, count: int) -> None:
        """Account for `count` records that were added to the ledger, none of which is in this roster."""
        self.places = np.append(self.places, np.full(count, ABSENT, dtype=np.int32))

    def book(self, plan: SiloPlan, sign: int = 1) -> None:
        """Add a plan that was reserved, or subtract one that was cancelled."""
        super().book(plan, sign)
        self._changed()

    def switched_off(self, pending: Sequence[Action] = (), run: str | None = None) -> NDArray[np.int64]:
        """Return the positions of records that must not be drawn, given actions that are not booked yet.

        With `run`, which must be followed, also of those that withdrew after it was admitted and have consented again.
        """
        off = self._off_now(pending)
        if run is None:
            return off
        known = self._of_run  # asked before every step, and nearly always the same
        if known is None or known[0] != run or known[1] is not off or known[2] is not pending:
            since = np.union1d(self._withdrawn_since[run], self._named_by("withdraw", pending))
            self._of_run = known = (run, off, pending, np.union1d(off, since))
        return known[3]

    def _off_now(self, pending: Sequence[Action]) -> NDArray[np.int64]:
        if self._off is None:
            everything = slice(None)
            self._off = np.flatnonzero(self._is_off(everything, self.epsilon, self.delta, self.withdrawn))
        if not pending:
            return self._off
        if pending is not self._pending:  # asked before every step, and nearly always the same
            self._pending, self._off_with_pending = pending, self._given(self._off, pending)
        return self._off_with_pending

    def _given(self, off: NDArray[np.int64], pending: Sequence[Action]) -> NDArray[np.int64]:
        """Return the positions of records that must not be drawn once these actions are applied."""
        # Pending actions change copies of the records that they name: they are in force at once, but only booking them
        # changes the balances. A raise may also bring a record back that was off.
        found = np.unique(self.roster.find(np.concatenate([action.hashes for action in pending])))
        touched = found[found >= 0]
        epsilon, delta, withdrawn = self.epsilon[touched], self.delta[touched], self.withdrawn[touched]

        def find(hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
            at = self.roster.find(hashes)
            return np.where(at >= 0, np.searchsorted(touched, at), -1)

        apply_actions(pending, find, epsilon, delta, withdrawn, self.order[touched])
        is_off = self._is_off(touched, epsilon, delta, withdrawn)
        stay = np.setdiff1d(off, touched[~is_off], assume_unique=True)
        return np.union1d(stay, touched[is_off])

    def _is_off(
        self,
        rows: slice | NDArray[np.int64],
        epsilon: FloatArray,
        delta: FloatArray,
        withdrawn: NDArray[np.bool_],
    ) -> NDArray[np.bool_]:
        budget, own_delta = lifetime_budgets(epsilon, delta, self.order[rows], self.terms)
        return withdrawn | is_overbooked(budget, own_delta, self.booked[rows], self.booked_delta[rows])
