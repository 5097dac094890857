"""What a plan costs a record as a function of its sampling probability, and back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, overload

import numpy as np

from rpdp.accounting import pld, renyi
from rpdp.accounting.certificate import SMALLEST_PROBABILITY, Certificate
from rpdp.accounting.participation import ExplicitCount
from rpdp.accounting.pld import Run
from rpdp.accounting.renyi import BestOrders
from rpdp.checks import require_count, require_delta, require_positive
from rpdp.errors import InputError, PrivacyRefusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from rpdp.accounting._types import FloatArray
    from rpdp.accounting.participation import ParticipationCount
    from rpdp.accounting.schedule import Schedule

Accountant = Literal["pld", "rdp"]
ACCOUNTANTS: tuple[Accountant, ...] = ("pld", "rdp")

SMALLEST_NOISE, LARGEST_NOISE = 0.05, 1e6
SMALLEST_DELTA = 1e-100
"""Below this the arithmetic of the tails is not tested; nobody needs it."""

_MOST_DIRECT = 4096
"""More different q than this are first rounded up to a lattice."""

_LATTICE_PER_OCTAVE = 512
_GUIDES_PER_OCTAVE = 2


@dataclass(frozen=True)
class Bounds:
    """The truth lies between `lower` and `upper`; `upper` is what a plan books."""

    lower: FloatArray
    upper: FloatArray


class PrivacyCurve:
    """The cost ε*(q) of a run for a record that is drawn into each local step with probability q, at a given δ.

    `epsilon` returns upper bounds; `sampling_probability` returns, for each budget, the largest q (to 0.5 %) whose
    cost is within it. Both are vectorised; both are monotone.

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
        self.noise_multiplier = require_positive("noise_multiplier", noise_multiplier)
        if not SMALLEST_NOISE <= self.noise_multiplier <= LARGEST_NOISE:
            raise InputError(
                f"noise_multiplier={noise_multiplier} is outside [{SMALLEST_NOISE}, {LARGEST_NOISE:g}], "
                "where costs can be computed"
            )
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
        """The curve of the first `announced` rounds of this run, taken part or not."""
        if announced not in self._after:
            self._after[announced] = self._with_count(self.schedule.count(announced))
        return self._after[announced]

    def given(self, participations: int) -> PrivacyCurve:
        """The curve given that the silo joined exactly so many rounds: to show beside the promise, not instead."""
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
        """Upper bounds on the cost, rising with q.

        More than 4,096 different q are first rounded up by ≤ 0.14 %; a q below 2⁻⁴⁰ is priced as 2⁻⁴⁰.
        """
        values = _probabilities(q)
        distinct, where = np.unique(values, return_inverse=True)
        if distinct.size > _MOST_DIRECT:
            return self.epsilon_above(values)
        return _like(q, self._rising(distinct, self._price)[where].reshape(values.shape))

    def epsilon_above(self, q: ArrayLike) -> FloatArray:
        """The same for each q rounded up by ≤ 0.14 %: for very many q, and for silos that ask for like ones.

        Each point of the lattice is priced once in the life of the curve.
        """
        values = _probabilities(q)
        distinct, where = np.unique(_lattice_above(values), return_inverse=True)
        return self._rising(distinct, self._price_lattice)[where].reshape(values.shape)

    def _rising(self, distinct: FloatArray, price: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """Costs of rising q, made to rise with it; those of q = 0 are 0."""
        costs = np.zeros(distinct.size)
        drawn = distinct > 0.0
        priced, back = np.unique(np.maximum(distinct[drawn], SMALLEST_PROBABILITY), return_inverse=True)
        costs[drawn] = np.maximum.accumulate(price(priced))[back]
        return costs

    @overload
    def sampling_probability(self, epsilon: float) -> float: ...
    @overload
    def sampling_probability(self, epsilon: ArrayLike) -> FloatArray: ...
    def sampling_probability(self, epsilon: ArrayLike) -> FloatArray | float:
        """For each budget the largest q found whose cost is within it: 1 above cost(1), 0 below the least cost."""
        return _like(epsilon, self.certify(epsilon)[0])

    def certify(self, epsilon: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """`sampling_probability`, and the cost of each q returned: never above the budget."""
        budgets = np.asarray(epsilon, dtype=np.float64)
        if np.isnan(budgets).any() or (budgets < 0.0).any():
            bad = budgets[np.isnan(budgets) | (budgets < 0.0)].flat[0]
            raise InputError(f"epsilon={bad} must be a number that is not negative")
        q, cost = self._certificate.invert(budgets.ravel())
        return q.reshape(budgets.shape), cost.reshape(budgets.shape)

    def bounds(self, q: ArrayLike) -> Bounds:
        """Lower and upper bounds on the true cost of each q: the stated error of the curve."""
        values = np.atleast_1d(_probabilities(q)).astype(np.float64)
        upper = np.atleast_1d(self.epsilon(values))
        lower = np.zeros(values.shape)
        drawn = values >= SMALLEST_PROBABILITY  # below it only the upper bound is known
        lower[drawn] = pld.lower_epsilon(values[drawn], self._run, self.target_delta, upper[drawn])
        if (lower > upper * (1.0 + 1e-9)).any():
            raise PrivacyRefusal(
                f"a lower bound ({lower.max():.6g}) exceeds its upper bound: costs cannot be trusted; please report it"
            )
        return Bounds(np.minimum(lower, upper), upper)

    @overload
    def delta(self, q: float, epsilon: float) -> float: ...
    @overload
    def delta(self, q: float, epsilon: ArrayLike) -> FloatArray: ...
    def delta(self, q: float, epsilon: ArrayLike) -> FloatArray | float:
        """The profile δ(ε) of a record: upper bounds, at any ε ≥ 0, whatever the plan's own δ."""
        probability = float(_probabilities(q))
        levels = np.asarray(epsilon, dtype=np.float64)
        if not np.isfinite(levels).all() or (levels < 0.0).any():
            raise InputError(f"epsilon={epsilon!r} must be finite and not negative")
        if probability == 0.0 or self._run.steps == 0:
            return _like(epsilon, np.zeros(levels.shape))
        probability = max(probability, SMALLEST_PROBABILITY)
        values = np.array([self._one_delta(probability, float(level)) for level in levels.ravel()])
        return _like(epsilon, values.reshape(levels.shape))

    def advantage(self, q: float) -> float:
        """The membership advantage (total variation) that no attacker can exceed: δ at ε = 0."""
        return float(self.delta(q, 0.0))

    @property
    def largest_cost(self) -> float:
        """The cost of a record that is in every batch (q = 1); a larger budget buys nothing more."""
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
        """Rényi bounds at orders interpolated between those that are best at fixed knots, two per octave of q.

        Any order gives a valid bound, so only tightness is at stake, and the best orders change slowly with q. Knots
        are fixed so that the orders do not depend on what a q is priced together with.
        """
        position = -np.log2(q) * _GUIDES_PER_OCTAVE
        above = np.floor(position).astype(np.int64)
        bounds, thetas = self._guide_knots(above)
        part = position - above
        theta = np.exp((1.0 - part) * np.log(thetas[0]) + part * np.log(thetas[1]))
        run = self._run
        moment = renyi.run_log_moments(q, 1.0 + theta, run.noise_multiplier, run.local_steps, run.count)
        bound = renyi.tight_epsilon(moment, 1.0 + theta, self.target_delta)
        bound[bounds[0] == 0.0] = 0.0  # a larger q is free
        between = np.flatnonzero((bounds[0] > 0.0) & (bounds[1] == 0.0))  # at a free knot any order is as good
        best = self._renyi(q[between])
        bound[between], theta[between] = best.bound, best.theta
        return BestOrders(bound, theta)

    def _guide_knots(self, above: NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
        """Best bounds and orders at the knots next above and next below, a row each."""
        both = np.stack([above, above + 1])
        missing = [index for index in np.unique(both).tolist() if index not in self._knots]
        if missing:
            best = self._renyi(np.exp2(-np.array(missing) / _GUIDES_PER_OCTAVE))
            self._knots.update(zip(missing, zip(best.bound, best.theta, strict=True), strict=True))
        values = np.array([self._knots[index] for index in both.ravel().tolist()]).reshape(2, -1, 2)
        return values[..., 0], values[..., 1]

    def _price(self, q: FloatArray) -> FloatArray:
        """The cost of each q in (0, 1] by itself."""
        if self.accountant == "rdp":
            return self._renyi(q).bound
        guide = self._guide(q)
        costs = pld.upper_epsilon(q, self._run, self.target_delta, guide)
        kept = np.flatnonzero((costs >= guide.bound) & (costs > 0.0))
        costs[kept] = np.minimum(costs[kept], self._renyi(q[kept]).bound)  # there the best order matters
        return costs

    def _price_lattice(self, q: FloatArray) -> FloatArray:
        """The same for points of the lattice, each priced once: silos of a federation ask for the same ones."""
        missing = np.array([value for value in q.tolist() if value not in self._lattice])
        if missing.size:
            self._lattice.update(zip(missing.tolist(), self._price(missing).tolist(), strict=True))
        return np.array([self._lattice[value] for value in q.tolist()])

    def _one_delta(self, q: float, epsilon: float) -> float:
        run, row = self._run, np.array([q])
        level = np.array([epsilon])
        guide = renyi.best_log_delta(row, run.noise_multiplier, run.local_steps, run.count, level)
        log_bound = float(guide.bound[0])
        if math.isnan(log_bound):  # nothing is known, and nothing could guide the other route
            return 1.0
        bound = math.exp(min(0.0, log_bound))
        if self.accountant == "rdp":
            return bound
        other = float(pld.upper_delta(row, run, epsilon, guide)[0])
        return bound if math.isnan(other) else min(bound, other)


def _probabilities(q: ArrayLike) -> FloatArray:
    values = np.asarray(q, dtype=np.float64)
    wrong = ~((values >= 0.0) & (values <= 1.0))
    if wrong.any():
        raise InputError(f"q={values[wrong].flat[0]} must lie between 0 and 1")
    return values


def _lattice_above(q: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore"):
        steps = np.floor(-np.log2(q) * _LATTICE_PER_OCTAVE)
    return np.where(q > 0.0, np.maximum(np.exp2(-steps / _LATTICE_PER_OCTAVE), q), 0.0)


def _like(given: ArrayLike, values: FloatArray) -> FloatArray | float:
    """A float for a scalar argument, else the array."""
    return float(values) if np.ndim(given) == 0 else values
