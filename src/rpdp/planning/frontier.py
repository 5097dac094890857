"""The frontier: the trade-off between noise and sampling.

With more noise, every record can be sampled more often at the same cost. For a range of σ the frontier lists the
expected batch, the compute and the signal-to-noise ratio Σq/σ. It also marks the knee, beyond which more compute adds
little signal. If a run takes a share of lifetime budgets, it says how many such runs fit. Its input should be a
*declared* distribution and a nominal size. A σ chosen by looking at real budgets is not covered by the promise, and a
plan made that way carries a note.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rpdp.accounting import Accountant, PrivacyCurve, Schedule
from rpdp.errors import InputError
from rpdp.planning.fitting_runs import LifetimeAllowances, fitting_runs
from rpdp.planning.public_plan import PublicPlan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True)
class FrontierPoint:
    """One value of σ and its consequences for a silo."""

    noise_multiplier: float
    largest_cost: float
    """The cost at q = 1. A larger budget cannot be used up."""

    expected_batch: float
    gradients_per_round: float
    signal_to_noise: float
    left_out: int
    in_every_batch: int
    runs_in_full: int | None = None
    """How many runs of this kind fit for all who can take part in one; None if a run takes whole budgets."""

    runs_in_part: int | None = None
    """How many fit for at least one record, in full or reduced."""


def frontier(
    schedule: Schedule,
    budgets: NDArray[np.float64] | LifetimeAllowances,
    *,
    delta: float,
    noise_multipliers: Sequence[float],
    accountant: Accountant = "pld",
) -> Iterator[FrontierPoint]:
    """Compute and yield one point per noise multiplier.

    Args:
        schedule: The schedule of a run.
        budgets: The ε of each record, all of which one run takes; or, for several runs over a lifetime, what each of
            them may take of accounts (`rpdp.ledger.unused_accounts`).
        delta: The δ of a run.
        noise_multipliers: The values of σ to compare.
        accountant: The accountant of one run.
    """
    if len(noise_multipliers) == 0:
        raise InputError("give at least one noise multiplier")
    if isinstance(budgets, LifetimeAllowances):
        yield from _over_lifetimes(schedule, budgets, delta, noise_multipliers, accountant)
        return
    levels, counts = np.unique(np.asarray(budgets, dtype=np.float64), return_counts=True)
    for sigma in noise_multipliers:
        curve = PrivacyCurve(schedule, noise_multiplier=sigma, delta=delta, accountant=accountant)
        q = curve.sampling_probability(levels)
        batch = float(q @ counts)
        yield FrontierPoint(
            noise_multiplier=float(sigma),
            largest_cost=curve.largest_cost,
            expected_batch=batch,
            gradients_per_round=batch * schedule.local_steps,
            signal_to_noise=batch / float(sigma),
            left_out=int(counts[q == 0.0].sum()),
            in_every_batch=int(counts[q == 1.0].sum()),
        )


def _over_lifetimes(
    schedule: Schedule,
    accounts: LifetimeAllowances,
    delta: float,
    noise_multipliers: Sequence[float],
    accountant: Accountant,
) -> Iterator[FrontierPoint]:
    """The points of runs that take a share each."""
    distinct, records = accounts.distinct()
    for sigma in noise_multipliers:
        public = PublicPlan(
            schedule,
            noise_multiplier=sigma,
            delta=delta,
            clip_norm=1.0,  # probabilities depend neither on L nor on B
            normaliser=1.0,
            weights=1.0,
            accountant=accountant,
        )
        found = fitting_runs(public, distinct, records=records)
        batch = found.expected_batch()
        yield FrontierPoint(
            noise_multiplier=float(sigma),
            largest_cost=public.curve.largest_cost,
            expected_batch=batch,
            gradients_per_round=batch * schedule.local_steps,
            signal_to_noise=found.signal_to_noise(),
            left_out=int(records[found.q == 0.0].sum()),
            in_every_batch=int(records[found.q == 1.0].sum()),
            runs_in_full=found.runs_in_full,
            runs_in_part=found.runs_in_part,
        )


def knee(points: Sequence[FrontierPoint]) -> int:
    """The index of the knee: the point furthest above the line from least to most compute (signal over log compute)."""
    compute = np.log([max(point.gradients_per_round, 1e-9) for point in points])
    signal = np.array([point.signal_to_noise for point in points])
    if len(points) < 3 or np.ptp(compute) == 0.0 or np.ptp(signal) == 0.0:
        return int(np.argmax(signal))
    across = (compute - compute.min()) / np.ptp(compute)
    up = (signal - signal.min()) / np.ptp(signal)
    return int(np.argmax(up - across))
