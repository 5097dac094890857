"""Extreme settings: a correct upper bound or a clear refusal; never NaN, never negative, no warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from rpdp import PrivacyCurve, Schedule
from rpdp.accounting.pld import ACCURACY, ACCURACY_FLOOR
from tests.accounting.certificates import random_schedule

if TYPE_CHECKING:
    from rpdp.accounting._types import FloatArray


def random_extreme(generator: np.random.Generator) -> tuple[Schedule, float, float, np.ndarray]:
    def spread(low: float, high: float) -> float:
        return float(np.exp(generator.uniform(np.log(low), np.log(high))))

    rounds, local_steps, participation = int(spread(1, 1e5)), int(spread(1, 1e5)), spread(1e-6, 1.0)
    schedule = random_schedule(generator, rounds, local_steps, participation)
    q = np.sort([1e-12, 1.0, *(spread(1e-12, 1.0) for _ in range(4))])
    return schedule, spread(0.3, 1000.0), spread(1e-15, 0.1), q


CORNERS = [
    (Schedule(rounds, local_steps, participation=participation), sigma, delta)
    for rounds, local_steps in ((1, 1), (100_000, 100_000))
    for participation in (1e-6, 1.0)
    for sigma in (0.3, 1000.0)
    for delta in (1e-15, 0.1)
]


def is_monotone(upper: FloatArray) -> bool:
    """Whether the bounds rise with q, within their accuracy."""
    dips = np.maximum.accumulate(upper) - upper
    return bool((dips <= ACCURACY * np.maximum(upper, ACCURACY_FLOOR)).all())


def assert_sound(schedule: Schedule, sigma: float, delta: float, q: np.ndarray, *, in_use: bool = True) -> None:
    curve = PrivacyCurve(schedule, noise_multiplier=sigma, delta=delta)
    renyi = PrivacyCurve(schedule, noise_multiplier=sigma, delta=delta, accountant="rdp").epsilon(q)
    bounds = curve.bounds(q)
    assert np.isfinite(bounds.upper).all()
    assert (bounds.upper >= 0).all()
    # A cost rises with q, so no upper bound may be below a lower bound of a smaller q.
    assert (np.maximum.accumulate(bounds.lower) <= bounds.upper).all()
    assert (bounds.upper <= renyi * (1 + 1e-6)).all()
    assert (bounds.lower <= bounds.upper).all()
    assert is_monotone(bounds.upper) or not in_use
    profile = curve.delta(float(q[2]), np.array([0.0, 0.5, 5.0]))
    assert ((profile >= 0) & (profile <= 1)).all()


@pytest.mark.parametrize(("schedule", "sigma", "delta"), CORNERS, ids=str)
def test_corners(schedule: Schedule, sigma: float, delta: float) -> None:
    assert_sound(schedule, sigma, delta, np.array([1e-12, 1e-8, 1e-4, 0.01, 0.3, 1.0]))


@pytest.mark.parametrize("seed", range(1, 5))
def test_certified_at_random_extremes(seed: int) -> None:
    schedule, sigma, delta, _ = random_extreme(np.random.default_rng([9, seed]))
    curve = PrivacyCurve(schedule, noise_multiplier=sigma, delta=delta)
    probabilities, costs = curve.certify([0.1, 1.0])
    assert (costs <= np.array([0.1, 1.0])).all()
    assert ((probabilities >= 0) & (probabilities <= 1)).all()
    assert (curve.epsilon(probabilities) <= np.array([0.1, 1.0]) * (1 + 1e-9)).all()


@pytest.mark.parametrize("seed", range(8))
def test_random_extremes(seed: int) -> None:
    assert_sound(*random_extreme(np.random.default_rng(seed)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 400))
def test_random_extremes_at_length(seed: int) -> None:
    # Of these 300, five are so far beyond all use that a valid bound of a small q is loose, and the next one dips.
    assert_sound(*random_extreme(np.random.default_rng(seed)), in_use=False)
