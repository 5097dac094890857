"""Means, variances and correlations from noisy sums of powers.

With X_k the sum of a power over (weighted) records and X_0 their number, a mean is X_1/X_0 with Fieller's interval. A
variance is B/X_0 with B = X_2 − X_1²/X_0, whose first derivative in the unknown mean is 0 at the mean: Fieller's
interval again, with what is left of the mean's error added. A correlation uses the delta method on Fisher's scale. The
known noise makes squares of noisy sums too large on average, by a known amount, which is taken off.

A sampling spread is Σw² times the variance of a record's own value, which higher powers estimate; a variance is taken
at one standard error above its estimate, so that the interval is rather too wide than too narrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpdp.statistics.estimate import Intervals
from rpdp.statistics.intervals import Quadratic, fieller

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rpdp.statistics.intervals import Noise
    from rpdp.statistics.measures import MomentsMeasure

    Exponent = tuple[int, ...]
    Polynomial = Mapping[Exponent, NDArray[np.float64] | float]

LEAST_SIGNAL = 5.0
"""A variance below this many of its standard errors is no divisor: then a correlation may be anything."""


class PowerSums:
    """The sums of powers in the cells of a measure: arrays of releases × groups."""

    def __init__(self, measure: MomentsMeasure, cells: NDArray[np.float64], noise: Noise) -> None:
        self.noise = noise
        self.degree = measure.degree
        self._place = {exponent: place for place, exponent in enumerate(measure.exponents)}
        powers = len(measure.exponents)
        to_sums = np.diag(1.0 / measure.factors)
        to_sums[:, 0] += measure.centres / measure.factors[0]
        grouped = cells.reshape(*cells.shape[:-1], measure.groups, powers)
        self._sums = grouped @ to_sums.T
        self._covariance = noise.deviation**2 * (to_sums @ to_sums.T)
        self._zero: Exponent = (0,) * len(measure.columns)
        count_error = np.asarray(np.sqrt(self.covariance({self._zero: 1.0}, {self._zero: 1.0})))
        self.squared_weights = noise.squared_weights(self.count, count_error)

    @property
    def count(self) -> NDArray[np.float64]:
        """X_0: how many records there are, or the sum of their weights."""
        return self._sums[..., 0]

    @property
    def divisor(self) -> NDArray[np.float64]:
        """X_0 where it is clearly above 0, and otherwise one standard error of it."""
        return np.maximum(self.count, float(np.sqrt(self._covariance[0, 0])) or 1e-300)

    def total(self, polynomial: Polynomial) -> NDArray[np.float64]:
        """The sum of a polynomial of the records' values."""
        terms = [factor * self._sums[..., self._place[exponent]] for exponent, factor in polynomial.items()]
        return np.asarray(sum(terms), dtype=np.float64)

    def covariance(self, one: Polynomial, other: Polynomial) -> NDArray[np.float64]:
        """The covariance of the noise of two totals."""
        terms = [
            a * b * self._covariance[self._place[i], self._place[j]] for i, a in one.items() for j, b in other.items()
        ]
        return np.asarray(sum(terms), dtype=np.float64)

    def mean_of(self, polynomial: Polynomial) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The mean of a polynomial over records, and the standard error that noise gives it."""
        error = np.sqrt(self.covariance(polynomial, polynomial)) / self.divisor
        return self.total(polynomial) / self.divisor, error

    def unit(self, axis: int, power: int = 1) -> Exponent:
        """The exponent of a power of one of the columns."""
        return tuple(power if place == axis else 0 for place in range(len(self._zero)))

    def centred(self, axis: int) -> Polynomial:
        """The polynomial x − m, with m the noisy mean of a column."""
        mean = np.clip(self.total({self.unit(axis): 1.0}) / self.divisor, -1.0, 1.0)
        return {self.unit(axis): 1.0, self._zero: -mean}

    @property
    def one(self) -> Polynomial:
        """The polynomial 1."""
        return {self._zero: 1.0}


def times(one: Polynomial, other: Polynomial) -> dict[Exponent, NDArray[np.float64]]:
    """The product of two polynomials."""
    made: dict[Exponent, NDArray[np.float64]] = {}
    for left, a in one.items():
        for right, b in other.items():
            exponent = tuple(i + j for i, j in zip(left, right, strict=True))
            made[exponent] = np.asarray(made.get(exponent, 0.0) + np.asarray(a) * b)
    return made


def plus(
    one: Polynomial, other: Polynomial, factor: NDArray[np.float64] | float
) -> dict[Exponent, NDArray[np.float64]]:
    """One polynomial and a multiple of another."""
    made = {exponent: np.asarray(value, dtype=np.float64) for exponent, value in one.items()}
    for exponent, value in other.items():
        made[exponent] = np.asarray(made.get(exponent, 0.0) + factor * np.asarray(value))
    return made


def mean(sums: PowerSums) -> Intervals:
    """The mean of a scaled column."""
    first: Polynomial = {sums.unit(0): 1.0}
    variance = _noise_of_ratio(sums, first)
    if sums.noise.has_spread:
        spread = sums.squared_weights * _variance_above(sums)
        variance = variance.wider(spread)
    return fieller(sums.total(first), sums.count, variance, sums.noise.z, (-1.0, 1.0))


def variance(sums: PowerSums) -> Intervals:
    """The variance of a scaled column."""
    centred = sums.centred(0)
    square = times(centred, centred)
    of_mean = sums.covariance(centred, centred) + sums.squared_weights * _variance_above(sums)
    above = _centred_total(sums, 0, 0)
    noise = _noise_of_ratio(sums, square)
    more = 2.0 * (of_mean / sums.divisor) ** 2
    if sums.noise.has_spread:
        more = more + sums.squared_weights * _spread_of_squares(sums)
    return fieller(above, sums.count, noise.wider(more), sums.noise.z, (0.0, 1.0))


def correlation(sums: PowerSums) -> Intervals:
    """The correlation of two columns."""
    first, second, both = (_centred_total(sums, i, j) / sums.divisor for i, j in ((0, 0), (1, 1), (0, 1)))
    usable = (sums.count > LEAST_SIGNAL * np.sqrt(sums.covariance(sums.one, sums.one))) & (sums.count > 0.0)
    for place, found in ((0, first), (1, second)):
        square = times(sums.centred(place), sums.centred(place))
        usable &= found > LEAST_SIGNAL * sums.mean_of(square)[1]
    first, second = (np.where(usable, each, 1.0) for each in (first, second))
    value = np.clip(both / np.sqrt(first * second), -0.9999, 0.9999)
    error = np.sqrt(_variance_of_correlation(sums, value, first, second)) / sums.divisor
    width = sums.noise.z * error / (1.0 - value**2)
    low, high = np.tanh(np.arctanh(value) - width), np.tanh(np.arctanh(value) + width)
    return Intervals(
        np.where(usable, value, 0.0),
        np.where(usable, low, -1.0),
        np.where(usable, high, 1.0),
        np.where(usable, error, 1),
    )


def _noise_of_ratio(sums: PowerSums, above: Polynomial) -> Quadratic:
    """The variance that noise gives to above − θ·X_0."""
    return Quadratic(
        sums.covariance(above, above), -2.0 * sums.covariance(above, sums.one), sums.covariance(sums.one, sums.one)
    )


def _centred_total(sums: PowerSums, one: int, other: int) -> NDArray[np.float64]:
    """Σ(x − m_x)(y − m_y), without what the noise of the means takes off it on average."""
    first, second = sums.centred(one), sums.centred(other)
    return sums.total(times(first, second)) + sums.covariance(first, second) / sums.divisor


def _variance_above(sums: PowerSums) -> NDArray[np.float64]:
    """The variance of a column, at one standard error above its estimate; at most what its mean and range allow."""
    centred = sums.centred(0)
    if sums.degree == 1:
        return np.maximum(1.0 - np.asarray(centred[sums.unit(0, 0)]) ** 2, 0.0)
    found, error = sums.mean_of(times(centred, centred))
    return np.clip(found + error, 0.0, 1.0 - np.asarray(centred[sums.unit(0, 0)]) ** 2)


def _spread_of_squares(sums: PowerSums) -> NDArray[np.float64]:
    """The variance of (x − m)², at one standard error above its estimate; at most what the range allows."""
    centred = sums.centred(0)
    square = times(centred, centred)
    above = _variance_above(sums)
    most = above * ((1.0 + np.abs(np.asarray(centred[sums.unit(0, 0)]))) ** 2 - above)
    if sums.degree < 4:
        return np.asarray(np.maximum(most, 0.0))
    fourth, error = sums.mean_of(times(square, square))
    found = fourth + error - np.maximum(sums.mean_of(square)[0], 0.0) ** 2
    return np.asarray(np.clip(found, 0.0, np.maximum(most, 0.0)))


def _variance_of_correlation(
    sums: PowerSums, value: NDArray[np.float64], first: NDArray[np.float64], second: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The variance of Σψ, ψ being the influence of a record on the correlation."""
    x, y = sums.centred(0), sums.centred(1)
    product = {exponent: each / np.sqrt(first * second) for exponent, each in times(x, y).items()}
    influence = plus(plus(product, times(x, x), -value / (2.0 * first)), times(y, y), -value / (2.0 * second))
    noise = sums.covariance(influence, influence)
    if not sums.noise.has_spread:
        return noise
    found, error = sums.mean_of(times(influence, influence))
    normal = (1.0 - value**2) ** 2
    return noise + sums.squared_weights * np.maximum(found + error, normal)
