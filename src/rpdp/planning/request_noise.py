"""The noise of a request, and what it leads to, from declared budgets: who takes part, weights, expected error.

Record j pays for weight 1 from a noise of s_j on (`noise_for_weight_1`). At noise s its weight is min(1, s/s_j) by the
estimator *representative*; by *everyone* it is 1 if s ≥ s_j, and else 0.

A mean is a ratio A/B with A = Σ w_j x_j + N(0, s²L²) and B = Σ w_j + N(0, s²L²), all in one vector. For n records in
each of K silos, which add their own noise, and values |x| ≤ 1 with mean θ and variance V, to first order

    error² = (K s²L² (1 + θ²) + (Σw² − (Σw)²/(Kn)) V) / (Σw)².

The first part is the noise of both sums. The second is that of a sample with unequal weights, if they do not depend on
values; it is 0 if all weights are equal, and for *everyone*, whose question is the mean of the records that take part.

As long as no weight reaches 1, all are in proportion to s, and the error does not depend on it. From the smallest s_j
on, generous records have weight 1: more noise buys the others more weight, so that a few records no longer decide. From
the largest s_j on, all have weight 1, and more noise is only harm. So the best noise lies between the two. It is found
on a public grid. (Cf. arXiv 2305.09668, where saturation is derived for one mean.) For *everyone* each s_j is a floor:
less noise, fewer records; the best floor has the smallest s over the share of records above it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from rpdp.accounting.gaussian_profile import gaussian_shift
from rpdp.accounting.noise_limits import LARGEST_NOISE, SMALLEST_NOISE
from rpdp.accounting.renyi_filter import ORDERS
from rpdp.checks import require_count
from rpdp.errors import InputError, PlanError
from rpdp.planning.allowances import Allowances
from rpdp.planning.assignment import assign_allowed

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from rpdp.planning.public_plan import PublicPlan
    from rpdp.planning.request import Request

    Numbers = NDArray[np.float64]

_CANDIDATES = 256
_MOST_FLOORS = 1024
_SLIGHTLY = 1.0 + 1e-12
"""So that weight 1 is paid for in spite of rounding."""


@dataclass(frozen=True)
class ValuesInMeasure:
    """What is publicly known or assumed of a value in its measure, where |x| ≤ 1. By default: evenly over the range."""

    mean: float = 0.0
    variance: float = 1.0 / 3.0

    def __post_init__(self) -> None:
        if not (abs(self.mean) <= 1.0 and 0.0 <= self.variance <= 1.0 - self.mean**2 + 1e-12):
            raise InputError(f"{self!r}: values in [−1, 1] have no such mean and variance")


EVEN = ValuesInMeasure()


@dataclass(frozen=True)
class ExpectedWeights:
    """The weights of a request for records with declared budgets. Public, as it rests on declarations alone.

    Attributes:
        request: The request.
        noise_multiplier: s.
        share_taking_part: The share of records with a weight above 0; for *everyone*, those above the floor.
        mean: The mean weight of all records: Σw/n.
        mean_square: The mean of squared weights: Σw²/n.
    """

    request: Request
    noise_multiplier: float
    share_taking_part: float
    mean: float
    mean_square: float

    def error(self, records: int, silos: int = 1, values: ValuesInMeasure = EVEN) -> float:
        """The expected standard error of a mean in units of its measure: infinite if nobody takes part.

        Args:
            records: The number of records in each silo.
            silos: The number of silos, each with its own noise.
            values: What is assumed of values.
        """
        require_count("records", records)
        require_count("silos", silos)
        if self.mean == 0.0:
            return float("inf")
        noise = silos * (self.noise_multiplier * self.request.norm) ** 2 * (1.0 + values.mean**2)
        spread = 0.0
        if self.request.estimator == "representative":
            spread = silos * records * max(self.mean_square - self.mean**2, 0.0) * values.variance
        return float(np.sqrt(noise + spread)) / (silos * records * self.mean)


def expected_weights(public: PublicPlan, budgets: ArrayLike) -> ExpectedWeights:
    """The weights of unused accounts whose lifetime budgets are like these, if the run takes the plan's share."""
    request, epsilon = _request(public), _declared(budgets)
    levels, counts = np.unique(epsilon, return_counts=True)
    ids = pa.chunked_array([pa.array([str(row) for row in range(levels.size)], pa.string())])
    weights = assign_allowed(public, ids, Allowances.of_new_accounts(public, levels)).q
    return _expected(request, public.noise_multiplier, weights, counts)


