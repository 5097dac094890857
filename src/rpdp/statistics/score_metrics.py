"""Metrics from noisy counts, each with its interval: of two classes by bins of the score, of classes, and of errors.

Where two scores are in the same bin, nobody knows which is larger. The lower end of an interval counts all such pairs
as wrong and the upper end as right, so bins never make an interval too narrow; its value counts half of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rpdp.statistics.score_counts import NoisyCounts
from rpdp.statistics.score_intervals import MetricInterval, pair_ratio, ratio

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

_TINY = 1e-12


@dataclass(frozen=True, eq=False)
class ScoreCounts:
    """Noisy counts of two classes by bins of the score, lowest scores first. The noise of the classes is independent.

    Attributes:
        negatives: Of class 0.
        positives: Of class 1.
    """

    negatives: NoisyCounts
    positives: NoisyCounts

    @classmethod
    def of_cells(cls, cells: Numbers, deviation: float, spread: float = 0.0) -> ScoreCounts:
        """The counts from the sums that were released, in a measure `scores` without groups."""
        low, high = np.split(cells, 2)
        return cls(
            NoisyCounts.running(low, deviation, spread, falling=True), NoisyCounts.running(high, deviation, spread)
        )

    @property
    def bins(self) -> int:
        """The number of bins."""
        return self.positives.values.size

    def together(self) -> NoisyCounts:
        """Class 0, then class 1, as one set of counts."""
        return NoisyCounts.beside(self.negatives, self.positives)

    def confusion(self, threshold: int) -> NoisyCounts:
        """True negatives, false positives, false negatives, true positives; bins from `threshold` on are class 1."""
        above = np.arange(self.bins) >= threshold
        rows = np.zeros((4, 2 * self.bins))
        for row, (actual, predicted) in enumerate(((0, ~above), (0, above), (1, ~above), (1, above))):
            rows[row, actual * self.bins : (actual + 1) * self.bins] = predicted
        return self.together().changed(rows)


def accuracy(confusion: NoisyCounts, level: float) -> MetricInterval:
    """Of all records: the share in the diagonal of a table of true × predicted class."""
    classes = math.isqrt(confusion.values.size)
    return ratio(confusion, np.eye(classes).ravel(), np.ones(classes**2), level)


def balanced_accuracy(confusion: NoisyCounts, level: float) -> MetricInterval:
    """The mean over the classes of the share predicted correctly, each with an interval of its own.

    The classes' intervals are combined by their lengths, as if they were Gaussian; what a class does not rule out, the
    mean does not rule out either.
    """
    classes = math.isqrt(confusion.values.size)
    recalls = [ratio(confusion, *_recall(classes, one), level) for one in range(classes)]
    known = [one.value for one in recalls if one.value is not None]
    if len(known) < classes:
        return MetricInterval(None, 0.0, 1.0)
    value = sum(known) / classes
    lower = math.hypot(*(one.value - one.low for one in recalls if one.value is not None)) / classes
    upper = math.hypot(*(one.high - one.value for one in recalls if one.value is not None)) / classes
    return MetricInterval(value, max(value - lower, 0.0), min(value + upper, 1.0))


def _recall(classes: int, actual: int) -> tuple[Numbers, Numbers]:
    own = (np.arange(classes) == actual).astype(float)
    return np.kron(own, own), np.kron(own, np.ones(classes))


def f1(confusion: NoisyCounts, level: float) -> MetricInterval:
    """F1 of class 1 from a table of two classes."""
    return ratio(confusion, np.array([0.0, 0.0, 0.0, 2.0]), np.array([0.0, 1.0, 1.0, 2.0]), level)


def auc(counts: ScoreCounts, level: float) -> MetricInterval:
    """The share of pairs of both classes that scores order correctly."""
    above = np.tril(np.ones((counts.bins, counts.bins)), -1)
    same = np.eye(counts.bins)
    low, middle, high = (
        pair_ratio(counts.positives, counts.negatives, above + part * same, level) for part in (0.0, 0.5, 1.0)
    )
    return MetricInterval(middle.value, low.low, high.high)


@dataclass(frozen=True)
class CurvePoint:
    """A point of a curve with its interval.

    Attributes:
        at: Where the point is: a score as a probability, from `at` on or around it.
        x: ROC: the share of class 0 from that score on. Calibration: the mean score.
        y: ROC: the share of class 1 from that score on. Calibration: the share of class 1 that was seen.
    """

    at: float
    x: MetricInterval
    y: MetricInterval


def roc_curve(counts: ScoreCounts, edges: Numbers, level: float) -> tuple[CurvePoint, ...]:
    """Points of the ROC curve, at every score where the counts say that a twentieth of either class is passed."""
    shares = [np.cumsum(one.likely) / max(one.likely.sum(), _TINY) for one in (counts.negatives, counts.positives)]
    steps = np.floor(20.0 * np.stack(shares)).sum(axis=0)
    thresholds = np.flatnonzero(np.diff(steps) > 0) + 1
    ones = np.ones(counts.bins)
    points = []
    for threshold in thresholds:
        above = (np.arange(counts.bins) >= threshold).astype(float)
        false, true = (ratio(one, above, ones, level) for one in (counts.negatives, counts.positives))
        points.append(CurvePoint(float(_probability(edges[threshold - 1])), false, true))
    return tuple(points)


def calibration_curve(counts: ScoreCounts, edges: Numbers, level: float, groups: int = 10) -> tuple[CurvePoint, ...]:
    """For groups of about equally many records by score: the share of class 1 that was seen, against the stated one."""
    total = counts.negatives.likely + counts.positives.likely
    group = np.minimum(groups * np.cumsum(total) / max(total.sum(), _TINY) * (1.0 - 1e-12), groups - 1).astype(int)
    limits = np.concatenate([edges[:1], edges, edges[-1:]])
    together = counts.together()
    points = []
    for number in np.unique(group):
        inside = (group == number).astype(float)
        seen = ratio(together, np.concatenate([0.0 * inside, inside]), np.concatenate([inside, inside]), level)
        first, last = np.flatnonzero(inside)[[0, -1]]
        low, high = _probability(limits[first]), _probability(limits[last + 1])
        middle = _probability(0.5 * (limits[:-1] + limits[1:]))
        mean = float((total * inside) @ middle / max((total * inside).sum(), _TINY))
        points.append(CurvePoint(mean, MetricInterval(mean, low, high), seen))
    return tuple(points)


def _probability(logit: Numbers | float) -> Any:
    return 1.0 / (1.0 + np.exp(-logit))


def mean_error(sums: Numbers, deviation: float, bound: float, level: float, spread: float = 0.0) -> MetricInterval:
    """The mean of errors up to `bound` from the noisy count and the noisy sum of error/bound."""
    rows = np.array([[0.0, 1.0], [1.0, -1.0]])  # the errors' part of the count, and the rest of it
    parts = NoisyCounts(rows @ sums, deviation * rows, spread)
    found = ratio(parts, np.array([1.0, 0.0]), np.ones(2), level)
    return scaled(found, lambda share: bound * share)


def scaled(interval: MetricInterval, rising: Callable[[float], float]) -> MetricInterval:
    """The same interval on another scale."""
    return MetricInterval(
        None if interval.value is None else rising(interval.value), rising(interval.low), rising(interval.high)
    )
