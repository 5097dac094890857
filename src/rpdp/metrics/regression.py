"""Metrics of numbers, and of the order in which events happen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

_PAIRS_AT_ONCE = 1 << 22


def mean_absolute_error(actual: Numbers, predicted: Numbers) -> float:
    """The mean distance between prediction and truth."""
    return float(np.abs(actual - predicted).mean())


def root_mean_squared_error(actual: Numbers, predicted: Numbers) -> float:
    """The root of the mean squared distance."""
    return float(np.sqrt(((actual - predicted) ** 2).mean()))


def r_squared(actual: Numbers, predicted: Numbers) -> float | None:
    """The share of the variance that is explained, mean over the numbers of a record; None if a truth never varies."""
    around = ((actual - actual.mean(axis=0)) ** 2).sum(axis=0)
    if (around == 0.0).any():
        return None
    return float((1.0 - ((actual - predicted) ** 2).sum(axis=0) / around).mean())


def concordance(time: Numbers, event: NDArray[np.bool_], risk: Numbers) -> float | None:
    """Harrell's C: of the pairs in which it is known who came first, the share in which that one had the larger risk.

    A pair counts if the event of the earlier one was seen; a record that was censored at the time of an event
    outlived it. Equal risks count one half.
    """
    right, pairs = 0.0, 0
    rows = np.flatnonzero(event)
    size = max(1, _PAIRS_AT_ONCE // max(1, time.size))
    for start in range(0, rows.size, size):
        first = rows[start : start + size, None]
        later = (time > time[first]) | ((time == time[first]) & ~event)
        right += float(((risk < risk[first]) & later).sum()) + 0.5 * float(((risk == risk[first]) & later).sum())
        pairs += int(later.sum())
    return right / pairs if pairs else None
