"""The paper's per-record budget accountant, made non-adaptive: who may still be drawn, and what was spent so far.

Its pre-check and its charge cost the same whatever the number of records: the plan has fixed for each record the
rounds 1 … t_j it is active in (privacy.md, section 6), so a round is charged by counting it. What a record has spent
after r announced rounds is computed when somebody asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpdp.errors import PrivacyRefusal

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.planning import SiloPlan


class BudgetAccountant:
    """For every record of a plan: budget, cost so far, rounds left.

    With `certified` probabilities nobody runs out before the last round; with `scf` a record may be active in its first
    t_j rounds only.
    """

    def __init__(self, plan: SiloPlan) -> None:
        self.plan = plan
        self.announced = 0
        ends, where = np.unique(plan.active_rounds, return_inverse=True)
        order = np.argsort(where, kind="stable")
        starts = np.searchsorted(where[order], np.arange(len(ends)))
        self._last_in = dict(zip(ends.tolist(), np.split(order, starts[1:]), strict=True))

    def check(self, number: int) -> None:
        """The check before a round: it is the next or a later one, and was planned."""
        rounds = self.plan.public.schedule.rounds
        if not self.announced < number <= rounds:
            raise PrivacyRefusal(
                f"round {number} cannot be charged: {self.announced} of {rounds} rounds are; each is charged once"
            )

    def charge(self, number: int) -> NDArray[np.int64]:
        """Charge all rounds up to `number`; the positions of records that took their last turn before it."""
        self.check(number)
        ended = [self._last_in.get(end) for end in range(self.announced, number)]
        self.announced = number
        found = [rows for rows in ended if rows is not None]
        return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)

    @property
    def rounds_left(self) -> NDArray[np.int32]:
        """For each record, the announced rounds in which it is still active."""
        return np.maximum(self.plan.active_rounds - self.announced, 0).astype(np.int32)

    def spent(self) -> NDArray[np.float64]:
        """The cost of each record so far: of the announced rounds in which it was active."""
        turns = np.minimum(self.plan.active_rounds, self.announced)
        cost = np.zeros(len(self.plan))
        for count in np.unique(turns[turns > 0]):
            rows = turns == count
            cost[rows] = self.plan.public.curve.after(int(count)).epsilon(self.plan.q[rows])
        return np.minimum(cost, self.plan.cost)
