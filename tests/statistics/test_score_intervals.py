"""Fieller's intervals cover at their rate, also where denominators are as small as the noise."""

from __future__ import annotations

import numpy as np
import pytest

from rpdp.statistics.score_counts import NoisyCounts
from rpdp.statistics.score_intervals import MetricInterval, pair_ratio, ratio

RELEASES = 2000
LEAST = 0.935
"""At 2,000 releases and a rate of 0.95, one test in 1,000 falls below this."""


def _ratios(deviation: float, stated: float) -> list[MetricInterval]:
    noise = np.random.default_rng(5).standard_normal((RELEASES, 2)) * deviation
    above, below = np.array([1.0, 0.0]), np.ones(2)
    return [ratio(NoisyCounts.plain(np.array([60.0, 40.0]) + row, stated), above, below, 0.95) for row in noise]


@pytest.mark.parametrize("deviation", [1.0, 10.0, 40.0])
def test_the_interval_of_a_ratio_covers_at_its_rate(deviation: float) -> None:
    covered = np.mean([one.low <= 0.6 <= one.high for one in _ratios(deviation, deviation)])
    assert covered >= LEAST


def test_an_interval_for_two_thirds_of_the_noise_does_not() -> None:
    assert np.mean([one.low <= 0.6 <= one.high for one in _ratios(10.0, 10.0 * 2 / 3)]) < LEAST


def test_a_denominator_that_may_be_zero_rules_nothing_out() -> None:
    found = ratio(NoisyCounts.plain(np.array([1.0, 1.0]), 50.0), np.array([1.0, 0.0]), np.ones(2), 0.95)
    assert found == (0.5, 0.0, 1.0)
    assert ratio(NoisyCounts.plain(-np.ones(2), 1.0), np.array([1.0, 0.0]), np.ones(2), 0.95).value is None


def test_without_noise_an_interval_has_no_length() -> None:
    found = ratio(NoisyCounts.plain(np.array([3.0, 1.0]), 0.0), np.array([1.0, 0.0]), np.ones(2), 0.95)
    assert found == pytest.approx((0.75, 0.75, 0.75))
    assert found.half_width == pytest.approx(0.0)


def test_pairs_without_noise_are_counted() -> None:
    ahead, behind = (NoisyCounts.plain(np.array(values), 0.0) for values in ([1.0, 3.0], [2.0, 2.0]))
    above = np.array([[0.0, 0.0], [1.0, 0.0]])
    assert pair_ratio(ahead, behind, above, 0.95).value == pytest.approx(6 / 16)


@pytest.mark.parametrize("deviation", [3.0, 20.0])
def test_the_interval_of_pairs_covers_at_its_rate(deviation: float) -> None:
    ahead, behind, above = np.array([10.0, 20.0, 50.0]), np.array([60.0, 30.0, 20.0]), np.tril(np.ones((3, 3)), -1)
    true = ahead @ above @ behind / (ahead.sum() * behind.sum())
    noise = np.random.default_rng(6).standard_normal((RELEASES, 2, 3)) * deviation
    found = [
        pair_ratio(NoisyCounts.plain(ahead + one, deviation), NoisyCounts.plain(behind + other, deviation), above, 0.95)
        for one, other in noise
    ]
    assert np.mean([one.low <= true <= one.high for one in found]) >= LEAST


def test_pairs_without_records_have_no_value() -> None:
    nobody = NoisyCounts.plain(np.array([-1.0, 0.5]), 1.0)
    assert pair_ratio(nobody, nobody, np.eye(2), 0.95) == (None, 0.0, 1.0)
