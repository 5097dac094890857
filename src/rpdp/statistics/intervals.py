"""Intervals from sums whose noise is known: exact for sums, Fieller's for ratios, test inversion for quantiles.

All functions work on many releases at once: the last axis is that of the outputs.

| interval | of | how it holds |
|---|---|---|
| exact | a sum | value ± z·deviation, the noise being Gaussian with a public deviation |
| Fieller | a ratio A/B | every θ for which A − θB is within z of 0; exact for Gaussian noise, at any B |
| inversion | a quantile | every bin that no test of the noisy cumulated counts rules out |

A sampling spread is part of the variance that decides "within z". Fieller's set may be unbounded, if B is not clearly
above 0; then the interval is the whole public range.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rpdp.statistics.estimate import Intervals

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Noise:
    """What is known of the error of released cells.

    Attributes:
        deviation: The standard deviation of the noise of each cell.
        z: The quantile of the intervals.
        has_spread: Whether personal weights draw a sample from all records, which has an error of its own. Then the
            sum of squared weights, which is private, is replaced by the sum of the weights: it is at least as large,
            since no weight is above 1.
    """

    deviation: float
    z: float
    has_spread: bool

    def squared_weights(self, weights: NDArray[np.float64], error: NDArray[np.float64]) -> NDArray[np.float64]:
        """An upper value for Σw², from a noisy Σw and its standard error; 0 if there is no sampling spread."""
        return np.maximum(weights, 0.0) + error if self.has_spread else np.zeros_like(weights)


class Quadratic(NamedTuple):
    """A variance of A − θB as a function of θ: constant + linear·θ + square·θ²."""

    constant: NDArray[np.float64]
    linear: NDArray[np.float64]
    square: NDArray[np.float64]

    def at(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """The variance at θ, not below 0."""
        return np.maximum(self.constant + theta * (self.linear + theta * self.square), 0.0)

    def wider(self, more: NDArray[np.float64]) -> Quadratic:
        """The variance with a constant added."""
        return Quadratic(self.constant + more, self.linear, self.square)


def exact(value: NDArray[np.float64], deviation: NDArray[np.float64], z: float) -> Intervals:
    """The interval of a sum."""
    return Intervals(value, value - z * deviation, value + z * deviation, np.broadcast_to(deviation, value.shape))


def fieller(
    above: NDArray[np.float64],
    below: NDArray[np.float64],
    variance: Quadratic,
    z: float,
    limits: tuple[float, float],
) -> Intervals:
    """The interval of above/below within public limits: θ with (above − θ·below)² ≤ z²·variance(θ)."""
    square = below**2 - z**2 * variance.square
    linear = -2.0 * above * below - z**2 * variance.linear
    constant = above**2 - z**2 * variance.constant
    root = np.sqrt(np.maximum(linear**2 - 4.0 * square * constant, 0.0))
    usable = (square > 0.0) & (below > 0.0)
    divisor = np.where(usable, 2.0 * square, 1.0)
    value = np.clip(np.where(below > 0.0, above / np.where(below > 0.0, below, 1.0), np.mean(limits)), *limits)
    low = np.where(usable, np.clip((-linear - root) / divisor, *limits), limits[0])
    high = np.where(usable, np.clip((-linear + root) / divisor, *limits), limits[1])
    error = np.where(usable, np.sqrt(variance.at(value)) / np.where(usable, below, 1.0), limits[1] - limits[0])
    return Intervals(value, np.minimum(low, value), np.maximum(high, value), error)


def scaled(bounds: Intervals, factor: float, shift: float = 0.0) -> Intervals:
    """The same in other units: factor · value + shift."""
    value, low, high = (shift + factor * each for each in bounds[:3])
    return Intervals(value, low, high, factor * bounds.error)


def square_root(bounds: Intervals) -> Intervals:
    """The square root of values that are not negative."""
    value, low, high = (np.sqrt(np.maximum(each, 0.0)) for each in bounds[:3])
    error = np.where(value > 0.0, bounds.error / np.where(value > 0.0, 2.0 * value, 1.0), np.sqrt(bounds.error))
    return Intervals(value, low, high, error)


def quantile(
    below: NDArray[np.float64],
    root: NDArray[np.float64],
    share: float,
    edges: NDArray[np.float64],
    noise: Noise,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Value and interval of a quantile from noisy counts of the records below the upper edge of each bin (last axis).

    D_k, the records below edge k less the share of all, rises with k and changes its sign in the bin of the quantile.
    A bin is ruled out if D is clearly above 0 at its left edge, or clearly below 0 at its right edge. Only two of these
    tests can rule out the right bin, each with half the error rate, so the interval needs no allowance for many tests.

    Args:
        below: The counts, with the noise `root` @ white noise of the noise's deviation.
        root: That matrix.
        share: Which quantile.
        edges: The edges of the bins.
        noise: What is known of the error.
    """
    bins = below.shape[-1]
    total = below[..., -1:]
    excess = below - share * total
    variance = noise.deviation**2 * np.square(root - share * root[-1]).sum(axis=1)
    error = noise.deviation * np.linalg.norm(root[-1])
    spread = noise.squared_weights(total, np.asarray(error)) * share * (1.0 - share)
    width = noise.z * np.sqrt(variance + spread)
    start, end = np.zeros_like(total, dtype=np.bool_), np.ones_like(total, dtype=np.bool_)
    too_high = np.concatenate([start, excess[..., :-1] > width[..., :-1]], axis=-1)
    too_low = np.concatenate([excess[..., :-1] < -width[..., :-1], ~end], axis=-1)
    value = _crossing(below, share * total[..., 0], edges)
    kept = ~(too_high | too_low)
    found = np.clip(np.searchsorted(edges, value, side="right") - 1, 0, bins - 1)
    np.put_along_axis(kept, found[..., None], True, axis=-1)
    first, last = kept.argmax(axis=-1), bins - 1 - kept[..., ::-1].argmax(axis=-1)
    return value, edges[first], edges[last + 1]


def _crossing(
    below: NDArray[np.float64], wanted: NDArray[np.float64], edges: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Where the cumulated counts, made monotone, reach what is wanted; linear within a bin."""
    upper = np.maximum.accumulate(below, axis=-1)
    lower = np.minimum.accumulate(below[..., ::-1], axis=-1)[..., ::-1]
    rising = np.concatenate([np.zeros((*below.shape[:-1], 1)), np.maximum((upper + lower) / 2, 0.0)], axis=-1)
    place = np.clip((rising < wanted[..., None]).sum(axis=-1) - 1, 0, below.shape[-1] - 1)
    left = np.take_along_axis(rising, place[..., None], axis=-1)[..., 0]
    right = np.take_along_axis(rising, place[..., None] + 1, axis=-1)[..., 0]
    part = np.clip((wanted - left) / np.where(right > left, right - left, 1.0), 0.0, 1.0)
    return np.asarray(edges[place] + part * (edges[place + 1] - edges[place]), dtype=np.float64)
