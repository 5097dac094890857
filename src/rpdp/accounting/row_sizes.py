"""Array sizes that make a price a function of its own q, whoever else is priced (privacy.md, section 7).

Sums and transforms round differently with the length of an array. If a batch of rows shared the length of its longest
row, a record's price, and with it its sampling probability, would depend on the budgets of other people. So the size of
every array follows from its own row alone, rounded up to a short list, and rows are computed together only while their
sizes agree. A row then passes through the same operations in the same order in any company, to the last bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def public_sizes(points: NDArray[np.int64]) -> NDArray[np.int64]:
    """Array sizes that hold so many points: the next of 4, 5, 6 or 7 times a power of two, at least 16.

    >>> public_sizes(np.array([3, 17, 1000, 1100])).tolist()
    [16, 20, 1024, 1280]
    """
    unit = np.exp2(np.floor(np.log2(np.maximum(points, 16))) - 2.0).astype(np.int64)
    return np.asarray(-(-np.maximum(points, 16) // unit) * unit)


def equal_rows(sizes: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """The places of the rows of each size."""
    return [np.flatnonzero(sizes == size) for size in np.unique(sizes)]
