"""The privacy curve: the cost ε*(q) of a record as a function of its sampling probability q, and its inverse.

It combines the two routes of this package, Rényi moments (`renyi`) and privacy-loss distributions (`pld`), and inverts
the result with a `Certificate`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, overload

import numpy as np

from rpdp.accounting import pld, renyi
from rpdp.accounting.arguments import finite_levels, like, not_negative, probabilities
from rpdp.accounting.certificate import SMALLEST_PROBABILITY, Certificate
from rpdp.accounting.noise_limits import require_priceable
from rpdp.accounting.participation import ExplicitCount
from rpdp.accounting.pld import Run
from rpdp.accounting.renyi import BestOrders
from rpdp.checks import require_count, require_delta
from rpdp.errors import InputError, PrivacyRefusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from rpdp.accounting._types import FloatArray
    from rpdp.accounting.participation import ParticipationCount
    from rpdp.accounting.schedule import Schedule

Accountant = Literal["pld", "rdp"]
ACCOUNTANTS: tuple[Accountant, ...] = ("pld", "rdp")

SMALLEST_DELTA = 1e-100
"""Below this the arithmetic of the tails is not tested, and no application needs it."""

_LATTICE_PER_OCTAVE = 512
_GUIDES_PER_OCTAVE = 2


@dataclass(frozen=True)
class Bounds:
    """Bounds on the true cost: it lies between `lower` and `upper`. Plans book `upper`."""

    lower: FloatArray
    upper: FloatArray


class PrivacyCurve:
    """The cost ε*(q) of a run for a record that is sampled into each local step with probability q, at a given δ.

    `epsilon` returns upper bounds. `sampling_probability` returns, for each budget, the largest q (to 0.5 %) whose
    cost is within it. Both are vectorised, and pure: the result for one entry does not depend on the others, nor on
    earlier calls.

    | accountant | what it returns                                                      | stated error       |
    |------------|----------------------------------------------------------------------|--------------------|
    | `"pld"`    | the smaller of the privacy-loss-distribution bound and the Rényi one | see `bounds(q)`    |
    | `"rdp"`    | the Rényi bound with the tight conversion                            | an upper bound     |

    >>> from rpdp.accounting.schedule import Schedule
    >>> curve = PrivacyCurve(Schedule(15, 50, participation=0.5), noise_multiplier=10.748, delta=1e-4)
    >>> curve.epsilon([0.1, 1.0]).round(2)
    array([0.57, 8.79])
    >>> q = curve.sampling_probability(1.0)
    >>> bool(0.995 <= curve.epsilon(q) <= 1.0)
    True
    """

    def __init__(
        self, schedule: Schedule, *, noise_multiplier: float, delta: float, accountant: Accountant = "pld"
    ) -> None:
        self.schedule = schedule
        self.noise_multiplier = require_priceable(noise_multiplier)
        self.target_delta = require_delta("delta", delta)
        if self.target_delta < SMALLEST_DELTA:
            raise InputError(f"delta={delta} is below {SMALLEST_DELTA:g}, where costs can be computed")
        if accountant not in ACCOUNTANTS:
            raise InputError(f"accountant={accountant!r} must be one of {', '.join(ACCOUNTANTS)}")
        self.accountant: Accountant = accountant
        self._count: ParticipationCount = schedule.count()
        self._knots: dict[int, tuple[float, float]] = {}
        self._lattice: dict[float, float] = {}
        self._after: dict[int, PrivacyCurve] = {}

    def after(self, announced: int) -> PrivacyCurve:
        """The curve for the first `announced` rounds of this run, whether or not the silo joins them."""
        if announced == self.schedule.rounds:
            return self
        if announced not in self._after:
            self._after[announced] = self._with_count(self.schedule.count(announced))
        return self._after[announced]

    def given(self, participations: int) -> PrivacyCurve:
        """The curve given that the silo joined exactly this many rounds.

        Show it beside the promise, never instead of it: it depends on the coins that the silo happened to draw.
        """
        require_count("participations", participations, least=0, most=self.schedule.rounds)
        return self._with_count(ExplicitCount.exactly(participations))

    def _with_count(self, count: ParticipationCount) -> PrivacyCurve:
        curve = PrivacyCurve(
            self.schedule,
            noise_multiplier=self.noise_multiplier,
            delta=self.target_delta,
            accountant=self.accountant,
        )
        curve._count = count
        return curve

    @overload
    def epsilon(self, q: float) -> float: ...
    @overload
    def epsilon(self, q: ArrayLike) -> FloatArray: ...
    def epsilon(self, q: ArrayLike) -> FloatArray | float:
        """Upper bounds on the cost. A q below 2⁻⁴⁰ costs as much as 2⁻⁴⁰.

        The true cost rises with q. These bounds are computed one by one, so that they may dip, by less than their
        distance from the truth (see `bounds`).
        """
        values = probabilities(q)
        return like(q, self._distinct(values, self._price))

    def epsilon_above(self, q: ArrayLike) -> FloatArray:
        """Like `epsilon`, for each q rounded up to a lattice (by at most 0.14 %).

        The cost of a lattice point is computed once per curve. That pays off for very many q, and for several silos
        whose q are similar.
        """
        return self._distinct(_lattice_above(probabilities(q)), self._price_lattice)

    def covers(self, q: ArrayLike, cost: ArrayLike) -> NDArray[np.bool_]:
        """Whether each stated cost is at least a computed one: of its q, or of the lattice point above it."""
        values, stated = np.broadcast_arrays(probabilities(q), np.asarray(cost, dtype=np.float64))
        asked, costs = values.ravel(), stated.ravel()
        covered = costs >= self._certificate.prices(asked)
        for price in (lambda few: self._distinct(few, self._price), self.epsilon_above):
            rest = np.flatnonzero(~covered)
            covered[rest] = costs[rest] >= price(asked[rest])
        return covered.reshape(values.shape)

    def _distinct(self, q: FloatArray, price: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """The costs of q, each distinct one computed once; q = 0 costs 0."""
        distinct, where = np.unique(np.where(q > 0.0, np.maximum(q, SMALLEST_PROBABILITY), 0.0), return_inverse=True)
        drawn = distinct > 0.0
        costs = np.zeros(distinct.size)
        costs[drawn] = price(distinct[drawn])
        return np.asarray(costs[where].reshape(q.shape))

    @overload
    def sampling_probability(self, epsilon: float) -> float: ...
    @overload
    def sampling_probability(self, epsilon: ArrayLike) -> FloatArray: ...
    def sampling_probability(self, epsilon: ArrayLike) -> FloatArray | float:
        """For each budget, the largest q (to 0.5 %) whose cost is within it: 1 from cost(1) up, 0 below every cost."""
        return like(epsilon, self.certify(epsilon)[0])

    def certify(self, epsilon: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """The sampling probability for each budget and the cost of that probability, which never exceeds the budget."""
        budgets = not_negative(epsilon)
        q, cost = self._certificate.invert(budgets.ravel())
        return q.reshape(budgets.shape), cost.reshape(budgets.shape)

    def tabulate(self) -> None:
        """Compute everything that `certify` and `covers` may need for any budgets, so that they take no further time.

        Otherwise only what the given budgets need is computed, and how long that takes tells which budgets there are.
        """
        self._certificate.fill()

    def bounds(self, q: ArrayLike, *, accuracy: float = pld.ACCURACY) -> Bounds:
        """Lower and upper bounds on the true cost of each q; their distance is the stated error of the curve.

        A finer `accuracy` takes longer and raises the lower bound; the upper one is the price, as always.
        """
        values = np.atleast_1d(probabilities(q)).astype(np.float64)
        upper = np.atleast_1d(self.epsilon(values))
        lower = np.zeros(values.shape)
        drawn = values >= SMALLEST_PROBABILITY  # below it only the upper bound is known
        lower[drawn] = pld.lower_epsilon(values[drawn], self._run, self.target_delta, upper[drawn], accuracy)
        if (lower > upper * (1.0 + 1e-9)).any():  # 1e-9 for the last digits of two bounds that meet
            raise PrivacyRefusal(
                f"a lower bound ({lower.max():.6g}) exceeds its upper bound, so these costs cannot be trusted; "
                "please report this with the settings of the plan"
            )
        return Bounds(np.minimum(lower, upper), upper)

    @overload
    def delta(self, q: float, epsilon: float) -> float: ...
    @overload
    def delta(self, q: float, epsilon: ArrayLike) -> FloatArray: ...
    def delta(self, q: float, epsilon: ArrayLike) -> FloatArray | float:
        """The privacy profile δ(ε) of a record: upper bounds at any ε ≥ 0, whatever δ the curve was made for."""
        probability = float(probabilities(q))
        levels = finite_levels(epsilon)
        if probability == 0.0 or self._run.steps == 0:
            return like(epsilon, np.zeros(levels.shape))
        probability = max(probability, SMALLEST_PROBABILITY)
        values = np.array([self._one_delta(probability, float(level)) for level in levels.ravel()])
        return like(epsilon, values.reshape(levels.shape))

    def advantage(self, q: float) -> float:
        """The largest membership advantage (total variation) that any attacker can have: δ at ε = 0."""
        return float(self.delta(q, 0.0))

    @property
    def largest_cost(self) -> float:
        """The cost of a record that is in every batch (q = 1); a larger budget has no further effect."""
        return float(self.epsilon(1.0))

    @cached_property
    def _run(self) -> Run:
        return Run(self.noise_multiplier, self.schedule.local_steps, self._count)

    @cached_property
    def _certificate(self) -> Certificate:
        return Certificate(self._price)

    def _renyi(self, q: FloatArray) -> BestOrders:
        run = self._run
        return renyi.best_epsilon(q, run.noise_multiplier, run.local_steps, run.count, self.target_delta)

    def _guide(self, q: FloatArray) -> BestOrders:
        """Rényi bounds at orders that are interpolated between the best orders at fixed knots, two per octave of q.

        Any order gives a valid bound, so interpolation affects only tightness, and the best order changes slowly with
        q. The knots are fixed so that the order used for one q does not depend on the other q of the same call.
        """
        position = -np.log2(q) * _GUIDES_PER_OCTAVE
        above = np.floor(position).astype(np.int64)
        bounds, thetas = self._guide_knots(above)
        part = position - above
        theta = np.exp((1.0 - part) * np.log(thetas[0]) + part * np.log(thetas[1]))
        run = self._run
        moment = renyi.run_log_moments(q, 1.0 + theta, run.noise_multiplier, run.local_steps, run.count)
        bound = renyi.tight_epsilon(moment, 1.0 + theta, self.target_delta)
        bound[bounds[0] == 0.0] = 0.0  # the knot above, a larger q, costs nothing
        # Every order gives 0 at a knot that costs nothing, so its order is no guide: search for the best one instead.
        between = np.flatnonzero((bounds[0] > 0.0) & (bounds[1] == 0.0))
        best = self._renyi(q[between])
        bound[between], theta[between] = best.bound, best.theta
        return BestOrders(bound, theta)

    def _guide_knots(self, above: NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
        """The best bounds and orders at the knots just above (row 0) and just below (row 1) each q."""
        both = np.stack([above, above + 1])
        missing = [index for index in np.unique(both).tolist() if index not in self._knots]
        if missing:
            best = self._renyi(np.exp2(-np.array(missing) / _GUIDES_PER_OCTAVE))
            self._knots.update(zip(missing, zip(best.bound, best.theta, strict=True), strict=True))
        values = np.array([self._knots[index] for index in both.ravel().tolist()]).reshape(2, -1, 2)
        return values[..., 0], values[..., 1]

    def _price(self, q: FloatArray) -> FloatArray:
        """The cost of each q in (0, 1], before it is made monotone."""
        if self.accountant == "rdp":
            return self._renyi(q).bound
        guide = self._guide(q)
        costs = pld.upper_epsilon(q, self._run, self.target_delta, guide)
        # Where the Rényi bound is the smaller one it decides the cost, so its best order is worth a search.
        renyi_wins = np.flatnonzero((costs >= guide.bound) & (costs > 0.0))
        costs[renyi_wins] = np.minimum(costs[renyi_wins], self._renyi(q[renyi_wins]).bound)
        return costs

    def _price_lattice(self, q: FloatArray) -> FloatArray:
        """The cost of lattice points, each computed once: the silos of a federation share most of them."""
        missing = np.array([value for value in q.tolist() if value not in self._lattice])
        if missing.size:
            self._lattice.update(zip(missing.tolist(), self._price(missing).tolist(), strict=True))
        return np.array([self._lattice[value] for value in q.tolist()])

    def _one_delta(self, q: float, epsilon: float) -> float:
        run, row = self._run, np.array([q])
        level = np.array([epsilon])
        guide = renyi.best_log_delta(row, run.noise_multiplier, run.local_steps, run.count, level)
        log_bound = float(guide.bound[0])
        if math.isnan(log_bound):  # no Rényi bound, and so no guide for the other route: δ = 1 is always valid
            return 1.0
        bound = math.exp(min(0.0, log_bound))
        if self.accountant == "rdp":
            return bound
        other = float(pld.upper_delta(row, run, epsilon, guide)[0])
        return bound if math.isnan(other) else min(bound, other)


def _lattice_above(q: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore"):
        steps = np.floor(-np.log2(q) * _LATTICE_PER_OCTAVE)
    return np.where(q > 0.0, np.maximum(np.exp2(-steps / _LATTICE_PER_OCTAVE), q), 0.0)
