"""The inverse of the privacy curve: from a budget ε to the largest sampling probability q whose cost is within it.

Nothing is interpolated. The inverse returns only sampling probabilities whose own cost has been computed, so a
certificate is a table of (q, cost) pairs and a search in it. The table is refined only where budgets fall. Coarse knots
(four per octave of q) bracket a budget; the bracket is then filled with nodes so close together that stepping down to
the next one costs at most `NODE_GAP` of the budget.

The result for a budget is a function of the price alone (privacy.md, section 7): knots are fixed, the nodes of a
bracket follow from the prices of its knots, whole brackets are filled, and the table of a bracket rests on no other
bracket. So neither other budgets nor earlier calls have a say in it.
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

Together with the error of the cost itself (`pld.ACCURACY`), the slack of a certified budget stays below 0.5 %.
"""

ABSOLUTE_BELOW = 0.05
KNOTS_PER_OCTAVE = 4
SMALLEST_PROBABILITY = 2.0**-40
"""The smallest non-zero q that is ever returned, about 1e-12."""

LOWEST_KNOT = 40 * KNOTS_PER_OCTAVE

_KNOTS_AT_ONCE = 12
_BUDGETS_AT_ONCE = 1 << 20
_AIM = 0.97
"""Nodes are placed for this fraction of the gap, so that few brackets need a second pass."""

_PARTS_BY_PASS = (512, *[8] * 10)
"""Into how many parts each pass may split a gap; later passes close in on a jump of the cost."""

_CLOSEST = 1e-7
"""Do not split further between nodes this close (relative, in q): the cost jumps there."""


@dataclass
class Certificate:
    """The inverse of a cost that rises with q. `price(q)` must return an upper bound on the cost of every q."""

    price: Callable[[FloatArray], FloatArray]
    absolute_below: float = ABSOLUTE_BELOW
    """Below this cost, gaps between nodes are absolute: `NODE_GAP` of it."""

    _knots: FloatArray = field(default_factory=lambda: np.zeros(0), init=False)
    _knot_prices: FloatArray = field(default_factory=lambda: np.zeros(0), init=False)
    _knot_costs: FloatArray = field(default_factory=lambda: np.zeros(0), init=False)
    _brackets: dict[int, tuple[FloatArray, FloatArray]] = field(default_factory=dict, init=False)

    def invert(self, budgets: FloatArray) -> tuple[FloatArray, FloatArray]:
        """For each budget, the largest q in the table whose cost is within it, and that cost; 0 and 0 if none is."""
        q = np.zeros(budgets.shape)
        cost = np.zeros(budgets.shape)
        least = float(np.min(budgets, initial=np.inf, where=budgets > 0.0))
        if np.isinf(least):
            return q, cost
        self._price_knots_down_to(least)
        in_use = np.zeros(self._knots.size + 1, dtype=bool)
        for part in _parts(budgets.size):
            in_use[self._bracket_of(budgets[part])] = True
        filled = np.flatnonzero(in_use[:-1])
        self._fill(filled)
        if filled.size:
            # Knots fall with their index, so reverse them to get rising q. The node of a budget always lies in the
            # budget's own bracket, because the lower end of that bracket costs no more than the budget.
            nodes, costs = (np.concatenate(each) for each in zip(*map(self._table, filled[::-1].tolist()), strict=True))
            for part in _parts(budgets.size):
                q[part], cost[part] = largest_within(nodes, costs, budgets[part])
        return q, cost

    def fill(self) -> None:
        """Compute the whole table. After that no budget, and no price of a node, takes more time than another."""
        self._price_knots_down_to(0.0)
        self._fill(np.arange(self._knots.size))

    def prices(self, q: FloatArray) -> FloatArray:
        """The prices of these q as far as they are nodes that have been computed; elsewhere infinity."""
        if not self._brackets:
            return np.full(q.shape, np.inf)
        nodes, prices = (np.concatenate(each) for each in zip(*self._brackets.values(), strict=True))
        order = np.argsort(nodes, kind="stable")
        at = order[np.minimum(np.searchsorted(nodes, q, sorter=order), nodes.size - 1)]
        return np.where(nodes[at] == q, prices[at], np.inf)

    def _table(self, index: int) -> tuple[FloatArray, FloatArray]:
        """The nodes of a bracket and costs that rise with q, below the cost at which the next bracket takes over.

        The price may dip as q grows. A running maximum only raises it, so it stays a bound; no cost here is below the
        price of its own node.
        """
        nodes, prices = self._brackets[index]
        costs = np.maximum.accumulate(prices)
        own = costs < self._knot_costs[index - 1] if index else costs == costs
        return nodes[own], costs[own]

    def _bracket_of(self, budgets: FloatArray) -> NDArray[np.int64]:
        """The index of the first knot whose cost is within each budget; one past the last where there is none."""
        bracket = np.searchsorted(-self._knot_costs, -budgets, side="left")
        return np.where(budgets > 0.0, bracket, self._knots.size)

    def _price_knots_down_to(self, budget: float) -> None:
        """Add knots, downwards from q = 1, until one costs no more than the budget."""
        while self._knots.size <= LOWEST_KNOT and (self._knots.size == 0 or self._knot_costs[-1] > budget):
            start = self._knots.size
            knots = np.exp2(-np.arange(start, min(start + _KNOTS_AT_ONCE, LOWEST_KNOT + 1)) / KNOTS_PER_OCTAVE)
            self._knots = np.concatenate([self._knots, knots])
            self._knot_prices = np.concatenate([self._knot_prices, self.price(knots)])
            # A bound for a larger q also holds for a smaller one, so a running minimum stays valid. The first knot
            # within a budget is one at which the minimum falls, so there it is the price of that knot itself.
            self._knot_costs = np.minimum.accumulate(self._knot_prices)

    def _fill(self, brackets: NDArray[np.int64]) -> None:
        """Compute nodes for the brackets (knot i up to knot i − 1) that have none yet, in joint batches."""
        new = [int(i) for i in brackets if int(i) not in self._brackets]
        for index in new:
            self._brackets[index] = self._knots[index : index + 1], self._knot_prices[index : index + 1]
        unfinished = [i for i in new if i > 0]  # bracket 0 is the single knot q = 1
        for index in unfinished:
            both = slice(index, index - 2 if index > 1 else None, -1)
            self._brackets[index] = self._knots[both], self._knot_prices[both]
        for most_parts in _PARTS_BY_PASS:
            missing = {i: _missing_nodes(*self._brackets[i], most_parts, self.absolute_below) for i in unfinished}
            unfinished = [i for i in unfinished if missing[i].size]
            if not unfinished:
                break
            prices = self.price(np.concatenate([missing[i] for i in unfinished]))
            ends = np.cumsum([missing[i].size for i in unfinished])
            for index, part in zip(unfinished, np.split(prices, ends[:-1]), strict=True):
                self._brackets[index] = _merged(*self._brackets[index], missing[index], part)


