"""The paper's two settings, priced again by somebody else's PLD, rounds that are sat out included.

The observer sees how many rounds k a silo joined, so δ(ε) = Σ Pr[k] δ_k(ε) in each direction, with δ_k from
`dp_accounting` for exactly k rounds: an accountant that shares neither code nor composition with ours.
"""

from __future__ import annotations

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution, from_gaussian_mechanism
from scipy import stats

from rpdp import PrivacyCurve, Schedule, calibrate_noise

LEVELS = (0.1, 1.0, 5.0)
THEIR_ERROR = 1.01  # their grid errs on the safe side too, by up to this factor of δ here


def delta_by_mixture(q: float, sigma: float, schedule: Schedule, epsilon: float, grid: float) -> float:
    """The smallest δ at this ε, by dp_accounting's PLD of each number of joined rounds."""
    joined = _law(schedule)
    step = from_gaussian_mechanism(
        sigma, sampling_prob=q, value_discretization_interval=grid, use_connect_dots=True, pessimistic_estimate=True
    )
    total = np.zeros(2)
    for count, probability in enumerate(joined):
        if count and probability > 0.0:
            composed = step.self_compose(count * schedule.local_steps)
            total += probability * np.array([_delta(composed, epsilon, side) for side in ("_pmf_remove", "_pmf_add")])
    return float(total.max())


def _law(schedule: Schedule) -> list[float]:
    """Pr[k joined rounds], written once more from its definition."""
    if schedule.participations is not None:
        return [float(k == schedule.participations) for k in range(schedule.rounds + 1)]
    cap = schedule.max_participations or schedule.rounds
    assert schedule.participation is not None
    law = stats.binom(schedule.rounds, schedule.participation)
    return [float(law.pmf(k) if k < cap else law.sf(cap - 1)) for k in range(cap + 1)]


def _delta(composed: PrivacyLossDistribution, epsilon: float, side: str) -> float:
    return float(getattr(composed, side).get_delta_for_epsilon(epsilon))


@pytest.mark.parametrize(
    ("schedule", "sigma", "delta"),
    [
        pytest.param(Schedule(15, 10, participation=1.0), None, 1e-3, id="Heart-Disease"),
        pytest.param(Schedule(15, 50, participation=0.5, max_participations=7), 3.0, 1e-4, id="MNIST"),
        pytest.param(Schedule(15, 50, participation=0.5), None, 1e-4, id="MNIST without a cap"),
        pytest.param(Schedule(15, 50, participations=8), 3.0, 1e-4, id="MNIST, exactly 8"),
    ],
)
@pytest.mark.parametrize("budget", LEVELS)
def test_certified_probabilities_are_within_budget(
    schedule: Schedule, sigma: float | None, delta: float, budget: float
) -> None:
    """5 % more than the certified probability is caught, so the check is sharp."""
    noise = calibrate_noise(schedule, epsilon=10.0, delta=delta) if sigma is None else sigma
    q = PrivacyCurve(schedule, noise_multiplier=noise, delta=delta).sampling_probability(budget)
    grid = 2e-5 * max(budget, 0.2)
    assert delta_by_mixture(q, noise, schedule, budget, grid) <= delta * THEIR_ERROR
    assert delta_by_mixture(min(1.05 * q, 1.0), noise, schedule, budget, grid) > delta * THEIR_ERROR
