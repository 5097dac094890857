"""What a request costs: the price of a record's weight w, at one δ, at any δ, and as a divergence; and its inverse.

A request releases Σ w_j x_j + N(0, s²L²), ‖x_j‖ ≤ L, once in each round, and nobody is sampled. For a record of weight
w the T releases are a Gaussian that moves by w√T/s standard deviations (`gaussian`): the price is exact, no estimate.

Nothing is searched for a record. Weights come from a public list that rises to 1, and a budget gets the largest one
whose price it covers. So a weight is a function of the public plan and the record's own budget (privacy.md, section 7).
The classes here have the methods of `PrivacyCurve`, `DeltaTable` and `DivergenceCurve`; q stands for the weight.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, overload

import numpy as np

from rpdp.accounting.arguments import finite_levels, like, not_negative, probabilities
from rpdp.accounting.certificate import largest_within
from rpdp.accounting.curve import Bounds
from rpdp.accounting.gaussian_profile import gaussian_delta, gaussian_epsilon, gaussian_lower_epsilon
from rpdp.accounting.noise_limits import require_priceable
from rpdp.accounting.participation import BinomialCount
from rpdp.checks import require_count, require_delta
from rpdp.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from rpdp.accounting._types import FloatArray
    from rpdp.accounting.schedule import Schedule

_WEIGHTS_PER_OCTAVE, _OCTAVES = 512, 24

PERSONAL_WEIGHTS: FloatArray = np.exp2(-np.arange(_OCTAVES * _WEIGHTS_PER_OCTAVE, -1, -1) / _WEIGHTS_PER_OCTAVE)
"""2⁻²⁴ … 1, 0.14 % apart: neighbours differ by at most 0.3 % in ε, and ledgers have few classes."""

ALL_OR_NOTHING: FloatArray = np.ones(1)

_COARSER = 4
"""Of the weights, records with a δ of their own get one in four. How many such δ there are is private and may show in
how long planning takes, so the table of each has to take next to no time."""

PERSONAL_WEIGHTS.flags.writeable = ALL_OR_NOTHING.flags.writeable = False

_ROUNDING = 4.0 * float(np.finfo(np.float64).eps)


class GaussianCurve:
    """The cost of a request for a record of weight w, at a given δ: exact, rounded up by less than 1e-8 of it.

    Args:
        schedule: Its rounds say how often the sums are released. All silos join all of them.
        noise_multiplier: s, the standard deviation of the noise on each cell divided by the norm L.
        delta: The δ of prices.
        weights: The weights that `certify` chooses from, rising to 1.

    >>> from rpdp.accounting.schedule import Schedule
    >>> curve = GaussianCurve(Schedule(1, 1, participation=1.0), noise_multiplier=4.0, delta=1e-5)
    >>> curve.epsilon([0.1, 1.0]).round(3)
    array([0.075, 0.926])
    >>> w = curve.sampling_probability(0.5)
    >>> bool(0.497 <= curve.epsilon(w) <= 0.5)
    True
    """

    def __init__(
        self,
        schedule: Schedule,
        *,
        noise_multiplier: float,
        delta: float,
        weights: FloatArray = PERSONAL_WEIGHTS,
    ) -> None:
        self.schedule = require_unsampled(schedule)
        self.noise_multiplier = require_priceable(noise_multiplier)
        self.target_delta = require_delta("delta", delta)
        self.weights = weights
        self._rounds = schedule.rounds

    def after(self, announced: int) -> GaussianCurve:
        """The curve of the first `announced` releases."""
        require_count("announced", announced, least=0, most=self.schedule.rounds)
        curve = GaussianCurve(
            self.schedule, noise_multiplier=self.noise_multiplier, delta=self.target_delta, weights=self.weights
        )
        curve._rounds = announced
        return curve

    def given(self, participations: int) -> GaussianCurve:
        """The curve given that the silo joined so many rounds; all of them, unless the run was ended early."""
        return self.after(participations)

    @overload
    def epsilon(self, q: float) -> float: ...
    @overload
    def epsilon(self, q: ArrayLike) -> FloatArray: ...
    def epsilon(self, q: ArrayLike) -> FloatArray | float:
        """The cost of each weight; 0 for a weight of 0."""
        weights = probabilities(q)
        distinct, where = np.unique(weights, return_inverse=True)
        costs = gaussian_epsilon(self._shift(distinct), self.target_delta)
        return like(q, costs[where].reshape(weights.shape))

    def epsilon_above(self, q: ArrayLike) -> FloatArray:
        """Like `epsilon`: a Gaussian's price needs no lattice."""
        return np.asarray(self.epsilon(np.asarray(q)))

    def covers(self, q: ArrayLike, cost: ArrayLike) -> NDArray[np.bool_]:
        """Whether each stated cost is at least that of its weight."""
        return np.asarray(np.asarray(cost) >= self.epsilon_above(q))

    @overload
    def sampling_probability(self, epsilon: float) -> float: ...
    @overload
    def sampling_probability(self, epsilon: ArrayLike) -> FloatArray: ...
    def sampling_probability(self, epsilon: ArrayLike) -> FloatArray | float:
        """For each budget, the largest weight of the list whose cost is within it; 0 if none is."""
        return like(epsilon, self.certify(epsilon)[0])

    def certify(self, epsilon: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """The weight for each budget and the cost of that weight, which never exceeds the budget."""
        return largest_within(self.weights, self._costs, not_negative(epsilon))

    def tabulate(self) -> None:
        """Compute the table now, so that no price takes longer than another."""
        self._costs  # noqa: B018

    def bounds(self, q: ArrayLike, *, accuracy: float = 0.0) -> Bounds:
        """Lower and upper bounds on the cost of each weight. They nearly meet, whatever `accuracy` is asked for."""
        del accuracy
        weights = np.atleast_1d(probabilities(q)).astype(np.float64)
        upper = self.epsilon_above(weights)
        lower = gaussian_lower_epsilon(self._shift(weights) * (1.0 - 2.0 * _ROUNDING), self.target_delta)
        return Bounds(np.minimum(lower, upper), upper)

    @overload
    def delta(self, q: float, epsilon: float) -> float: ...
    @overload
    def delta(self, q: float, epsilon: ArrayLike) -> FloatArray: ...
    def delta(self, q: float, epsilon: ArrayLike) -> FloatArray | float:
        """The privacy profile δ(ε) of a record of this weight, at any ε ≥ 0."""
        shift = self._shift(probabilities(q))
        return like(epsilon, gaussian_delta(shift, finite_levels(epsilon)))

    def advantage(self, q: float) -> float:
        """The largest membership advantage (total variation) that any attacker can have: δ at ε = 0."""
        return float(self.delta(q, 0.0))

    @property
    def largest_cost(self) -> float:
        """The cost of a record of weight 1; a larger budget has no further effect."""
        return float(self.epsilon(1.0))

    @cached_property
    def _costs(self) -> FloatArray:
        """The price of every weight of the list. A running maximum only raises it, and keeps it in order."""
        return np.maximum.accumulate(gaussian_epsilon(self._shift(self.weights), self.target_delta))

    def _shift(self, weights: FloatArray) -> FloatArray:
        return _shift(weights, self._rounds, self.noise_multiplier)


class GaussianDeltaTable:
    """The cost of a request for records with a δ of their own: exact as well, for weights 0.54 % apart."""

    def __init__(self, schedule: Schedule, *, noise_multiplier: float, weights: FloatArray = PERSONAL_WEIGHTS) -> None:
        self.schedule = require_unsampled(schedule)
        self.noise_multiplier = require_priceable(noise_multiplier)
        self.weights = weights[::-_COARSER][::-1]
        self._curves: dict[float, GaussianCurve] = {}

    def certify(self, epsilon: FloatArray, delta: float) -> tuple[FloatArray, FloatArray]:
        """For each budget, the largest weight whose cost is within it, and that cost; 0 and 0 if none is."""
        return self._curve(delta).certify(epsilon)

    def covers(self, q: FloatArray, cost: FloatArray, delta: float) -> NDArray[np.bool_]:
        """Whether each stated cost is at least that of its weight."""
        return self._curve(delta).covers(q, cost)

    def tabulate(self) -> None:
        """Nothing: the table of each δ takes a few thousandths of a second."""

    def _curve(self, delta: float) -> GaussianCurve:
        if delta not in self._curves:
            self._curves[delta] = GaussianCurve(
                self.schedule, noise_multiplier=self.noise_multiplier, delta=delta, weights=self.weights
            )
        return self._curves[delta]


class GaussianDivergence:
    """What a request costs a Rényi account of one order: ρ(w) = T w² α / (2s²), rounded up.

    >>> from rpdp.accounting.schedule import Schedule
    >>> curve = GaussianDivergence(Schedule(2, 1, participation=1.0), noise_multiplier=4.0, order=4.0)
    >>> curve.divergence(np.array([0.5, 1.0])).round(6)
    array([0.0625, 0.25  ])
    """

    def __init__(
        self, schedule: Schedule, *, noise_multiplier: float, order: float, weights: FloatArray = PERSONAL_WEIGHTS
    ) -> None:
        self.schedule = require_unsampled(schedule)
        self.noise_multiplier = require_priceable(noise_multiplier)
        self.order = order
        self.weights = weights

    def divergence(self, q: FloatArray) -> FloatArray:
        """The divergence of each weight."""
        shift = _shift(np.asarray(q, dtype=np.float64), self.schedule.rounds, self.noise_multiplier)
        return np.asarray(0.5 * self.order * shift**2 * (1.0 + _ROUNDING))

    def certify(self, divergence: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The weight for each divergence, and its own divergence, which never exceeds it."""
        return largest_within(self.weights, self.divergence(self.weights), np.asarray(divergence, dtype=np.float64))

    def covers(self, q: FloatArray, cost: FloatArray, times: int = 1) -> NDArray[np.bool_]:
        """Whether each stated cost is at least `times` the divergence of its weight."""
        return np.asarray(cost >= times * self.divergence(q))

    def tabulate(self) -> None:
        """Nothing: the table takes no time."""


def require_unsampled(schedule: Schedule) -> Schedule:
    """Return the schedule; all silos must join all of its rounds, with one step in each."""
    if schedule.local_steps != 1 or schedule.count() != BinomialCount(schedule.rounds, 1.0):
        raise InputError(
            f"{schedule.describe()}: a request is released once in every round, by all silos; use "
            f"Schedule({schedule.rounds}, 1, participation=1.0)"
        )
    return schedule


def _shift(weights: FloatArray, rounds: int, noise_multiplier: float) -> FloatArray:
    """w√T/s, rounded up: by how many standard deviations of the noise a record moves all releases together."""
    return np.asarray(weights * np.sqrt(float(rounds)) / noise_multiplier * (1.0 + _ROUNDING))
