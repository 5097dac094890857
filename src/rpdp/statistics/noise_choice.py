"""The noise of a request, chosen from declared budgets before any real one is seen, and what it lets one find out.

- **everyone**: the least noise at which a record with the budget of the floor pays for weight 1.
- **representative**: less noise makes weights more equal and the sum of them smaller; more noise saturates the weights
  of generous records, so that more weight on few records no longer costs sampling spread. The noise with the narrowest
  expected intervals is taken, among what every declared budget would need for weight 1. The largest of these gives
  every record weight 1, so the result is never wider than that of everybody at the smallest declared budget.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from rpdp.accounting.noise_limits import LARGEST_NOISE
from rpdp.checks import require_count, require_fraction, require_positive
from rpdp.display import counts_repr
from rpdp.errors import InputError
from rpdp.planning import MeasureSpec, PublicPlan, Request, assign_allowed, noise_for_weight_1
from rpdp.planning.allowances import Allowances
from rpdp.statistics.estimate import LEVEL, NoisyEstimate
from rpdp.statistics.expected_error import expected_estimates

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rpdp.statistics.inquiry import Inquiry

MOST_BUDGETS = 200
"""So many different budgets stand for a distribution."""

_CANDIDATES = 24
_ANY = Request("representative", (MeasureSpec("count", 1),))
"""What is measured does not matter for the price of a weight."""

_TINY = 1e-300


@dataclass(frozen=True)
class DeclaredRecords:
    """What is publicly known of the records before a request: how many there are, and what budgets they have.

    Attributes:
        budgets: A sample of lifetime ε, from a declared distribution and never from real budgets.
        records: The nominal number of records of one silo.
        silos: The number of silos.
    """

    budgets: NDArray[np.float64]
    records: int
    silos: int = 1

    __repr__ = counts_repr

    def __post_init__(self) -> None:
        require_count("records", self.records)
        require_count("silos", self.silos)
        if not len(self.budgets) or not (self.budgets > 0.0).all():
            raise InputError("declared budgets must be positive numbers")

    def levels(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """At most `MOST_BUDGETS` budgets that stand for the sample, and the share of records that each stands for."""
        found, counts = np.unique(self.budgets, return_counts=True)
        if len(found) > MOST_BUDGETS:
            edges = np.linspace(0.0, 1.0, MOST_BUDGETS + 1)
            found = np.quantile(self.budgets, (edges[1:] + edges[:-1]) / 2.0)
            return found, np.full(MOST_BUDGETS, 1.0 / MOST_BUDGETS)
        return found, counts / counts.sum()


@dataclass(frozen=True)
class RequestTerms:
    """The settings of the plan of a request that decide its prices.

    Attributes:
        delta: δ of the run.
        share: The share of a lifetime budget that it asks for.
        settings: Further settings of `PublicPlan.of_request`, such as account, lifetime_delta or silos_per_person.
    """

    delta: float
    share: float = 1.0
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_fraction("share", self.share)

    def plan(self, request: Request, noise_multiplier: float) -> PublicPlan:
        """The public plan of a request."""
        return PublicPlan.of_request(
            request,
            noise_multiplier=noise_multiplier,
            delta=self.delta,
            purpose="statistics",
            share=self.share,
            **self.settings,
        )

    def weights(self, request: Request, noise_multiplier: float, budgets: NDArray[np.float64]) -> NDArray[np.float64]:
        """The weights of unused accounts with these lifetime budgets."""
        plan = self.plan(request, noise_multiplier)
        ids = pa.chunked_array([pa.array([str(place) for place in range(len(budgets))])])
        return assign_allowed(plan, ids, Allowances.of_new_accounts(plan, budgets)).q

    def noise_for_weight_1(self, budgets: NDArray[np.float64]) -> NDArray[np.float64]:
        """The least noise at which each budget pays for weight 1."""
        needed = noise_for_weight_1(self.plan(_ANY, LARGEST_NOISE), budgets)
        if (needed > LARGEST_NOISE).any():
            short = float(budgets[needed > LARGEST_NOISE].max())
            raise InputError(
                f"a share of {self.share:g} of a budget ε = {short:g} pays for no weight of use; ask for a larger share"
            )
        return needed


@dataclass(frozen=True)
class NoiseChoice:
    """A noise and what it leads to.

    Attributes:
        noise_multiplier: s.
        share: The share of a lifetime budget that was planned with.
        taking_part: The expected share of records with a weight above 0.
        mean_weight: The expected mean weight of all records.
        estimates: Estimates with intervals as wide as are to be expected; their values mean nothing.
    """

    noise_multiplier: float
    share: float
    taking_part: float
    mean_weight: float
    estimates: tuple[NoisyEstimate, ...]


def choose_noise(
    inquiry: Inquiry,
    known: DeclaredRecords,
    terms: RequestTerms,
    *,
    floor: float | None = None,
    level: float = LEVEL,
) -> NoiseChoice:
    """The noise of an inquiry from what is declared.

    Args:
        inquiry: The statistics and their estimator.
        known: The declared records.
        terms: The settings that decide prices.
        floor: For "everyone": the least lifetime ε that takes part; by default the least declared budget.
        level: The level of the intervals that are shown.
    """
    budgets, shares = known.levels()
    needed = terms.noise_for_weight_1(budgets)
    if inquiry.estimator == "everyone":
        least = budgets.min() if floor is None else require_positive("floor", floor)
        noise = float(terms.noise_for_weight_1(np.array([least]))[0])
        return _choice(inquiry, known, terms, noise, shares * (needed <= noise), level)
    if floor is not None:
        raise InputError(f'floor={floor:g} is for the estimator "everyone"; weights leave nobody out')
    candidates = np.unique(np.geomspace(needed.min(), needed.max(), _CANDIDATES))
    candidates[-1] = needed.max()
    choices = [
        _choice(inquiry, known, terms, float(noise), shares * np.minimum(noise / needed, 1.0), level)
        for noise in candidates
    ]
    widths = np.array([[estimate.half_width for estimate in choice.estimates] for choice in choices])
    relative = widths / np.maximum(widths.min(axis=0), _TINY)
    return choices[int(relative.mean(axis=1).argmin())]


def _choice(
    inquiry: Inquiry,
    known: DeclaredRecords,
    terms: RequestTerms,
    noise_multiplier: float,
    weights: NDArray[np.float64],
    level: float,
) -> NoiseChoice:
    """What a noise leads to; `weights` are those of the declared budgets, each times the share of its records."""
    mean_weight = float(weights.sum())
    if mean_weight <= 0.0:
        raise InputError(
            f"with noise_multiplier={noise_multiplier:g} no declared record can take part; lower the floor"
        )
    estimates = expected_estimates(
        inquiry,
        total_weight=mean_weight * known.records * known.silos,
        noise_multiplier=noise_multiplier,
        silos=known.silos,
        level=level,
    )
    taking_part = mean_weight if inquiry.estimator == "everyone" else 1.0
    return NoiseChoice(noise_multiplier, terms.share, taking_part, mean_weight, tuple(estimates))
