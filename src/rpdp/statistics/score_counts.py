"""Histograms of scores as running counts: noise that hardly grows with the number of bins.

AUC, ROC curves and precision are made from counts of all records above a score. Adding up the bins of an ordinary noisy
histogram adds up their noises: over 256 bins, 16 times that of one bin. So a record does not go into one bin alone. It
contributes the column of its bin in A^(1/2), the square root of the matrix A that adds up (Henzinger, Upadhyay and
Upadhyay, arXiv 2211.05006): falling parts in its own bin and in all bins above, of norm 1 together. The silo's noise is
white; multiplying by the inverse of A^(1/2) gives the histogram back, with noise that cancels where bins are added up.

| bins | noise of "all records", in one cell's | as an ordinary histogram |
|---|---|---|
| 16 | 1.9 | 4 |
| 256 | 2.8 | 16 |

The bins of class 0 are counted from the highest score down. The ends at which noise is smallest are then those where
each class is rare if a model is any good, and the noise of its AUC is a fifth smaller.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import block_diag, toeplitz
from scipy.optimize import isotonic_regression

from rpdp.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

BELOW_ONE = 1.0 - 1e-12
"""The norm of a record's part: its rounding in float64 must not take it above 1."""


@lru_cache(maxsize=8)
def contribution(bins: int) -> Numbers:
    """What a record adds to its own bin and to the bins after it, of norm 1 for the first bin and less for others."""
    parts = np.cumprod(np.concatenate([[1.0], (2.0 * np.arange(1, bins) - 1.0) / (2.0 * np.arange(1, bins))]))
    return np.asarray(parts * (BELOW_ONE / np.linalg.norm(parts)))


@lru_cache(maxsize=8)
def decoding(bins: int) -> Numbers:
    """The matrix that turns sums of contributions into counts by bin."""
    steps = np.arange(1, bins)
    inverse = np.cumprod(np.concatenate([[1.0], (2.0 * steps - 3.0) / (2.0 * steps)]))
    return np.asarray(toeplitz(inverse / contribution(bins)[0], np.zeros(bins)))


@lru_cache(maxsize=8)
def adding_up(bins: int) -> Numbers:
    """The matrix that turns sums of contributions into counts of this bin and all before it."""
    return np.asarray(np.cumsum(decoding(bins), axis=0))


@dataclass(frozen=True, eq=False)
class NoisyCounts:
    """Counts with Gaussian noise: `root @ white noise` of mean 0 and deviation 1.

    Attributes:
        values: The noisy counts. They may be negative.
        root: A square root of the noise's covariance.
        spread: κ: by how much the records' weights differ, Var(w)/E(w). 0 if all that take part count fully.
    """

    values: Numbers
    root: Numbers
    spread: float = 0.0

    def __post_init__(self) -> None:
        if self.values.ndim != 1 or self.root.shape != (self.values.size, self.values.size):
            raise InputError(f"{self.values.shape} counts do not fit noise of shape {self.root.shape}")

    @cached_property
    def likely(self) -> Numbers:
        """Counts that could be true: not negative, with running sums as near as possible to the noisy ones."""
        running = isotonic_regression(np.maximum(np.cumsum(self.values), 0.0)).x
        return np.asarray(np.diff(running, prepend=0.0))

    def covariance(self, left: Numbers, right: Numbers) -> float:
        """The covariance of two weighted sums of the counts, through noise and through records' weights."""
        noise = (left @ self.root) @ (right @ self.root)
        return float(noise + self.spread * (self.likely * left) @ right)

    def changed(self, matrix: Numbers) -> NoisyCounts:
        """Weighted sums of these counts, as counts. Their weights' spread is as before."""
        made = matrix @ self.root
        if made.shape[0] == made.shape[1]:
            return NoisyCounts(matrix @ self.values, made, self.spread)
        square = np.asarray(np.linalg.qr(made.T, mode="r")).T  # another root of the same covariance
        return NoisyCounts(matrix @ self.values, square, self.spread)

    @classmethod
    def plain(cls, values: Numbers, deviation: float, spread: float = 0.0) -> NoisyCounts:
        """Counts of which each has noise of its own."""
        return cls(values, deviation * np.eye(values.size), spread)

    @classmethod
    def running(cls, cells: Numbers, deviation: float, spread: float = 0.0, *, falling: bool = False) -> NoisyCounts:
        """Counts by bin from sums of contributions; `falling` if these were counted from the last bin down."""
        matrix = decoding(cells.size)[:: -1 if falling else 1]
        return cls(matrix @ cells, deviation * matrix, spread)

    @classmethod
    def beside(cls, first: NoisyCounts, second: NoisyCounts) -> NoisyCounts:
        """Two sets of counts with independent noise as one."""
        values = np.concatenate([first.values, second.values])
        return cls(values, block_diag(first.root, second.root), first.spread)
