"""The accounts of all records of a ledger, a chunk at a time: for overviews and exports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rpdp.display import counts_repr
from rpdp.ledger.standing import is_overbooked
from rpdp.ledger.store.roster import ABSENT, Roster
from rpdp.ledger.store.units import DELTA_SHIFT, EPSILON_SHIFT, amounts, left_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from rpdp.ledger.ledger_base import LedgerBase
    from rpdp.ledger.progress_callback import Progress
    from rpdp.ledger.stewardship.actions import Action
    from rpdp.ledger.store.record_store import Chunk
    from rpdp.ledger.store.units import FloatArray, UnitArray


@dataclass(frozen=True, eq=False)
class Accounts:
    """Some records: budgets in force, what is booked (in units), who has withdrawn."""

    hashes: NDArray[np.uint64]
    epsilon: FloatArray
    delta: FloatArray
    booked_epsilon: UnitArray
    booked_delta: UnitArray
    withdrawn: NDArray[np.bool_]

    __repr__ = counts_repr

    @property
    def spent_epsilon(self) -> FloatArray:
        """ε that is reserved, and so spent."""
        return amounts(self.booked_epsilon, EPSILON_SHIFT)

    @property
    def spent_delta(self) -> FloatArray:
        """δ that is reserved, and so spent."""
        return amounts(self.booked_delta, DELTA_SHIFT)

    @property
    def left_epsilon(self) -> FloatArray:
        """ε for further runs."""
        return np.where(self.withdrawn, 0.0, left_of(self.epsilon, self.booked_epsilon, EPSILON_SHIFT))

    @property
    def left_delta(self) -> FloatArray:
        """δ for further runs."""
        return np.where(self.withdrawn, 0.0, left_of(self.delta, self.booked_delta, DELTA_SHIFT))

    @property
    def is_off(self) -> NDArray[np.bool_]:
        """Who is not drawn any more, in any run."""
        return self.withdrawn | is_overbooked(self.epsilon, self.delta, self.booked_epsilon, self.booked_delta)


class IndexedAction:
    """An action whose records are sorted once, to be looked up for many chunks."""

    def __init__(self, action: Action) -> None:
        self.action = action
        self._roster = Roster(action.hashes)

    def apply(
        self, hashes: NDArray[np.uint64], epsilon: FloatArray, delta: FloatArray, withdrawn: NDArray[np.bool_]
    ) -> None:
        """Change what is in force for the records with these hashes, in place."""
        at = self._roster.find(hashes)
        rows = np.flatnonzero(at != ABSENT)
        if self.action.kind == "withdraw":
            withdrawn[rows] = True
            return
        combine = np.fmin if self.action.kind == "lower" else np.fmax
        epsilon[rows] = combine(epsilon[rows], self.action.epsilon[at[rows]])
        delta[rows] = combine(delta[rows], self.action.delta[at[rows]])

    def mark(self, hashes: NDArray[np.uint64], touched: NDArray[np.bool_]) -> None:
        """Mark the records that this action is about, in place."""
        touched |= self._roster.find(hashes) != ABSENT


def accounts_of(ledger: LedgerBase, chunk: Chunk, actions: Sequence[IndexedAction]) -> Accounts:
    """The accounts of one chunk."""
    hashes = ledger.records.hashes(chunk)
    epsilon, delta = ledger.records.budgets(chunk)
    withdrawn = np.zeros(chunk.count, dtype=bool)
    for action in actions:
        action.apply(hashes, epsilon, delta, withdrawn)
    return Accounts(hashes, epsilon, delta, *ledger.records.totals(chunk), withdrawn)


def all_accounts(ledger: LedgerBase, progress: Progress) -> Iterator[Accounts]:
    """The accounts of all records."""
    actions = [IndexedAction(action) for action in ledger.actions()]
    for chunk in ledger.records.chunks:
        yield accounts_of(ledger, chunk, actions)
        progress("reading accounts", chunk.rows.stop, len(ledger.records))
