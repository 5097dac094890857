"""Intervals for ratios of noisy counts, by Fieller's method: no ratio of two noisy numbers is ever linearised.

For a candidate θ the numerator minus θ times the denominator has mean 0 if θ is true, and a variance that is known. The
interval holds every θ for which it is at most z deviations from 0. So intervals are right where denominators are small,
too; where a denominator might be 0, the interval is everything that is possible.

| ratio | examples | exact? |
|---|---|---|
| of weighted sums of counts | accuracy, F1 | yes, but for rounding to the grid |
| p'Mn / (Σp)(Σn), of two independent sets of counts | AUC | the variance is too large by the product of both noises |

Counts may be negative. They are used as they are: cutting them off at 0 would shift the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rpdp.statistics.estimate import normal_quantile
from rpdp.statistics.intervals import Quadratic, fieller

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.statistics.score_counts import NoisyCounts

    Numbers = NDArray[np.float64]


class MetricInterval(NamedTuple):
    """A value with the interval around it; None where the noisy counts give no value."""

    value: float | None
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the length of the interval."""
        return (self.high - self.low) / 2.0


def ratio(counts: NoisyCounts, above: Numbers, below: Numbers, level: float) -> MetricInterval:
    """The interval of (above · counts) / (below · counts), which lies between 0 and 1."""
    test = float(above @ counts.values), float(below @ counts.values)
    cov = counts.covariance
    variance = cov(above, above), cov(above, below), cov(below, below)
    return _between(test, variance, level)


def pair_ratio(ahead: NoisyCounts, behind: NoisyCounts, form: Numbers, level: float) -> MetricInterval:
    """The interval of ahead' · form · behind over the product of both totals, which lies between 0 and 1.

    With form[i, j] = 1 where i > j, it is the share of pairs in which the first is in a higher bin.
    """
    ones = np.ones_like(form)
    with_form = form @ behind.values, form.T @ ahead.values
    with_ones = ones @ behind.values, ones.T @ ahead.values
    test = float(ahead.values @ with_form[0]), float(ahead.values @ with_ones[0])

    def cov(left: tuple[Numbers, Numbers], right: tuple[Numbers, Numbers]) -> float:
        return ahead.covariance(left[0], right[0]) + behind.covariance(left[1], right[1])

    variance = cov(with_form, with_form), cov(with_form, with_ones), cov(with_ones, with_ones)
    if min(ahead.values.sum(), behind.values.sum()) <= 0.0:
        return MetricInterval(None, 0.0, 1.0)
    return _between(test, variance, level)


def _between(test: tuple[float, float], variance: tuple[float, float, float], level: float) -> MetricInterval:
    """All θ in [0, 1] with (t₀ − θ t₁)² ≤ z² (v₀ − 2θ v₁ + θ² v₂), and t₀/t₁."""
    above, below, constant, cross, square = map(np.asarray, (*test, *variance))
    found = fieller(above, below, Quadratic(constant, -2.0 * cross, square), normal_quantile(level), (0.0, 1.0))
    return MetricInterval(float(found.value) if below > 0.0 else None, float(found.low), float(found.high))
