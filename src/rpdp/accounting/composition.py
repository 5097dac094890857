"""Composition of gridded privacy losses: steps to a round, rounds to a run, by tilted Fourier transforms.

A plain Fourier transform has an absolute error near 1e-16, which drowns a tail probability of 1e-15. So masses are
first tilted by e^{θ·loss} and scaled to total 1, with θ such that the tilted run centres on the ε in question. Errors
then are relative to the Chernoff bound E[e^{θL}] e^{−θε}, a few times δ itself, whatever δ is; and a short window
suffices.

Between round and run the grid is coarsened, again by connect-the-dots (or by rounding, for lower bounds): the number
of points then follows the square roots of τ and T, not of their product.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import fft

from rpdp.accounting.participation import ExplicitCount

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.accounting._types import FloatArray
    from rpdp.accounting.participation import ParticipationCount
    from rpdp.accounting.step_loss import LossMasses

MOST_POINTS = 2**18
"""The longest transform; beyond it a caller must coarsen the grid (and gets a looser, still valid bound)."""

OUTSIDE = 1e-12
"""Tilted mass that a window may leave out; it wraps around and is counted as an error."""

_DUST = 1e-17
_STEEPEST = 8.0
"""The steepest extra tilt, in units of one over the standard deviation, from which a window's ends are taken."""


class GridTooLongError(Exception):
    """The grid is too fine for what it must cover; a coarser one gives a looser, still valid bound."""


@dataclass(frozen=True)
class TiltedLoss:
    """A gridded loss distribution L, a row per record class, as its tilted law.

    Pr[L = (first + column) · spacing] = exp(log_mass − tilt · loss) · masses[column].
    `error` bounds the absolute (L1) error of the rows of `masses`, which sum to about 1.
    """

    masses: FloatArray
    first: NDArray[np.int64]
    spacing: FloatArray
    tilt: FloatArray
    log_mass: FloatArray
    error: FloatArray

    @property
    def losses(self) -> FloatArray:
        """The loss of every column, a row per record class."""
        return (self.first[:, None] + np.arange(self.masses.shape[1])) * self.spacing[:, None]


def tilt(step: LossMasses, tilts: FloatArray, relative_error: float) -> TiltedLoss:
    """The tilted law of one step."""
    losses = (step.first[:, None] + np.arange(step.masses.shape[1])) * step.spacing[:, None]
    with np.errstate(divide="ignore"):
        exponents = np.log(step.masses) + tilts[:, None] * losses
    return _normalised(exponents, step.first, step.spacing, tilts, np.full(tilts.shape, relative_error))


def _normalised(
    exponents: FloatArray,
    first: NDArray[np.int64],
    spacing: FloatArray,
    tilts: FloatArray,
    error: FloatArray,
) -> TiltedLoss:
    top = exponents.max(axis=1)
    masses = np.exp(exponents - top[:, None])
    total = masses.sum(axis=1)
    return TiltedLoss(masses / total[:, None], first, spacing, tilts, top + np.log(total), error)


def compose(loss: TiltedLoss, count: ParticipationCount) -> TiltedLoss:
    """The law of the sum of k independent copies, k distributed as `count`."""
    if isinstance(count, ExplicitCount) and count.counts.size == 1 and count.largest == 1:
        return loss
    low, high = _window(loss, count)
    points = np.ceil((high - low) / loss.spacing).astype(np.int64) + 2
    length = int(fft.next_fast_len(max(int(points.max()), 16), real=True))
    if length > MOST_POINTS:
        raise GridTooLongError(f"a transform of {length:,} points is needed, at most {MOST_POINTS:,} are allowed")
    spectrum = fft.rfft(_fold(loss, length), axis=1)
    mixed = fft.irfft(count.mix(spectrum, loss.log_mass), n=length, axis=1)
    first = np.floor(low / loss.spacing).astype(np.int64)
    order = (first[:, None] + np.arange(length)) % length
    masses = np.maximum(np.take_along_axis(mixed, order, axis=1), 0.0)
    masses[masses < _DUST] = 0.0  # rounding noise, which must not widen the next window
    error = count.largest * loss.error + _transform_error(masses, count) + 2.0 * OUTSIDE + length * _DUST
    return TiltedLoss(masses, first, loss.spacing, loss.tilt, count.log_moment(loss.log_mass), error)


def _transform_error(masses: FloatArray, count: ParticipationCount) -> FloatArray:
    """The L1 error that rounding adds to a composition.

    A transform of n points errs by about 2⁻⁵² log₂ n of the L2 norm, a k-th power by k times that; √n of it in L1.
    """
    length = masses.shape[1]
    spread = np.sqrt(length * (masses**2).sum(axis=1))
    return np.asarray((count.largest + 1) * np.log2(length) * np.finfo(np.float64).eps * np.maximum(spread, 1.0))


