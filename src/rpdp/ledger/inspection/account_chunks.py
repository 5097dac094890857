"""The accounts of all records of a ledger, one chunk at a time, for overviews and exports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rpdp.display import counts_repr
from rpdp.ledger.balances import is_overbooked
from rpdp.ledger.store.fixed_point import DELTA_SHIFT, EPSILON_SHIFT, amounts, left_of
from rpdp.ledger.store.roster import ABSENT, Roster

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from rpdp.ledger.ledger_base import LedgerBase
    from rpdp.ledger.progress_callback import Progress
    from rpdp.ledger.stewardship.actions import Action
    from rpdp.ledger.store.fixed_point import FloatArray, UnitArray
    from rpdp.ledger.store.record_store import Chunk


@dataclass(frozen=True, eq=False)
class Accounts:
    """The accounts of some records: budgets in force, what is booked (in units), who has withdrawn."""

    hashes: NDArray[np.uint64]
    epsilon: FloatArray
    delta: FloatArray
    booked_epsilon: UnitArray
    booked_delta: UnitArray
    withdrawn: NDArray[np.bool_]

    __repr__ = counts_repr

    @property
    def spent_epsilon(self) -> FloatArray:
        """The ε that is reserved, which counts as spent."""
        return amounts(self.booked_epsilon, EPSILON_SHIFT)

    @property
    def spent_delta(self) -> FloatArray:
        """The δ that is reserved, which counts as spent."""
        return amounts(self.booked_delta, DELTA_SHIFT)

    @property
    def left_epsilon(self) -> FloatArray:
        """The ε left for further runs."""
        return np.where(self.withdrawn, 0.0, left_of(self.epsilon, self.booked_epsilon, EPSILON_SHIFT))

    @property
    def left_delta(self) -> FloatArray:
        """The δ left for further runs."""
        return np.where(self.withdrawn, 0.0, left_of(self.delta, self.booked_delta, DELTA_SHIFT))

    @property
    def is_off(self) -> NDArray[np.bool_]:
        """Which records are no longer drawn, in any run."""
        return self.withdrawn | is_overbooked(self.epsilon, self.delta, self.booked_epsilon, self.booked_delta)


class IndexedAction:
    """An action whose records are sorted once, so that they can be looked up for many chunks."""

    def __init__(self, action: Action) -> None:
        self.action = action
        self._roster = Roster(action.hashes)

    def apply(
        self, hashes: NDArray[np.uint64], epsilon: FloatArray, delta: FloatArray, withdrawn: NDArray[np.bool_]
    ) -> None:
        """Apply the action to the records with these hashes, in place."""
        at = self._roster.find(hashes)
        rows = np.flatnonzero(at != ABSENT)
        if self.action.kind == "withdraw":
            withdrawn[rows] = True
            return
        combine = np.fmin if self.action.kind == "lower" else np.fmax
        epsilon[rows] = combine(epsilon[rows], self.action.epsilon[at[rows]])
        delta[rows] = combine(delta[rows], self.action.delta[at[rows]])

    def mark(self, hashes: NDArray[np.uint64], touched: NDArray[np.bool_]) -> None:
        """Mark the records that this action names, in place."""
        touched |= self._roster.find(hashes) != ABSENT


def accounts_of(ledger: LedgerBase, chunk: Chunk, actions: Sequence[IndexedAction]) -> Accounts:
    """Return the accounts of one chunk."""
    hashes = ledger.records.hashes(chunk)
    epsilon, delta = ledger.records.budgets(chunk)
    withdrawn = np.zeros(chunk.count, dtype=bool)
    for action in actions:
        action.apply(hashes, epsilon, delta, withdrawn)
    return Accounts(hashes, epsilon, delta, *ledger.records.totals(chunk), withdrawn)


def all_accounts(ledger: LedgerBase, progress: Progress) -> Iterator[Accounts]:
    """Iterate over the accounts of all records, one chunk at a time."""
    actions = [IndexedAction(action) for action in ledger.actions()]
    for chunk in ledger.records.chunks:
        yield accounts_of(ledger, chunk, actions)
        progress("reading accounts", chunk.rows.stop, len(ledger.records))