def noise_for_weight_1(public: PublicPlan, budgets: ArrayLike) -> Numbers:
    """For each declared lifetime budget the least s at which its share pays for weight 1; infinite if none does.

    The plan's own noise does not matter.
    """
    _request(public)
    allowed = Allowances.of_new_accounts(public, _declared(budgets))
    rounds, result = float(public.schedule.rounds), np.full(allowed.amount.shape, np.inf)
    with np.errstate(divide="ignore"):
        if public.account == "renyi":
            halved = 0.5 * rounds * allowed.silos_per_person * ORDERS[allowed.order]
            result = np.sqrt(halved / allowed.amount)
        else:
            delta = public.delta if allowed.common_delta is None else allowed.common_delta
            result = np.sqrt(rounds) / gaussian_shift(allowed.amount, delta)
    return np.maximum(result * _SLIGHTLY, SMALLEST_NOISE)


def with_best_noise(
    public: PublicPlan, budgets: ArrayLike, records: int, silos: int = 1, values: ValuesInMeasure = EVEN
) -> PublicPlan:
    """The plan with the noise at which a mean has the smallest expected error, for declared budgets and sizes.

    For *everyone* this also chooses the floor, and with it the records that the mean is about: state a floor of your
    own by the noise that it needs (`noise_for_weight_1`) where that should not follow from precision.
    """
    request, epsilon = _request(public), _declared(budgets)
    needed = np.sort(noise_for_weight_1(public, epsilon))
    usable = needed[needed <= LARGEST_NOISE]
    if usable.size == 0:
        raise PlanError(
            f"no declared budget pays for weight 1 with a noise multiplier up to {LARGEST_NOISE:g}; ask for a larger "
            "share, or for fewer rounds"
        )
    errors = {
        noise: _expected(request, noise, _weights(request, noise, needed)).error(records, silos, values)
        for noise in _candidates(request, usable).tolist()
    }
    return replace(public, noise_multiplier=min(errors, key=lambda noise: (errors[noise], noise)))


def _candidates(request: Request, needed: Numbers) -> Numbers:
    """The noises to try: floors of *everyone*; for weights, a grid from the first that saturates to the last."""
    if request.estimator == "everyone":
        floors = np.unique(needed)
        return floors[np.unique(np.linspace(0, floors.size - 1, _MOST_FLOORS).astype(np.int64))]
    return np.append(np.geomspace(needed[0], needed[-1], _CANDIDATES)[:-1], needed[-1])


def _weights(request: Request, noise: float, needed: Numbers) -> Numbers:
    ratio = noise / needed
    return np.where(ratio >= 1.0, 1.0, 0.0) if request.estimator == "everyone" else np.minimum(ratio, 1.0)


def _expected(
    request: Request, noise: float, weights: Numbers, counts: NDArray[np.int64] | None = None
) -> ExpectedWeights:
    share, mean, square = (
        float(np.average(column, weights=counts)) for column in ((weights > 0.0), weights, weights**2)
    )
    return ExpectedWeights(request, noise, share, mean, square)


def _request(public: PublicPlan) -> Request:
    if public.request is None:
        raise InputError("this plan trains; a noise for weights needs a plan with a request (PublicPlan.of_request)")
    return public.request


def _declared(budgets: ArrayLike) -> Numbers:
    epsilon = np.asarray(budgets, dtype=np.float64)
    if epsilon.ndim != 1 or epsilon.size == 0 or not ((epsilon > 0.0) & np.isfinite(epsilon)).all():
        raise InputError("declared budgets must be one or more positive numbers")
    return epsilon
