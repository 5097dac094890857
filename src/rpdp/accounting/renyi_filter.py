"""The Rényi filter of one record: its order, its lifetime budget B, and both for a person known to several silos.

A record with a Rényi account books divergences ρ of its runs at one order α that is fixed when it is enrolled. While
Σρ ≤ B = ε − g(α, δ), all runs together are (ε, δ)-private for the record, even if each run is chosen after seeing the
earlier ones (Feldman & Zrnic 2021, the individual Rényi filter). g is the price of turning a divergence into (ε, δ)
(Canonne, Kamath, Steinke 2020, proposition 12):

    g(α, δ) = −log(α / (α − 1)) − (log δ + log α) / (α − 1)

The order comes from a public list by a public map of (ε, δ): the one with the largest (ε − g)/α. A lightly sampled
Gaussian costs ρ in proportion to α, so that order pays for the most runs, whatever their number.

Several silos (privacy.md, section 7): if a person may have an account in k silos, each books k·ρ, all use one δ and
this map, which falls with ε, and B is at most what any larger ε would give. Then the divergences of all silos at the
smallest order add up to at most the mean of their B, which is within the largest ε that was ever stated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.accounting._types import FloatArray

    OrderNumbers = NDArray[np.uint8]

ORDERS: FloatArray = np.concatenate([[0.0], 1.0 + np.exp2(np.arange(-8, 49) / 4.0)])
"""The orders by number: 1.25 … 4,097 in steps of a fourth of an octave. Number 0 stands for "no order" (sums)."""

ORDERS.flags.writeable = False

SUMS = np.uint8(0)
"""The number that stands for a sum account."""

_BORDER = 1e-9
"""Relative: how far the borders between orders may lie apart on two machines, generously."""

_ROUNDING = 1e-12
"""Relative: what the last digits of g and B may be off by on any machine; B is lowered by it."""

_SMALLEST_DELTA = float(np.finfo(np.float64).tiny)
"""The order of a smaller δ, such as a part that is too small for a float, is that of this one."""

_ROWS_AT_ONCE = 1 << 16
"""How many records get their orders in one step, to keep temporary arrays small."""


def conversion(order: FloatArray, delta: FloatArray) -> FloatArray:
    """g(α, δ): what a divergence at order α costs in ε beyond itself."""
    theta = order - 1.0
    return np.asarray(-np.log1p(1.0 / theta) - (np.log(delta) + np.log(order)) / theta)


def order_numbers(epsilon: FloatArray, delta: FloatArray) -> OrderNumbers:
    """The number of the order at which a record with this budget is enrolled. A larger ε never has a larger order."""
    budgets, deltas = np.broadcast_arrays(np.asarray(epsilon, np.float64), np.asarray(delta, np.float64))
    distinct, where = np.unique(np.maximum(deltas, _SMALLEST_DELTA).ravel(), return_inverse=True)
    flat, numbers = budgets.ravel(), np.empty(budgets.size, dtype=np.uint8)
    for start in range(0, flat.size, _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        here, row = np.unique(where[rows], return_inverse=True)
        above = _crossings(distinct[here])[row] > flat[rows, None]
        numbers[rows] = 1 + above.sum(axis=1)
    return numbers.reshape(budgets.shape)


def is_mapped_order(numbers: OrderNumbers, epsilon: FloatArray, delta: FloatArray) -> NDArray[np.bool_]:
    """Whether each order is that of the map; at a border of two orders, where machines may differ, either of them."""
    most, least = (order_numbers(epsilon * (1.0 + sign * _BORDER), delta) for sign in (-1.0, 1.0))
    return np.asarray((least <= numbers) & (numbers <= most))


def lifetime_divergence(
    epsilon: FloatArray, delta: FloatArray, numbers: OrderNumbers, joint_delta: float | None = None
) -> FloatArray:
    """B: what a record that was enrolled at this order may book over its life, given its ε and δ in force; at least 0.

    The order stays as it was enrolled, so a raised ε adds its difference. With several silos per person, `joint_delta`
    is the δ at which all of them enrolled. Then B is at most what any larger ε would give at that δ and its own order,
    so that nobody's B exceeds that of the person's largest ε. A lowered δ must not change that limit: the map of a
    smaller δ has larger orders, and B at them may be larger.
    """
    order = ORDERS[numbers]
    budget = np.where(epsilon > 0.0, epsilon - conversion(order, delta), 0.0)  # ε = 0 allows nothing
    if joint_delta is not None:
        budget = np.minimum(budget, _least_above(epsilon, joint_delta))
    return np.maximum(budget - _ROUNDING * (np.abs(budget) + np.abs(epsilon)), 0.0)


def _least_above(epsilon: FloatArray, delta: float) -> FloatArray:
    """The smallest ε′ − g(α(ε′), δ) over all ε′ ≥ ε."""
    starts, numbers = _pieces(delta)
    prices = conversion(ORDERS[numbers], np.full(numbers.shape, delta))
    # Within a piece the value rises with ε′, so that its smallest is at its start.
    later = np.minimum.accumulate((starts - prices)[::-1])[::-1]
    piece = np.searchsorted(starts, epsilon, side="right") - 1
    return np.asarray(np.minimum(epsilon - prices[piece], np.append(later, np.inf)[piece + 1]))


def _pieces(delta: float) -> tuple[FloatArray, OrderNumbers]:
    """The map from ε to orders at one δ: where each piece starts, rising, and the number of its order, falling."""
    crossings = _crossings(np.array([delta]))[0]
    starts = crossings[crossings > 0.0][::-1]
    return np.append(0.0, starts), np.arange(starts.size + 1, 0, -1).astype(np.uint8)


def _crossings(delta: FloatArray) -> FloatArray:
    """For each δ (rows) and each order but the largest: the ε above which it is better than the next larger order.

    (ε − g)/α is a line in ε for each order, steeper for a smaller one. Along the list the crossings of neighbours fall
    (tested), so that the best order is the smallest one whose crossing is not above ε.
    """
    orders = ORDERS[None, 1:]
    slopes = 1.0 / orders
    heights = conversion(orders, delta[:, None]) * slopes
    return np.asarray(np.diff(heights, axis=1) / np.diff(slopes, axis=1))
