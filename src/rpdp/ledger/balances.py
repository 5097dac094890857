"""The balance of each record in a silo's table: its budget in force, what is booked, whether it may be drawn.

Balances are kept in memory in the order of the table. The check before every local step ("which records must not be
drawn any more?") therefore touches no database, and a forked worker can make it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpdp.budgets import RecordBudgets
from rpdp.errors import PrivacyRefusal
from rpdp.ledger.stewardship.actions import apply_actions
from rpdp.ledger.store.fixed_point import (
    DELTA_SHIFT,
    DELTA_TOLERANCE,
    EPSILON_SHIFT,
    fits_delta,
    fits_epsilon,
    left_of,
    rounded_up,
)
from rpdp.ledger.store.roster import ABSENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rpdp.ledger.stewardship.actions import Action
    from rpdp.ledger.store.fixed_point import FloatArray, UnitArray
    from rpdp.ledger.store.record_store import RecordStore
    from rpdp.ledger.store.roster import Roster
    from rpdp.planning import SiloPlan


class Balances:
    """The balances of the records in a roster.

    Args:
        store: The ledger's records.
        roster: The records of the silo's table.
        places: For each record of the ledger, its position in the roster, or −1.
        actions: The steward actions so far.
    """

    def __init__(
        self, store: RecordStore, roster: Roster, places: NDArray[np.int32], actions: Sequence[Action]
    ) -> None:
        self.roster = roster
        self.places = places
        self.read(store, actions)

    def read(self, store: RecordStore, actions: Sequence[Action]) -> None:
        """Read all balances from the file: at the start, and wherever a decision must not rest on memory."""
        if len(self.places) != len(store):  # another process added records, which only ever come after the old ones
            self.places = store.places(self.roster)
        size = len(self.roster)
        self.epsilon, self.delta = store.gather(self.places, size, store.budgets)
        self.booked_epsilon, self.booked_delta = store.gather(self.places, size, store.totals)
        self.withdrawn = np.zeros(size, dtype=bool)
        self.apply(actions)

    def apply(self, actions: Sequence[Action]) -> None:
        """Apply steward actions that were booked."""
        apply_actions(actions, self.roster.find, self.epsilon, self.delta, self.withdrawn)
        self._changed()

    def _changed(self) -> None:
        self._off: NDArray[np.int64] | None = None
        self._pending: Sequence[Action] = ()

    def extend(self, count: int) -> None:
        """Account for `count` records that were added to the ledger, none of which is in this roster."""
        self.places = np.append(self.places, np.full(count, ABSENT, dtype=np.int32))

    def left(self, allowed: RecordBudgets) -> RecordBudgets:
        """Return what is left of the smaller of each budget in force and the budget in `allowed`."""
        assert allowed.delta is not None
        epsilon = left_of(np.minimum(self.epsilon, allowed.epsilon), self.booked_epsilon, EPSILON_SHIFT)
        delta = left_of(np.minimum(self.delta, allowed.delta), self.booked_delta, DELTA_SHIFT)
        epsilon[self.withdrawn] = 0.0
        delta[self.withdrawn] = 0.0
        return RecordBudgets(epsilon, delta)

    def require(self, plan: SiloPlan) -> None:
        """Refuse a plan unless it fits into what is left of every budget in force."""
        drawn = plan.q > 0.0
        over = drawn & ~fits_epsilon(plan.cost, self.epsilon, self.booked_epsilon)
        over |= drawn & ~fits_delta(plan.public.delta, self.delta, self.booked_delta)
        over |= drawn & self.withdrawn
        if over.any():
            raise PrivacyRefusal(
                f"{int(over.sum()):,} records would go over their budgets, or have withdrawn; nothing was reserved. "
                "Make the plan from what is left (`left`) immediately before reserving it"
            )

    def book(self, plan: SiloPlan) -> None:
        """Add a plan that was reserved."""
        drawn = plan.q > 0.0
        self.booked_epsilon += np.where(drawn, rounded_up(plan.cost, EPSILON_SHIFT), 0)
        self.booked_delta += np.where(drawn, rounded_up(np.full(1, plan.public.delta), DELTA_SHIFT), 0)
        self._changed()

    def switched_off(self, pending: Sequence[Action] = ()) -> NDArray[np.int64]:
        """Return the positions of records that must not be drawn, given actions that are not booked yet."""
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

        apply_actions(pending, find, epsilon, delta, withdrawn)
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
        return withdrawn | is_overbooked(epsilon, delta, self.booked_epsilon[rows], self.booked_delta[rows])


def is_overbooked(
    epsilon: FloatArray, delta: FloatArray, booked_epsilon: UnitArray, booked_delta: UnitArray
) -> NDArray[np.bool_]:
    """Return where more is booked than the budget in force allows, beyond the rounding of a booking that fitted."""
    most_delta = rounded_up(np.minimum(delta * (1.0 + 2.0 * DELTA_TOLERANCE), 1.0), DELTA_SHIFT) + 1
    return (booked_epsilon > rounded_up(epsilon, EPSILON_SHIFT)) | (booked_delta > most_delta)
