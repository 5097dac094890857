"""`python -m tests.statistics.coverage_table [--releases 10000]`: bias and coverage of every statistic, as a table."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr

from rpdp.planning import REQUEST_ESTIMATORS
from rpdp.statistics import Inquiry
from rpdp.statistics.inquiry import noise_of
from tests.statistics.world import World, contributions, simulated, statistics

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.planning import RequestEstimator
    from rpdp.statistics import Statistic
    from rpdp.statistics.estimate import Intervals

LINEAR = ("count", "sum", "histogram")
"""Statistics that "everyone" estimates without any bias; others are ratios, and consistent."""

_RECORDS = 2000


@dataclass(frozen=True)
class Row:
    """What many releases of one statistic showed.

    Attributes:
        bias: The largest distance of a mean from the truth, in standard errors of that mean; of a quantile from what
            the same bins say without noise.
        relative_bias: The same, in standard deviations of one release.
        coverage: How often intervals covered the truth: the least of all numbers of the statistic.
        flagged: How often the check by budgets raised an alarm; NaN if it was not made.
    """

    name: str
    estimator: str
    is_correlated: bool
    bias: float
    relative_bias: float
    coverage: float
    flagged: float


@cache
def measured(name: str, estimator: RequestEstimator, *, is_correlated: bool, repetitions: int) -> Row:
    """Release a statistic many times."""
    world = World.make(_RECORDS, is_correlated=is_correlated)
    statistic, true = statistics(float(_RECORDS))[name]
    part = world.takes_part if estimator == "everyone" else np.ones_like(world.takes_part)
    truth = true(world, part)
    if estimator == "representative" and name == "histogram":
        truth = truth / truth.sum()
    bounds = simulated(world, statistic, estimator, repetitions)
    counted = np.isfinite(truth)
    unbiased = _from_bins(world, statistic, part) if name == "quantiles" else truth
    value, low, high = (each[:, : len(truth)][:, counted] for each in bounds[:3])
    wanted = truth[counted]
    covered = ((low <= wanted + 1e-9) & (wanted <= high + 1e-9)).mean(axis=0)
    relative = np.abs(value.mean(axis=0) - unbiased[counted]) / np.maximum(value.std(axis=0), 1e-12)
    flagged = float("nan")
    if estimator == "representative":
        first = simulated(world, statistic, "everyone", repetitions, seed=8, for_check=True)
        flagged = _alarms(first, bounds)
    bias = float(relative.max())
    return Row(name, estimator, is_correlated, bias * repetitions**0.5, bias, float(covered.min()), flagged)


def _from_bins(world: World, statistic: Statistic, part: NDArray[np.bool_]) -> NDArray[np.float64]:
    """What the same bins say without noise or weights: the width of a bin is no bias."""
    inquiry = Inquiry((statistic,), "everyone")
    cells = contributions(world, inquiry.request)[part].sum(axis=0)
    return inquiry.intervals(cells, noise_of(1e-9, 0.95, "everyone"))[0].value


def _alarms(everyone: Intervals, representative: Intervals) -> float:
    """How often a check of all numbers of a statistic raises an alarm: `check_budgets` for many releases."""
    error = np.hypot(everyone.error, representative.error)
    p_values = 2.0 * ndtr(-np.abs(everyone.value - representative.value) / error)
    return float((p_values < 0.05 / p_values.shape[1]).any(axis=1).mean())


def table(repetitions: int) -> list[Row]:
    """All rows."""
    return [
        measured(name, estimator, is_correlated=is_correlated, repetitions=repetitions)
        for name in statistics(float(_RECORDS))
        for estimator in REQUEST_ESTIMATORS
        for is_correlated in (False, True)
        if (name, estimator) != ("count", "representative")
    ]


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--releases", type=int, default=10_000)
    repetitions = parser.parse_args().releases
    sys.stdout.write(
        "| statistic | estimator | budgets | bias (standard errors) | bias (deviations) | coverage | flagged |\n"
    )
    sys.stdout.write("|---|---|---|---|---|---|---|\n")
    for row in table(repetitions):
        budgets = "go with values" if row.is_correlated else "independent"
        flagged = "" if np.isnan(row.flagged) else f"{row.flagged:.3f}"
        sys.stdout.write(
            f"| {row.name} | {row.estimator} | {budgets} | {row.bias:.1f} | {row.relative_bias:.3f} | "
            f"{row.coverage:.4f} | {flagged} |\n"
        )


if __name__ == "__main__":
    main()
