"""The accounts of all records of a ledger, one chunk at a time, for overviews and exports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpdp.ledger.record_accounts import RecordAccounts
from rpdp.ledger.stewardship.actions import change_budgets
from rpdp.ledger.store.fixed_point import DELTA_SHIFT, EPSILON_SHIFT, amounts
from rpdp.ledger.store.roster import ABSENT, Roster

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from rpdp.ledger.ledger_base import LedgerBase
    from rpdp.ledger.progress_callback import Progress
    from rpdp.ledger.stewardship.actions import Action
    from rpdp.ledger.store.fixed_point import FloatArray
    from rpdp.ledger.store.record_store import Chunk


class Accounts(RecordAccounts):
    """The accounts of one chunk of a ledger, with the hashes of its records."""

    def __init__(self, ledger: LedgerBase, chunk: Chunk, actions: Sequence[IndexedAction]) -> None:
        epsilon, delta = ledger.records.budgets(chunk)
        super().__init__(epsilon, delta, ledger.records.orders(chunk), terms=ledger.terms)
        self.hashes = ledger.records.hashes(chunk)
        for action in actions:
            action.apply(self.hashes, self)
        self.booked, self.booked_delta = ledger.records.totals(chunk)

    @property
    def is_renyi(self) -> NDArray[np.bool_]:
        """Which of them are Rényi accounts."""
        return self.order > 0

    @property
    def spent_epsilon(self) -> FloatArray:
        """The ε that is reserved in sum accounts, which counts as spent; NaN in Rényi accounts, which spend none."""
        return np.where(self.is_renyi, np.nan, amounts(self.booked, EPSILON_SHIFT))

    @property
    def spent_delta(self) -> FloatArray:
        """The δ that is reserved in sum accounts; NaN in Rényi accounts."""
        return np.where(self.is_renyi, np.nan, amounts(self.booked_delta, DELTA_SHIFT))

    @property
    def left_epsilon(self) -> FloatArray:
        """The ε left for further runs in sum accounts; NaN in Rényi accounts."""
        return np.where(self.is_renyi, np.nan, self.left()[0])

    @property
    def left_delta(self) -> FloatArray:
        """The δ left for further runs in sum accounts; NaN in Rényi accounts."""
        return np.where(self.is_renyi, np.nan, self.left()[1])


class IndexedAction:
    """An action whose records are sorted once, so that they can be looked up for many chunks."""

    def __init__(self, action: Action) -> None:
        self.action = action
        self._roster = Roster(action.hashes)

    def apply(self, hashes: NDArray[np.uint64], accounts: RecordAccounts) -> None:
        """Apply the action to the accounts of the records with these hashes, in place."""
        at = self._roster.find(hashes)
        rows = np.flatnonzero(at != ABSENT)
        if self.action.kind in ("withdraw", "reconsent"):
            accounts.withdrawn[rows] = self.action.kind == "withdraw"
            return
        change_budgets(self.action, rows, at[rows], accounts.epsilon, accounts.delta, accounts.order)

    def mark(self, hashes: NDArray[np.uint64], touched: NDArray[np.bool_]) -> None:
        """Mark the records that this action names, in place."""
        touched |= self._roster.find(hashes) != ABSENT


def all_accounts(ledger: LedgerBase, progress: Progress) -> Iterator[Accounts]:
    """Iterate over the accounts of all records, one chunk at a time."""
    actions = [IndexedAction(action) for action in ledger.actions()]
    for chunk in ledger.records.chunks:
        yield Accounts(ledger, chunk, actions)
        progress("reading accounts", chunk.rows.stop, len(ledger.records))
