"""The privacy loss of one local step on a grid, for the Poisson-sampled Gaussian in both directions.

A step shows N(0, σ²) without the record and (1−q) N(0, σ²) + q N(1, σ²) with it. At the point x the log-ratio is
ℓ(x) = log(1 + q (e^y − 1)), y = (2x − 1) / (2σ²). When the record is *removed*, the loss is ℓ under the mixture. When
it is *added*, the loss is −ℓ under the Gaussian.

Upper bounds need a pessimistic grid. It comes from "connect the dots" (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi
2022, arXiv 2207.04380): the mass in a grid cell moves to the two ends of the cell such that both measures of the cell
are preserved, and the result dominates the true pair. The masses are integrals over cells, computed by Gauss–Legendre
rules without subtracting nearly equal numbers. That is what makes a fine grid and a tiny q possible: differences of
distribution functions lose all digits below q ≈ 1e-7.

The same integrals over cells around grid points give the exact distribution of the *rounded* loss under both measures.
This is a test statistic, from which `pld` derives lower bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from rpdp.accounting.row_sizes import public_sizes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.accounting._types import FloatArray

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(6)
_WIDEST_PANEL = 0.5
_LARGEST_DECAY = 1.3
"""Panels are at most half a σ wide, and so narrow that neither Gaussian changes by more than e^1.3 within one.

