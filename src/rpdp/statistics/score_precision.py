"""Average precision from noisy counts, within bounds that hold whatever the scores look like.

It depends most on the few records with the highest scores, where noise is as large as the counts, so a linearised or
simulated interval is wrong there by more than its length. Instead, all counts "from this score on" are bounded at once,
for both classes, with the noise of their largest deviation; average precision is then bounded over all curves inside.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from rpdp.statistics.score_intervals import MetricInterval

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.statistics.score_counts import NoisyCounts

    Numbers = NDArray[np.float64]

_DRAWS = 4000
"""Simulated noises for the size of the largest deviation. The seed is fixed: equal counts get equal intervals."""

_TINY = 1e-12


def average_precision(negatives: NoisyCounts, positives: NoisyCounts, level: float) -> MetricInterval:
    """Precision averaged over the recalls of class 1; counts by bin, lowest scores first."""
    each = (1.0 + level) / 2.0  # half of what may go wrong is for each class
    true, false = _band(positives, each), _band(negatives, each)
    found = _likely(negatives.likely, positives.likely)
    if true[0][0] <= 0.0:
        return MetricInterval(found, 0.0, 1.0)
    low, high = _lowest(true[0], float(true[1][0]), false[1]), _highest(true, false[0])
    return MetricInterval(None if found is None else min(max(found, low), high), low, high)


def _band(counts: NoisyCounts, level: float) -> tuple[Numbers, Numbers]:
    """Bounds of the number of records from each bin on, that hold for all bins together."""
    adds = np.triu(np.ones((counts.values.size, counts.values.size)))
    noise = np.linalg.norm(adds @ counts.root, axis=1)
    weights = counts.spread * (adds @ counts.likely)
    found, reach = adds @ counts.values, _largest(_key(adds @ counts.root), level) * np.sqrt(noise**2 + weights)
    low = np.maximum.accumulate((found - reach)[::-1])[::-1]
    high = np.minimum.accumulate(found + reach)
    return np.maximum(low, 0.0), np.maximum(high, 0.0)


def _key(root: Numbers) -> tuple[int, bytes]:
    norms = np.maximum(np.linalg.norm(root, axis=1, keepdims=True), _TINY)
    return len(root), np.ascontiguousarray(np.round(root / norms, 9)).tobytes()


@lru_cache(maxsize=8)
def _largest(key: tuple[int, bytes], level: float) -> float:
    """The quantile of the largest of several standard normal numbers with the correlations of their root's rows."""
    size, root = key
    rows = np.frombuffer(root).reshape(size, size)
    draws = np.random.default_rng(0).standard_normal((_DRAWS, size))
    return float(np.quantile(np.abs(draws @ rows.T).max(axis=1), level))


def _highest(true: tuple[Numbers, Numbers], false: Numbers) -> float:
    """The largest average precision if the counts of class 1 are within bounds and those of class 0 at least `false`.

    A record of class 1 in bin i has a precision of at most T(i) / (T(i) + F(i + 1)). Made to rise with the score, that
    is largest if records are as high as they can be, and as few.
    """
    total = true[0][0]
    precision = np.maximum.accumulate(true[1] / np.maximum(true[1] + np.append(false[1:], 0.0), _TINY))
    reached = np.minimum(np.append(true[1], 0.0), total)
    return float(min(-np.diff(reached) @ precision / total, 1.0))


def _lowest(true: Numbers, most: float, false: Numbers) -> float:
    """The smallest average precision if at least `true`, at most `most` in all, and at most `false` are in the bins.

    The x-th record of class 1 has a precision of at least x / (x + F(i)) in bin i; the sum is at least the integral.
    Records beyond those that are surely there may all be in the lowest bin.
    """
    total, ends = true[0], np.append(true, 0.0)
    parts = (ends[:-1] - ends[1:]) - false * np.log((ends[:-1] + false + _TINY) / (ends[1:] + false + _TINY))
    sure = parts.sum() / total
    last = total / (total + false[0])
    part = total / max(most, total)
    return float(max(min(sure, part * sure + (1.0 - part) * last), 0.0))


def _likely(negatives: Numbers, positives: Numbers) -> float | None:
    """Average precision of counts that could be true; records in a bin are as if they had one score."""
    found, wrong = np.cumsum(positives[::-1]), np.cumsum(negatives[::-1])
    if found[-1] <= 0.0:
        return None
    return float(positives[::-1] @ (found / np.maximum(found + wrong, _TINY)) / found[-1])
