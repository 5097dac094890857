"""The paper's per-record budget accountant, made non-adaptive: who may still be drawn, and what was spent so far.

The check and the charge take the same time for any number of records. The plan fixes the rounds 1 … t_j in which each
record is active (privacy.md, section 6), so charging a round means counting it. What a record has spent after r
announced rounds is computed only on request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpdp.errors import PrivacyRefusal

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.planning import SiloPlan


class BudgetAccountant:
    """The cost so far and the rounds left of every record of a plan.

    With `certified` probabilities no record runs out before the last round. With `scf` a record may be active in its
    first t_j rounds only.
    """

    def __init__(self, plan: SiloPlan) -> None:
        self.plan = plan
        self.announced = 0
        ends, where = np.unique(plan.active_rounds, return_inverse=True)
        order = np.argsort(where, kind="stable")
        starts = np.searchsorted(where[order], np.arange(len(ends)))
        self._last_in = dict(zip(ends.tolist(), np.split(order, starts[1:]), strict=True))

    def check(self, number: int) -> None:
        """Refuse a round unless it was planned and comes after every charged round."""
        rounds = self.plan.public.schedule.rounds
        if not self.announced < number <= rounds:
            raise PrivacyRefusal(
                f"round {number} cannot be charged: {self.announced} of {rounds} rounds are charged, each only once"
            )

    def charge(self, number: int) -> NDArray[np.int64]:
        """Charge all rounds up to `number`; return the positions of records whose last active round came before it."""
        self.check(number)
        ended = [self._last_in.get(end) for end in range(self.announced, number)]
        self.announced = number
        found = [rows for rows in ended if rows is not None]
        return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)

    @property
    def rounds_left(self) -> NDArray[np.int32]:
        """For each record, how many rounds it is still active in."""
        return np.maximum(self.plan.active_rounds - self.announced, 0).astype(np.int32)

    def spent(self) -> NDArray[np.float64]:
        """Return the cost of each record so far, from the announced rounds in which it was active."""
        turns = np.minimum(self.plan.active_rounds, self.announced)
        cost = np.zeros(len(self.plan))
        for count in np.unique(turns[turns > 0]):
            rows = turns == count
            cost[rows] = self.plan.public.curve.after(int(count)).epsilon(self.plan.q[rows])
        return np.minimum(cost, self.plan.cost)
