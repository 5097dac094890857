"""The trade-off between sampling and noise."""

from __future__ import annotations

import numpy as np
import pytest

from rpdp import PrivacyCurve, Schedule
from rpdp.budgets import ThreeLevels
from rpdp.errors import InputError
from rpdp.planning import FrontierPoint, frontier, knee

SCHEDULE = Schedule(15, 50, participation=0.5)


def test_signal_is_nearly_flat_while_compute_grows() -> None:
    """The observation behind the frontier: at the MNIST setting σ = 3 gives almost the signal of σ = 10.7."""
    points = list(
        frontier(
            SCHEDULE,
            ThreeLevels().sample(4000, 0),
            delta=1e-4,
            noise_multipliers=[1.0, 3.0, 10.7, 30.0],
            accountant="rdp",
        )
    )
    batches = [point.expected_batch for point in points]
    assert (np.diff(batches) > 0).all()
    assert points[1].signal_to_noise > 0.93 * points[2].signal_to_noise
    assert points[1].gradients_per_round < 0.4 * points[2].gradients_per_round
    assert points[3].in_every_batch == 400
    assert knee(points) == 1
    assert points[0].signal_to_noise == pytest.approx(points[0].expected_batch)


def test_knee_of_few_points_is_the_best_signal() -> None:
    points = [FrontierPoint(1.0, 1.0, 10.0, 10.0, 10.0, 0, 0), FrontierPoint(2.0, 1.0, 30.0, 30.0, 15.0, 0, 0)]
    assert knee(points) == 1


def test_no_noise_levels_are_refused() -> None:
    with pytest.raises(InputError, match="at least one"):
        list(frontier(SCHEDULE, np.array([1.0]), delta=1e-4, noise_multipliers=[]))


def test_a_point_counts_records_gradients_and_noise() -> None:
    schedule, budgets = Schedule(2, 3, participation=1.0), np.array([1.0, 1.0, 50.0, 0.0, 0.0, 0.0])
    (point,) = frontier(schedule, budgets, delta=1e-4, noise_multipliers=[4], accountant="rdp")
    curve = PrivacyCurve(schedule, noise_multiplier=4.0, delta=1e-4, accountant="rdp")
    q = curve.sampling_probability(1.0)
    assert 0.0 < q < 1.0
    assert (point.noise_multiplier, point.largest_cost) == (4.0, curve.largest_cost)
    assert (point.left_out, point.in_every_batch) == (3, 1)
    assert point.expected_batch == pytest.approx(2.0 * q + 1.0)
    assert point.gradients_per_round == pytest.approx(3.0 * (2.0 * q + 1.0))
    assert point.signal_to_noise == pytest.approx((2.0 * q + 1.0) / 4.0)


@pytest.mark.parametrize(
    ("gradients", "signals", "best"),
    [
        ([10.0, 100.0, 1000.0], [1.0, 1.9, 2.0], 1),  # nearly all of the signal for a tenth of the compute
        ([10.0, 100.0, 1000.0], [1.0, 1.1, 2.0], 0),  # both ends lie on the line, the middle below it
        ([1000.0, 100.0, 10.0], [2.0, 1.9, 1.0], 1),
        ([10.0, 10.0, 10.0], [1.0, 2.0, 3.0], 2),  # no compute to save
        ([10.0, 20.0, 30.0], [1.0, 1.0, 1.0], 0),
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], 0),  # nobody can take part
    ],
)
def test_the_knee(gradients: list[float], signals: list[float], best: int) -> None:
    points = [FrontierPoint(1.0, 1.0, 1.0, *pair, 0, 0) for pair in zip(gradients, signals, strict=True)]
    assert knee(points) == best
