"""Noise calibration ends on the safe side, close to the target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rpdp import PrivacyCurve, Schedule, calibrate_noise
from rpdp.errors import InputError

if TYPE_CHECKING:
    from rpdp.accounting import Accountant

SCHEDULES = [
    Schedule(15, 50, participation=0.5),
    Schedule(15, 50, participations=8),
    Schedule(1, 1, participation=1.0),
    Schedule(40, 3, participation=0.2, max_participations=5),
]


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize(("epsilon", "q"), [(10.0, 1.0), (0.3, 0.05)])
def test_smallest_noise_on_the_safe_side(schedule: Schedule, epsilon: float, q: float, accountant: Accountant) -> None:
    sigma = calibrate_noise(schedule, epsilon=epsilon, delta=1e-5, sampling_probability=q, accountant=accountant)

    def cost(noise: float) -> float:
        return PrivacyCurve(schedule, noise_multiplier=noise, delta=1e-5, accountant=accountant).epsilon(q)

    assert cost(sigma) <= epsilon
    assert cost(sigma * 0.998) > epsilon


def test_the_papers_setting() -> None:
    """Whole orders give ε(1) = 10 at σ = 10.748 there; all orders need a little less noise."""
    schedule = Schedule(15, 50, participation=0.5)
    assert calibrate_noise(schedule, epsilon=10.0, delta=1e-4, accountant="rdp") == pytest.approx(10.57, abs=0.02)
    assert calibrate_noise(schedule, epsilon=10.0, delta=1e-4) == pytest.approx(9.744, abs=0.01)


def test_a_target_that_needs_no_noise_gets_the_least() -> None:
    assert calibrate_noise(Schedule(1, 1, participation=1.0), epsilon=1e9, delta=0.5) == 0.05


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"epsilon": 0.0}, "epsilon=0.0"),
        ({"epsilon": float("inf")}, "epsilon=inf"),
        ({"delta": 2.0}, "delta=2.0"),
        ({"sampling_probability": 0.0}, "sampling_probability=0.0"),
        ({"tolerance": -1.0}, "tolerance=-1.0"),
        ({"accountant": "magic"}, "accountant='magic'"),
        ({"epsilon": 1e-7, "delta": 1e-15}, "cannot be reached"),
    ],
)
def test_wrong_arguments_are_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        calibrate_noise(Schedule(1000, 1000, participation=1.0), **{"epsilon": 1.0, "delta": 1e-5, **change})