Six nodes then give fourteen digits of the mass of every cell, as far as the rounding of the exponent allows.
"""

_RELATIVE_ERROR = 1e-14
_ROUNDED_FROM = 8.0
"""Beyond this many standard deviations, rounding of the exponent, which grows with their square, may exceed that."""


@dataclass(frozen=True)
class LossMasses:
    """Masses on the loss grid (first + column) · spacing, one row per sampling probability."""

    masses: FloatArray
    first: NDArray[np.int64]
    spacing: FloatArray


@dataclass(frozen=True)
class StepCells:
    """Quadrature points of one step, each with its loss, its mass under both measures and its grid cell."""

    spacing: FloatArray
    loss: FloatArray
    with_record: FloatArray
    without_record: FloatArray
    cell: NDArray[np.int64]
    width: int
    """An upper limit for the number of grid points that carry mass, the same for all rows."""


def reach_for(lost: float) -> float:
    """How many standard deviations to keep so that at most `lost` of the mass lies beyond, on both sides together."""
    return float(-special.ndtri(max(lost, 1e-300) / 2.0))


def relative_error(noise_multiplier: float, lost: float) -> float:
    """The largest relative error of a mass of `step_cells`: quadrature, and rounding at the far end."""
    farthest = reach_for(lost) + 1.0 / noise_multiplier
    return _RELATIVE_ERROR * max(1.0, (farthest / _ROUNDED_FROM) ** 2)


def log_ratio(q: FloatArray, y: FloatArray) -> FloatArray:
    """Log(1 + q (e^y − 1)), the loss at y: accurate for tiny q, no overflow for q near 1 or huge |y|."""
    v = q * np.expm1(np.minimum(y, 700.0))
    near = np.abs(v) < 0.5
    if near.all():
        return np.log1p(v)
    with np.errstate(divide="ignore"):
        other = np.logaddexp(np.log1p(-q), np.log(q) + y)
    return np.where(near, np.log1p(np.clip(v, -0.5, 0.5)), other)


def cell_counts(q: FloatArray, noise_multiplier: float, spacing: FloatArray, lost: float) -> NDArray[np.int64]:
    """How many cells each row of `step_cells` needs at most, rounded up to `public_sizes`."""
    reach = reach_for(lost) * noise_multiplier
    low, high = (log_ratio(q, np.full(q.shape, (x - 0.5) / noise_multiplier**2)) for x in (-reach, 1.0 + reach))
    return public_sizes(np.ceil((high - low) / spacing).astype(np.int64) + 2)


def step_cells(q: FloatArray, noise_multiplier: float, spacing: FloatArray, lost: float, *, centred: bool) -> StepCells:
    """Quadrature points of one step for each q. Cells end at grid points, or halfway between them if `centred`.

    Rows of different `cell_counts` get arrays of the largest.
    """
    sigma = noise_multiplier
    cells = int(cell_counts(q, sigma, spacing, lost).max())
    reach = reach_for(lost) * sigma
    low, high = -reach, 1.0 + reach
    panel_edges = _panel_edges(sigma, reach)
    cell_edges = _cell_edges(q, sigma, spacing, (low, high), cells, offset=0.5 if centred else 0.0)
    edges = np.concatenate([np.broadcast_to(panel_edges, (q.size, panel_edges.size)), cell_edges], axis=1)
    edges.sort(axis=1)  # no panel may cross the end of a cell: every node then belongs to one cell for certain
    middle = 0.5 * (edges[:, 1:] + edges[:, :-1])
    half = 0.5 * np.diff(edges, axis=1)
    x = (middle[:, :, None] + half[:, :, None] * _NODES).reshape(q.size, -1)
    weight = (half[:, :, None] * _WEIGHTS).reshape(q.size, -1)
    loss = log_ratio(q[:, None], (x - 0.5) / sigma**2)
    without = weight * np.exp(-0.5 * (x / sigma) ** 2) / (sigma * np.sqrt(2.0 * np.pi))
    middle_loss = log_ratio(q[:, None], (middle - 0.5) / sigma**2) / spacing[:, None]
    cell = np.floor(middle_loss + (0.5 if centred else 0.0)).astype(np.int64)
    return StepCells(
        spacing=spacing,
        loss=loss,
        with_record=without * np.exp(loss),
        without_record=without,
        cell=np.repeat(cell, _NODES.size, axis=1),
        width=cells + 2,
    )


def _panel_edges(sigma: float, reach: float) -> FloatArray:
    """The ends of panels from −reach to 1 + reach, evenly spaced around the middle and closer together further out.

    At the distance r from the farther of the two centres, 0 and 1, a panel is _WIDEST_PANEL · σ wide up to the turn and
    _LARGEST_DECAY · σ² / r beyond; `number` is the integral of one over that width.
    """
    turn = _LARGEST_DECAY * sigma / _WIDEST_PANEL

    def number(r: float) -> float:
        return min(r, turn) / (_WIDEST_PANEL * sigma) + max(r**2 - turn**2, 0.0) / (2.0 * _LARGEST_DECAY * sigma**2)

    start, end, at_turn = number(0.5), number(1.0 + reach), number(turn)
    numbers = np.linspace(start, end, int(np.ceil(end - start)) + 1)
    beyond = np.sqrt(turn**2 + 2.0 * _LARGEST_DECAY * sigma**2 * np.maximum(numbers - at_turn, 0.0))
    distance = np.where(numbers <= at_turn, numbers * _WIDEST_PANEL * sigma, beyond) - 0.5
    return np.concatenate([0.5 - distance[:0:-1], 0.5 + distance])


def _cell_edges(
    q: FloatArray, sigma: float, spacing: FloatArray, ends: tuple[float, float], cells: int, offset: float
) -> FloatArray:
    """The points of the axis at which the loss crosses the ends of its cells, padded with the right end."""
    low = log_ratio(q, np.full(q.shape, (ends[0] - 0.5) / sigma**2)) / spacing
    first = np.floor(low + offset).astype(np.int64) + 1
    losses = (first[:, None] + np.arange(cells) - offset) * spacing[:, None]
    ratio = np.expm1(np.minimum(losses, 600.0)) / q[:, None]
    # Near a ratio of −1, log1p(ratio) loses its digits. There y = loss − log q + log(1 − (1 − q) e^−loss) is used.
    absent = (1.0 - q[:, None]) * np.exp(np.minimum(-losses, 700.0))
    low_y = losses - np.log(q[:, None]) + np.log1p(np.maximum(-absent, -1.0 + 1e-16))
    y = np.where(ratio > -0.5, np.log1p(np.maximum(ratio, -0.5)), low_y)
    return np.asarray(np.clip(sigma**2 * y + 0.5, *ends))


def pessimistic(cells: StepCells, *, removing: bool) -> LossMasses:
    """The loss of the step on its grid by connect-the-dots; it dominates the true loss.

    Every point passes its mass to the two ends of its cell. Both measures are preserved when the upper end gets the
    share (1 − e^(low − loss)) / (1 − e^(−spacing)).
    """
    spacing = cells.spacing[:, None]
    if removing:
        mass, loss, lower = cells.with_record, cells.loss, cells.cell
    else:
        mass, loss, lower = cells.without_record, -cells.loss, -cells.cell - 1
    upper_share = np.clip(np.expm1(lower * spacing - loss) / np.expm1(-spacing), 0.0, 1.0)
    upper = mass * upper_share
    first = lower.min(axis=1)
    column = lower - first[:, None]
    masses = _sum_by_column(column, mass - upper, cells.width) + _sum_by_column(column + 1, upper, cells.width)
    return LossMasses(masses, first, cells.spacing)


def rounded(cells: StepCells, *, removing: bool) -> tuple[LossMasses, LossMasses]:
    """The exact distribution of the rounded loss, under the measure it is drawn from and under the other one."""
    loss = cells.cell if removing else -cells.cell
    first = loss.min(axis=1)
    column, width = loss - first[:, None], cells.width
    own, other = cells.with_record, cells.without_record
    if not removing:
        own, other = other, own
    return (
        LossMasses(_sum_by_column(column, own, width), first, cells.spacing),
        LossMasses(_sum_by_column(column, other, width), first, cells.spacing),
    )


def _sum_by_column(column: NDArray[np.int64], values: FloatArray, width: int) -> FloatArray:
    rows = column.shape[0]
    flat = (column + width * np.arange(rows)[:, None]).ravel()
    sums = np.bincount(flat, weights=values.ravel(), minlength=rows * width)
    return np.asarray(sums, dtype=np.float64).reshape(rows, width)
