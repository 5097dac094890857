"""Does a person's risk change when *others* choose other budgets, at the same own (ε, δ)?

The question of Kaiser et al. (2026, arXiv 2601.12922). An (ε, δ) is one point of a profile δ(ε). Where noise and
sampling are set together from all the budgets found in the data, others move σ, one's own q moves with it along the
same (ε, δ), and the rest of the profile changes: the promise holds, the risk does not stay. Here σ, B and the schedule
come from a policy that is fixed before any budget is seen, and q from σ and one's own ε alone, so the others change
nothing. (B and the weights scale what is released already: no profile depends on them.) This module computes what would
happen if σ did follow the budgets.

Risk is compared in two ways, both for an observer who sees everything. *Advantage*: δ(0), the largest difference of
true and false positive rates. *Excess*: the largest gain, over all prior beliefs, in the chance that the best
attacker's guess is right. For a prior with odds e^x that chance is at most (e^x + δ(x)) / (1 + e^x), so the gain is the
maximum over x ≥ 0 of (δ(x) − δ'(x)) / (1 + e^x) (the Δ-divergence of Kaissis et al. 2024, arXiv 2406.08918, for
profiles that are the worse of both directions). Both are computed from upper bounds.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rpdp.accounting import PrivacyCurve, calibrate_noise
from rpdp.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.planning import PublicPlan

_LEVELS = np.array([0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 2.0])
"""Where profiles are compared, in units of one's own ε."""

_FACTORS = (2.0, 4.0)
_LOOK_AT_OTHERS = ("minimum", "dropout")
_SMALLEST_NOISE = 0.5
"""Nobody plans with less noise, and its costs take long to compute."""


@dataclass(frozen=True)
class Scenario:
    """What the others ask for, and what it would do to one record.

    Attributes:
        name: In words.
        noise_multiplier: σ.
        probability: q of the record.
        cost: Never above its ε.
        advantage: δ(0).
        excess: How much more often the best guess could be right than under the plan as it is.
        profile: δ at each of `levels`.
    """

    name: str
    noise_multiplier: float
    probability: float
    cost: float
    advantage: float
    excess: float
    profile: tuple[float, ...]


@dataclass(frozen=True)
class RiskComparison:
    """One record with budget ε, and what others could do to its risk.

    Attributes:
        epsilon: Of the record.
        levels: Where profiles are given.
        own: Under the plan as it is, whatever the others choose.
        scenarios: If σ followed the budgets found in the data.
    """

    epsilon: float
    levels: tuple[float, ...]
    own: Scenario
    scenarios: tuple[Scenario, ...]

    @property
    def worst(self) -> Scenario:
        """The scenario with the largest advantage."""
        return max(self.scenarios, key=lambda scenario: scenario.advantage)

    @property
    def least(self) -> Scenario:
        """The scenario with the smallest advantage."""
        return min(self.scenarios, key=lambda scenario: scenario.advantage)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def advice(public: PublicPlan, method: str = "rpdp") -> str:
    """The planner's answer to the question, in sentences."""
    if method in _LOOK_AT_OTHERS:
        return (
            f"Method {method} draws everybody by the budgets of all, so here the others do change one's q, within the "
            "own (ε, δ). Method rpdp looks at σ, which is policy, and the own ε alone."
        )
    return (
        f"Under this plan nobody's risk depends on the others: σ = {public.noise_multiplier:.4g} is policy, fixed "
        "before any budget is seen, and q follows from σ and the own ε. Keep it so: a σ that follows the budgets "
        "changes what the same (ε, δ) is worth."
    )


def compare_risk(public: PublicPlan, epsilon: float) -> RiskComparison:
    """The risk of a record that allows `epsilon`, under this plan and if σ followed the others' budgets."""
    planned = public.curve
    if not isinstance(planned, PrivacyCurve):
        raise InputError("the plan has a request, which samples nobody: others' budgets cannot change a record's risk")
    levels = _LEVELS * epsilon
    own = _scenario("this plan", planned, epsilon, levels, None)
    ceiling = planned.largest_cost
    asked = {f"nobody asks for more than ε = {epsilon:g}": epsilon}
    asked |= {f"somebody asks for ε = {factor * ceiling:.3g}": factor * ceiling for factor in _FACTORS}
    found = []
    for name, most in asked.items():
        sigma = calibrate_noise(public.schedule, epsilon=most, delta=public.delta, accountant=public.accountant)
        if sigma >= _SMALLEST_NOISE:
            curve = PrivacyCurve(
                public.schedule, noise_multiplier=sigma, delta=public.delta, accountant=public.accountant
            )
            found.append(_scenario(name, curve, epsilon, levels, np.array(own.profile)))
    return RiskComparison(epsilon, tuple(levels.tolist()), own, tuple(found))


def _scenario(
    name: str, curve: PrivacyCurve, epsilon: float, levels: NDArray[np.float64], own: NDArray[np.float64] | None
) -> Scenario:
    q, cost = (float(value) for value in curve.certify(epsilon))
    profile = curve.delta(q, levels)
    gain = 0.0 if own is None else float(np.max((profile - own) / (1.0 + np.exp(levels)), initial=0.0))
    return Scenario(name, curve.noise_multiplier, q, cost, float(profile[0]), gain, tuple(profile.tolist()))