def _fold(loss: TiltedLoss, length: int) -> FloatArray:
    """The masses at their positions modulo `length`."""
    rows, width = loss.masses.shape
    folded = np.zeros((rows, length))
    for start in range(0, width, length):
        part = loss.masses[:, start : start + length]
        position = (loss.first[:, None] + start + np.arange(part.shape[1])) % length
        row = np.arange(rows)[:, None]
        folded[row, position] += part
    return folded


def _window(loss: TiltedLoss, count: ParticipationCount) -> tuple[FloatArray, FloatArray]:
    """Ends between which all but `OUTSIDE` of the tilted sum lies, by Chernoff bounds at a few extra tilts."""
    losses = loss.losses
    mean = (loss.masses * losses).sum(axis=1)
    centred = losses - mean[:, None]
    deviation = np.sqrt((loss.masses * centred**2).sum(axis=1))
    largest = np.maximum(np.abs(centred[:, 0]), np.abs(centred[:, -1]))
    extra = _extra_tilts(np.maximum(deviation, loss.spacing), np.maximum(largest, loss.spacing), loss, count)
    rising = np.exp(extra[:, :, None] * centred[:, None, :])
    masses = loss.masses[:, :, None]
    upward = np.log(np.matmul(rising, masses)[:, :, 0])
    downward = np.log(np.matmul(1.0 / rising, masses)[:, :, 0])
    base, drift = loss.log_mass[:, None], extra * mean[:, None]
    log_total = count.log_moment(base)
    high = (count.log_moment(base + upward + drift) - log_total - np.log(OUTSIDE)) / extra
    low = (count.log_moment(base + downward - drift) - log_total - np.log(OUTSIDE)) / extra
    return -low.min(axis=1), high.min(axis=1)


def _extra_tilts(deviation: FloatArray, largest: FloatArray, loss: TiltedLoss, count: ParticipationCount) -> FloatArray:
    """Tilts to take a window's ends from: any is valid; one of these is near the best for a sum of few or many terms.

    For about n near-normal terms the best is 7 / (deviation √n), for rare large terms about 1 / largest loss.
    """
    terms = np.maximum(count.tilted_mean(loss.log_mass), 1.0)
    steepest = np.minimum(_STEEPEST / (deviation * np.sqrt(terms)), 600.0 / largest)  # e^600 does not overflow
    flattest = np.minimum(1.0 / (deviation * math.sqrt(count.largest)), 4.0 / largest)
    halvings = int(np.ceil(np.log2(np.max(steepest / flattest, initial=1.0))))
    return np.asarray(steepest[:, None] * np.exp2(-np.arange(halvings + 1.0)))


def coarsen(loss: TiltedLoss, spacing: FloatArray, *, pessimistic: bool) -> TiltedLoss:
    """The same law on a coarser grid: dominating it (`pessimistic`) or with losses rounded to the nearest point."""
    losses = loss.losses
    position = losses / spacing[:, None]
    if not pessimistic:
        return _moved(loss, losses, spacing, [(np.rint(position).astype(np.int64), 1.0)])
    lower = np.floor(position).astype(np.int64)
    share = np.expm1(lower * spacing[:, None] - losses) / np.expm1(-spacing[:, None])
    share = np.clip(share, 0.0, 1.0)
    return _moved(loss, losses, spacing, [(lower, 1.0 - share), (lower + 1, share)])


def _moved(
    loss: TiltedLoss,
    losses: FloatArray,
    spacing: FloatArray,
    parts: list[tuple[NDArray[np.int64], FloatArray | float]],
) -> TiltedLoss:
    """Masses moved to new grid indices; the tilt factor follows the new loss."""
    first = parts[0][0][:, 0]
    width = int((parts[-1][0][:, -1] - first).max()) + 1
    rows = loss.masses.shape[0]
    masses = np.zeros(rows * width)
    for index, share in parts:
        moved = index * spacing[:, None]
        values = loss.masses * share * np.exp(loss.tilt[:, None] * (moved - losses))
        flat = (index - first[:, None] + width * np.arange(rows)[:, None]).ravel()
        masses += np.bincount(flat, weights=values.ravel(), minlength=rows * width)
    table = masses.reshape(rows, width)
    total = table.sum(axis=1)
    return TiltedLoss(
        table / total[:, None],
        first,
        spacing,
        loss.tilt,
        loss.log_mass + np.log(total),
        loss.error,
    )
