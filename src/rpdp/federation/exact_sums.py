"""Exact sums of weighted cells, and their release with noise: the Gaussian mechanism behind statistics and evaluation.

A float sum would not do. Adding a record changes how all later additions round, and over millions of records that is
more than a small weight times L. So contributions are whole multiples of a public unit, and they are added as integers:
adding or removing a record moves the sum by exactly its own contribution, in whatever order records come.

| step | why the record's influence stays within w·L |
|---|---|
| a part that is not finite, not in the vector, or longer than 1 | the whole record counts as zero |
| w·x is rounded toward zero to units of 2⁻³² | no number becomes larger |
| contributions are added as 64-bit integers | exact: at most 2³⁰ records of at most 1 per cell |
| noise is rounded to units and added as integers | the same as rounding (exact sum + noise): post-processing |
| the noisy sum is rounded to the public grid (privacy.md, rule 15) | post-processing |

What float64 does to a record's own numbers, before they are units, is covered by noise that is larger than s·L by one
part in 2²⁹. The noise itself is that of `rpdp.sampling.gaussian`, whose missing tail is too small to charge to δ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from rpdp.errors import InputError
from rpdp.federation.cells import NO_CELL
from rpdp.training.noise_addition import grid_spacing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.federation.cells import Cells
    from rpdp.planning.request import Request
    from rpdp.sampling import Randomness

Contributions: TypeAlias = "tuple[NDArray[np.int64], NDArray[np.int64]]"
"""Places in the vector, and units to add there."""

UNIT = 2.0**-32
"""What contributions are multiples of."""

MOST_RECORDS = 1 << 30
LARGEST_NOISE = 2.0**26
"""The largest s·L: with it, noise (at most 13 deviations) and sum together fit into 64 bits."""

_LONGEST_PART = 1.0 + 2.0**-30
"""Unit vectors pass, however float64 rounded them."""

_ENLARGED = 1.0 + 2.0**-29
"""Covers `_LONGEST_PART`, and the rounding of norms and weighted numbers."""

_NOTHING: NDArray[np.int64] = np.zeros(0, dtype=np.int64)


def require_exact(request: Request, noise_multiplier: float, records: int) -> None:
    """Refuse sizes at which 64 bits are too few."""
    if noise_multiplier * request.norm > LARGEST_NOISE:
        raise InputError(
            f"noise_multiplier={noise_multiplier:g} times the norm {request.norm:g} of the request is above "
            f"{LARGEST_NOISE:g}, the most that sums can carry; ask for fewer measures or less noise"
        )
    if records > MOST_RECORDS:
        raise InputError(f"{records:,} records are more than {MOST_RECORDS:,}, the most that sums can carry")


class ExactSums:
    """The sum of w_j · x_j over records, which are added in any order and in any parts."""

    def __init__(self, request: Request) -> None:
        self._total = np.zeros(request.size, dtype=np.int64)
        self._measure = np.repeat(np.arange(len(request.measures)), [one.size for one in request.measures])

    def add(self, contributions: Contributions) -> None:
        """Add what `contributions` returned for some records."""
        np.add.at(self._total, *contributions)

    def contributions(self, cells: Cells, weights: NDArray[np.float64]) -> Contributions:
        """Return what some records contribute with these weights. A record in which anything is wrong adds zero."""
        if cells.value.size == 0:
            return _NOTHING, _NOTHING
        with np.errstate(all="ignore"):  # numbers of a record may be anything; nothing about them may show
            rows, places, values, sound = self._joined(cells)
            # 2⁻³² is a power of two: only the product with the weight rounds, and by less than is covered.
            units = np.trunc(values * weights[rows] / UNIT)
        return places, np.where(sound[rows], units, 0.0).astype(np.int64)

    def _joined(
        self, cells: Cells
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.bool_]]:
        """Row, place and value of every cell, entries of the same cell added up; and which rows are sound."""
        count, width = cells.index.shape
        used = cells.index != NO_CELL
        sound = (~used | ((cells.index >= 0) & (cells.index < len(self._total)))).all(axis=1)
        index = np.where(used & sound[:, None], cells.index, 0)
        value = np.where(used, cells.value, 0.0)
        order = np.argsort(index, axis=1, kind="stable")
        places, values = (np.take_along_axis(table, order, axis=1).ravel() for table in (index, value))
        rows = np.repeat(np.arange(count), width)
        rows, places, values = _added_up(rows, places, values)
        norm_rows, _, squares = _added_up(rows, self._measure[places], values * values)
        sound[norm_rows[~(squares <= _LONGEST_PART**2)]] = False  # written this way round for NaN
        return rows, places, values, sound

    def release(self, noise_multiplier: float, norm: float, randomness: Randomness) -> NDArray[np.float64]:
        """Return the sum with noise of deviation s·L on every cell, on the public grid."""
        std = noise_multiplier * norm * _ENLARGED
        noise = np.empty(len(self._total))
        randomness.fill_gaussian(noise, std)
        noise /= UNIT
        noisy = self._total + np.rint(noise, out=noise).astype(np.int64)
        grid = grid_spacing(std)
        released: NDArray[np.float64] = np.rint(noisy * (UNIT / grid)) * grid + 0.0
        return released


def _added_up(
    rows: NDArray[np.int64], groups: NDArray[np.int64], values: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Add up neighbours of the same row and group; return row, group and sum of each."""
    first = np.ones(len(rows), dtype=np.bool_)
    first[1:] = (rows[1:] != rows[:-1]) | (groups[1:] != groups[:-1])
    starts = np.flatnonzero(first)
    return rows[starts], groups[starts], np.add.reduceat(values, starts)