def largest_within(nodes: FloatArray, costs: FloatArray, budgets: FloatArray) -> tuple[FloatArray, FloatArray]:
    """For each budget, the last node whose cost is within it, and that cost; 0 and 0 if none is. Costs rise."""
    # side="right" minus one: the last node whose cost is at most the budget, never the next above.
    chosen = np.searchsorted(costs, budgets, side="right") - 1
    fits = (chosen >= 0) & (budgets > 0.0)
    return np.where(fits, nodes[chosen], 0.0), np.where(fits, costs[chosen], 0.0)


def _parts(size: int) -> list[slice]:
    """Slices that cover `size` elements and keep temporary arrays small."""
    return [slice(start, start + _BUDGETS_AT_ONCE) for start in range(0, size, _BUDGETS_AT_ONCE)]


def _scale(cost: FloatArray, below: float) -> FloatArray:
    """Costs in a coordinate in which the allowed gap is the same everywhere: linear below a cost, logarithmic above."""
    return np.where(cost < below, cost / below, 1.0 + np.log(np.maximum(cost, below) / below))


def _missing_nodes(nodes: FloatArray, costs: FloatArray, most_parts: int, below: float) -> FloatArray:
    """Further nodes that bring neighbouring costs within the gap; empty when they already are."""
    logs = np.log(nodes)
    gaps = np.diff(_scale(np.maximum.accumulate(costs), below))
    parts = np.minimum(np.ceil(gaps / (NODE_GAP * _AIM)), most_parts).astype(np.int64)
    parts[(gaps <= NODE_GAP) | (np.diff(logs) < _CLOSEST)] = 1
    pieces = [np.exp(np.linspace(logs[i], logs[i + 1], parts[i] + 1)[1:-1]) for i in np.flatnonzero(parts > 1)]
    return np.concatenate(pieces) if pieces else np.zeros(0)


def _merged(
    nodes: FloatArray, costs: FloatArray, new_nodes: FloatArray, new_costs: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Old and new nodes in rising order of q, with their prices."""
    order = np.argsort(np.concatenate([nodes, new_nodes]), kind="stable")
    return np.concatenate([nodes, new_nodes])[order], np.concatenate([costs, new_costs])[order]
