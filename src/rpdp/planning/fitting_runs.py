"""How many runs of one kind some accounts can pay for: a study that is planned for years (privacy.md, section 7).

Every run takes at most its allowance, a share of each lifetime budget, and no more than is left. So a record takes part
in a number of runs in full, with the probability that an unused account gives it; then in one more with a smaller
probability, from the rest; then in none that is worth counting.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from rpdp.display import counts_repr
from rpdp.planning.assignment import assign_allowed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.planning.allowances import Allowances
    from rpdp.planning.assignment import Planner
    from rpdp.planning.public_plan import PublicPlan

MOST_RUNS = 1_000_000
"""Counts of runs end here: a record whose run costs nothing, or hardly anything, would fit into any number."""

_TIE = 1e-12
"""Relative: a cost that fits by less than this may fail to fit when it is booked in whole units. δ may exceed by it."""

_MOST_GROUPS = 10

_ROUNDING = 1e-9
"""Relative: less than this of an account is not counted as left."""


@dataclass(frozen=True)
class LifetimeAllowances:
    """What one run may take of unused accounts, and what all runs together may still take of these accounts."""

    one_run: Allowances
    left: Allowances

    __repr__ = counts_repr

    def distinct(self) -> tuple[LifetimeAllowances, NDArray[np.int64]]:
        """One row for all records with the same account, by rising ε, and how many records each row stands for."""
        columns = [
            np.asarray(column, dtype=np.float64)
            for one in (self.one_run, self.left)
            for column in (one.lifetime, one.amount, one.delta, one.order)
        ]
        _, rows, counts = np.unique(np.stack(columns), axis=1, return_index=True, return_counts=True)
        return LifetimeAllowances(self.one_run.rows(rows), self.left.rows(rows)), counts


@dataclass(frozen=True)
class RunGroup:
    """Records with equal or similar lifetime budgets, and the runs that they can take part in."""

    low: float
    high: float
    records: int
    mean_q: float
    fewest_runs: int
    most_runs: int
    mean_last_q: float


@dataclass(frozen=True)
class FittingRuns:
    """The runs of one kind that fit. Each row stands for records with the same account. Sensitive, for real budgets.

    Attributes:
        lifetime: The lifetime ε of a row.
        records: How many records it stands for.
        q: Their probability in a run in full; 0 if no run fits, even into an unused account.
        cost: What a run in full takes of them, in the unit of their accounts.
        in_full: In how many runs they can take part in full.
        last_q: Their probability in the run after those, which takes what is left; 0 if it gives them nothing.
        noise_multiplier: The σ of the runs.
    """

    lifetime: NDArray[np.float64]
    records: NDArray[np.int64]
    q: NDArray[np.float64]
    cost: NDArray[np.float64]
    in_full: NDArray[np.int64]
    last_q: NDArray[np.float64]
    noise_multiplier: float

    __repr__ = counts_repr

    def __len__(self) -> int:
        return len(self.q)

    def probabilities(self, run: int) -> NDArray[np.float64]:
        """The probability of each row in the run of this number, counted from 1."""
        return np.where(self.in_full >= run, self.q, np.where(self.in_full == run - 1, self.last_q, 0.0))

    def expected_batch(self, run: int = 1) -> float:
        """Σq of a step of the run of this number."""
        return float(self.probabilities(run) @ self.records)

    def signal_to_noise(self, run: int = 1) -> float:
        """Σq/σ of a step of the run of this number."""
        return self.expected_batch(run) / self.noise_multiplier

    @property
    def runs_in_full(self) -> int:
        """In how many runs all take part in full that can do so in the first one."""
        return int(np.min(self.in_full, initial=MOST_RUNS, where=self.in_full > 0)) if self.in_full.any() else 0

    @property
    def runs_in_part(self) -> int:
        """How many runs fit for at least one record, in full or reduced."""
        return int(np.max(self.in_full + (self.last_q > 0.0), initial=0))

    def groups(self) -> list[RunGroup]:
        """Up to ten groups by lifetime budget: one per level if there are few levels, else of equally many rows."""
        levels = np.unique(self.lifetime)
        if levels.size <= _MOST_GROUPS:
            return [_group(self, np.flatnonzero(self.lifetime == level)) for level in levels]
        rising = np.argsort(self.lifetime, kind="stable")
        return [_group(self, rows) for rows in np.array_split(rising, _MOST_GROUPS)]

    def runs_with_signal(self, least: float) -> int:
        """How many runs in a row, from the first, have at least this Σq/σ."""
        low, high = 0, self.runs_in_part + 1  # the signal never rises; invariant: run `high` has too little, or nobody
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.signal_to_noise(middle) >= least else (low, middle)
        return low


def _group(found: FittingRuns, rows: NDArray[np.int64]) -> RunGroup:
    weights = found.records[rows]
    return RunGroup(
        low=float(found.lifetime[rows].min()),
        high=float(found.lifetime[rows].max()),
        records=int(weights.sum()),
        mean_q=float(np.average(found.q[rows], weights=weights)),
        fewest_runs=int(found.in_full[rows].min()),
        most_runs=int(found.in_full[rows].max()),
        mean_last_q=float(np.average(found.last_q[rows], weights=weights)),
    )


def fitting_runs(
    public: PublicPlan,
    lifetime: LifetimeAllowances,
    *,
    ids: pa.ChunkedArray | None = None,
    records: NDArray[np.int64] | None = None,
    planner: Planner = assign_allowed,
) -> FittingRuns:
    """Count the runs of a public plan that fit. Never more than the accounts will admit.

    Args:
        public: The plan of every run.
        lifetime: What one run may take, and what all may.
        ids: The ids of the records, if the planner needs them.
        records: How many records each row stands for; by default one.
        planner: How budgets become probabilities.
    """
    one_run, left = lifetime.one_run, lifetime.left
    size = len(one_run.amount)
    names = pa.chunked_array([pa.array([""] * size, pa.string())]) if ids is None else ids
    full = planner(public, names, one_run)
    by_amount = _times(left.amount, full.cost, 1.0 - _TIE)
    by_delta = _times(left.delta, np.where(one_run.order == 0, full.delta, 0.0), 1.0 + _TIE)
    count = np.where(full.q > 0.0, np.minimum(by_amount, by_delta), 0)
    rest = replace(
        one_run,
        amount=np.minimum(one_run.amount, _without(left.amount, count * full.cost)),
        delta=np.minimum(one_run.delta, _without(left.delta, count * full.delta)),
    )
    last = planner(public, names, rest)
    return FittingRuns(
        lifetime=one_run.lifetime,
        records=np.ones(size, dtype=np.int64) if records is None else records,
        q=full.q,
        cost=full.cost,
        in_full=count,
        last_q=np.minimum(last.q, full.q),
        noise_multiplier=public.noise_multiplier,
    )


def _times(left: NDArray[np.float64], cost: NDArray[np.float64], margin: float) -> NDArray[np.int64]:
    """How often a cost fits; once if it fits at all, and `margin` decides ties of more."""
    ratio = np.divide(left, cost, out=np.full(len(cost), float(MOST_RUNS)), where=cost > 0.0)
    times = np.floor(np.minimum(ratio * margin, MOST_RUNS)).astype(np.int64)
    return np.where(left >= cost, np.maximum(times, 1), np.minimum(times, 1) if margin > 1.0 else 0)


def _without(left: NDArray[np.float64], taken: NDArray[np.float64]) -> NDArray[np.float64]:
    """What remains; nothing if that could be the rounding of a difference."""
    rest = left - taken
    return np.where(rest > _ROUNDING * left, rest, np.where(np.isinf(left), left, 0.0))
