"""From ε back to q: the largest priced sampling probability whose cost is within a budget.

Nothing is interpolated. The inverse only ever returns sampling probabilities that were priced themselves, so a
certificate is a table of (q, cost) and a look-up. The table is built where budgets fall: coarse knots (four per
octave of q) bracket a budget, and the bracket is filled with nodes so close that stepping down to the next one costs
at most `NODE_GAP` of the budget. Where nodes are placed follows from the prices of the knots, not from what was asked
before. Prices of the same q alone and in a batch can differ slightly (transforms of a batch share one length): each
is a valid bound, but two certificates may choose neighbouring nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rpdp.accounting._types import FloatArray

NODE_GAP = 0.0042
"""Largest relative distance in cost between neighbouring nodes (relative to 0.05 below ε = 0.05).

With the price's own error (`pld.ACCURACY`) the slack of a certified budget stays below 0.5 %.
"""

ABSOLUTE_BELOW = 0.05
KNOTS_PER_OCTAVE = 4
SMALLEST_PROBABILITY = 2.0**-40
"""The smallest non-zero q offered, about 1e-12."""

LOWEST_KNOT = 40 * KNOTS_PER_OCTAVE

_KNOTS_AT_ONCE = 12
_BUDGETS_AT_ONCE = 1 << 20
_AIM = 0.97
"""Nodes are placed for this part of the gap, so that few brackets need a second pass."""

_PARTS_BY_PASS = (512, *[8] * 10)
"""Into how many parts a gap may be split in each pass; later ones close in on a jump of the cost."""

_CLOSEST = 1e-7
"""Neighbouring nodes this close (relative, in q) stay as they are: the cost jumps between them."""


@dataclass
class Certificate:
    """The priced inverse of a cost that rises with q. `price(q)` must return an upper bound for every q given."""

    price: Callable[[FloatArray], FloatArray]
    _knots: FloatArray = field(default_factory=lambda: np.zeros(0), init=False)
    _knot_costs: FloatArray = field(default_factory=lambda: np.zeros(0), init=False)
    _brackets: dict[int, tuple[FloatArray, FloatArray]] = field(default_factory=dict, init=False)

    def invert(self, budgets: FloatArray) -> tuple[FloatArray, FloatArray]:
        """For each budget the largest priced q within it, and the cost of that q; 0 and 0 where nothing fits."""
        q = np.zeros(budgets.shape)
        cost = np.zeros(budgets.shape)
        least = float(np.min(budgets, initial=np.inf, where=budgets > 0.0))
        if np.isinf(least):
            return q, cost
        self._price_knots_down_to(least)
        wanted = np.zeros(self._knots.size + 1, dtype=bool)
        for part in _parts(budgets.size):
            wanted[self._bracket_of(budgets[part])] = True
        filled = np.flatnonzero(wanted[:-1])
        self._fill(filled)
        if filled.size:
            # Brackets in rising order of q; a budget's node lies in its own bracket, which starts within the budget.
            nodes = np.concatenate([self._brackets[int(index)][0] for index in filled[::-1]])
            costs = np.concatenate([self._brackets[int(index)][1] for index in filled[::-1]])
            for part in _parts(budgets.size):
                chosen = np.searchsorted(costs, budgets[part], side="right") - 1
                fits = (chosen >= 0) & (budgets[part] > 0.0)
                q[part], cost[part] = np.where(fits, nodes[chosen], 0.0), np.where(fits, costs[chosen], 0.0)
        return q, cost

    def _bracket_of(self, budgets: FloatArray) -> NDArray[np.int64]:
        """The first knot within each budget; one past the last where there is none."""
        bracket = np.searchsorted(-self._knot_costs, -budgets, side="left")
        return np.where(budgets > 0.0, bracket, self._knots.size)

    def _price_knots_down_to(self, budget: float) -> None:
        """Extend the knots, which fall from q = 1, until one costs no more than the budget."""
        while self._knots.size <= LOWEST_KNOT and (self._knots.size == 0 or self._knot_costs[-1] > budget):
            start = self._knots.size
            knots = np.exp2(-np.arange(start, min(start + _KNOTS_AT_ONCE, LOWEST_KNOT + 1)) / KNOTS_PER_OCTAVE)
            self._knots = np.concatenate([self._knots, knots])
            costs = np.concatenate([self._knot_costs, self.price(knots)])
            self._knot_costs = np.minimum.accumulate(costs)  # a bound for a larger q holds for a smaller one

    def _fill(self, brackets: NDArray[np.int64]) -> None:
        """Price nodes in the brackets (knot i up to knot i − 1) that have none yet, all of them together."""
        new = [int(i) for i in brackets if int(i) not in self._brackets]
        for index in new:
            self._brackets[index] = self._knots[index : index + 1], self._knot_costs[index : index + 1]
        open_ones = [i for i in new if i > 0]
        for index in open_ones:
            ends = slice(index, index - 2 if index > 1 else None, -1)
            self._brackets[index] = self._knots[ends], self._knot_costs[ends]
        for most_parts in _PARTS_BY_PASS:
            wanted = {i: _missing_nodes(*self._brackets[i], most_parts) for i in open_ones}
            open_ones = [i for i in open_ones if wanted[i].size]
            if not open_ones:
                break
            prices = self.price(np.concatenate([wanted[i] for i in open_ones]))
            for index, part in zip(
                open_ones,
                np.split(prices, np.cumsum([wanted[i].size for i in open_ones])[:-1]),
                strict=True,
            ):
                self._brackets[index] = _merged(*self._brackets[index], wanted[index], part)


def _parts(size: int) -> list[slice]:
    """Slices that keep temporary arrays small."""
    return [slice(start, start + _BUDGETS_AT_ONCE) for start in range(0, size, _BUDGETS_AT_ONCE)]


def _scale(cost: FloatArray) -> FloatArray:
    """A coordinate in which the allowed gap is the same everywhere: linear below 0.05, logarithmic above."""
    return np.where(
        cost < ABSOLUTE_BELOW,
        cost / ABSOLUTE_BELOW,
        1.0 + np.log(np.maximum(cost, ABSOLUTE_BELOW) / ABSOLUTE_BELOW),
    )


def _missing_nodes(nodes: FloatArray, costs: FloatArray, most_parts: int) -> FloatArray:
    """Where to price next so that neighbouring costs come within the gap; empty when they are."""
    logs = np.log(nodes)
    gaps = np.diff(_scale(costs))
    parts = np.minimum(np.ceil(gaps / (NODE_GAP * _AIM)), most_parts).astype(np.int64)
    parts[(gaps <= NODE_GAP) | (np.diff(logs) < _CLOSEST)] = 1
    pieces = [np.exp(np.linspace(logs[i], logs[i + 1], parts[i] + 1)[1:-1]) for i in np.flatnonzero(parts > 1)]
    return np.concatenate(pieces) if pieces else np.zeros(0)


def _merged(
    nodes: FloatArray, costs: FloatArray, new_nodes: FloatArray, new_costs: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Nodes in rising order; costs made to rise with q by a running maximum, never above the upper knot's."""
    order = np.argsort(np.concatenate([nodes, new_nodes]), kind="stable")
    merged = np.concatenate([nodes, new_nodes])[order]
    prices = np.minimum(np.concatenate([costs, new_costs])[order], costs[-1])
    return merged, np.maximum.accumulate(prices)
