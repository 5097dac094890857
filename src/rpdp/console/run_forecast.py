"""What runs would find: batch, signal, who is left out, how many fit. From a ledger, or from declared budgets.

Figures from real accounts rest on everybody's budgets: they are for the steward, and never for publication.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rpdp.display import counts_repr
from rpdp.ledger.inspection.overview import EDGES
from rpdp.ledger.unused_accounts import unused_accounts
from rpdp.planning import Allowance, LifetimeAllowances, fitting_runs, floor_of_signal, signal_of_run

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.budgets import AccountKind, BudgetTable
    from rpdp.ledger.inspection.use_over_time import AccountSample
    from rpdp.planning import FittingRuns, PublicPlan

_MOST_SHOWN = 12


@dataclass(frozen=True)
class GroupForecast:
    """What a group of budgets has before it: its number in `overview.EDGES`, and runs in full for its records."""

    number: int
    records: int
    left_out: int
    mean_q: float
    fewest_runs: int
    typical_runs: int
    most_runs: int


@dataclass(frozen=True)
class RunForecast:
    """What runs of one plan would find, one after the other.

    Attributes:
        plan: The plan in words.
        share: The largest share of a lifetime budget that one run may take.
        records: How many records there are.
        is_sample: Whether they were estimated from some of the records.
        left_out: How many the next run would leave out.
        withdrawn: How many of these have withdrawn.
        batches: The expected batch of the next run, and of those after it, by the number of the run.
        signals: The signal of the whole run, likewise.
        floor: Below this signal a run is noise.
        runs_above_floor: How many runs are above it.
        runs_in_full: How many runs leave everybody in who can take part in the next one.
        groups: By group of budgets.
    """

    plan: str
    share: float
    records: int
    is_sample: bool
    left_out: int
    withdrawn: int
    batches: dict[int, float]
    signals: dict[int, float]
    floor: float
    runs_above_floor: int
    runs_in_full: int
    groups: tuple[GroupForecast, ...]

    __repr__ = counts_repr


def forecast_of_ledger(sample: AccountSample, public: PublicPlan, allowance: Allowance, runs: int = 1) -> RunForecast:
    """What runs would find in the ledger now. `runs` is a number of runs to look at, besides the usual ones."""
    accounts, unused = sample.accounts(), sample.accounts(unused=True)
    delta = sample.terms.lifetime_delta
    whole = replace(allowance, share=1.0)
    lifetime = LifetimeAllowances(unused.allowances(allowance, delta), accounts.allowances(whole, delta))
    withdrawn = round(sample.withdrawn.sum() * sample.weight)
    return _forecast(public, allowance.share, lifetime, sample.weight, withdrawn, runs)


def forecast_of_declared(
    budgets: BudgetTable,
    public: PublicPlan,
    allowance: Allowance,
    account: AccountKind,
    lifetime_delta: float,
    records: int,
    runs: int = 1,
) -> RunForecast:
    """What runs would find in a new ledger of so many records, whose budgets are like these declared ones."""
    lifetime = unused_accounts(budgets, allowance, account=account, lifetime_delta=lifetime_delta)
    return _forecast(public, allowance.share, lifetime, records / len(budgets), 0, runs)


def _forecast(
    public: PublicPlan, share: float, lifetime: LifetimeAllowances, weight: float, withdrawn: int, runs: int
) -> RunForecast:
    distinct, counts = lifetime.distinct()
    found = fitting_runs(public, distinct, records=counts)
    one = signal_of_run(weight / public.noise_multiplier, public.schedule)
    unused = float(found.q @ counts) * one
    floor = floor_of_signal(unused)
    shown = sorted({*_shown(found.runs_in_part), runs})
    next_q = found.probabilities(1)
    return RunForecast(
        plan=f"{public.describe()}, σ = {public.noise_multiplier:g}, δ = {public.delta:g}",
        share=share,
        records=_scaled(int(counts.sum()), weight),
        is_sample=weight != 1.0,
        left_out=_scaled(int(counts[next_q == 0.0].sum()), weight),
        withdrawn=withdrawn,
        batches={run: found.expected_batch(run) * weight for run in shown},
        signals={run: found.expected_batch(run) * one for run in shown},
        floor=floor,
        runs_above_floor=found.runs_with_signal(floor / one / public.noise_multiplier),
        runs_in_full=found.runs_in_full,
        groups=_groups(found, next_q, weight),
    )


def _groups(found: FittingRuns, next_q: NDArray[np.float64], weight: float) -> tuple[GroupForecast, ...]:
    group = np.searchsorted(np.asarray(EDGES) * (1.0 + 1e-12), found.lifetime)
    made = []
    for number in np.unique(group).tolist():
        rows = group == number
        counts, full = found.records[rows], found.in_full[rows]
        rising = np.argsort(full)
        middle = rising[np.searchsorted(np.cumsum(counts[rising]), counts.sum() / 2.0)]
        made.append(
            GroupForecast(
                number,
                _scaled(int(counts.sum()), weight),
                _scaled(int(counts[next_q[rows] == 0.0].sum()), weight),
                float(np.average(next_q[rows], weights=counts)),
                int(full.min()),
                int(full[middle]),
                int(full.max()),
            )
        )
    return tuple(made)


def _shown(most: int) -> list[int]:
    """Numbers of runs to show: 1, 2, 5, 10, 20, … up to the last that fits, and the one after it."""
    steps = [digit * 10**power for power in range(6) for digit in (1, 2, 5)]
    return [*[run for run in steps if run <= most][-_MOST_SHOWN:], most + 1]


def _scaled(count: int, weight: float) -> int:
    return round(count * weight)
