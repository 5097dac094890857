"""The accountant against two oracles that share nothing with it: contour integration, and a binomial attack.

First the oracles themselves, against closed forms; then the promise δ_true(cost) ≤ δ over random settings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import mpmath
import numpy as np
import pytest

from rpdp import Schedule
from tests.accounting.attack import at_least, attack_delta
from tests.accounting.oracle import Delta, delta_of_direction, exact_delta, participation_masses
from tests.accounting.settings import Setting, edge_settings, random_settings

if TYPE_CHECKING:
    from collections.abc import Iterable

LEAST_EPSILON = 0.01
"""Cheaper records are checked here: δ falls with ε, so too large a δ here is too large at their cost as well."""

LARGEST_EPSILON = 50.0
USUAL_ERROR, LARGEST_ERROR = 1e-6, 0.01
BETWEEN_ORACLES = 1e-4
"""Of δ: how far the attack may be above the contour integral, whose own error is an estimate (seen: up to 2.1e-5)."""

"""The oracle's own error as a fraction of δ: in at least nine of ten settings, and in every one that it judges."""

mpmath.mp.dps = 40


def normal_above(x: float) -> mpmath.mpf:
    return mpmath.erfc(mpmath.mpf(x) / mpmath.sqrt(2)) / 2


def gaussian_delta(epsilon: float, mu: mpmath.mpf) -> mpmath.mpf:
    """Balle and Wang 2018."""
    epsilon = mpmath.mpf(epsilon)
    return normal_above(epsilon / mu - mu / 2) - mpmath.exp(epsilon) * normal_above(epsilon / mu + mu / 2)


def single_step_delta(sigma: float, q: float, epsilon: float, *, removing: bool) -> mpmath.mpf:
    """One step: the likelihood ratio is monotone in the output, so a threshold is the best test."""
    s, p, e = mpmath.mpf(sigma), mpmath.mpf(q), mpmath.exp(mpmath.mpf(epsilon))
    ratio = (e - 1) / p + 1 if removing else (1 / e - 1) / p + 1
    if ratio <= 0:
        return mpmath.mpf(0)
    x = s**2 * mpmath.log(ratio) + mpmath.mpf(1) / 2
    without, alone = normal_above(x / s), normal_above((x - 1) / s)
    present = (1 - p) * without + p * alone
    return present - e * without if removing else (1 - without) - e * (1 - present)


# The oracle itself


@pytest.mark.parametrize(
    ("steps", "sigma", "epsilon"),
    [
        (1, 1.0, 1.0), (1, 1.0, 5.0), (1, 0.3, 10.0), (1, 0.5, 0.01), (1, 50.0, 0.1), (5, 2.0, 0.1), (50, 10.0, 1.0),
        (750, 10.748, 8.0), (2000, 100.0, 2.0), (5000, 30.0, 20.0),
    ],
)  # fmt: skip
def test_gaussians_to_fourteen_digits(steps: int, sigma: float, epsilon: float) -> None:
    exact = float(gaussian_delta(epsilon, mpmath.sqrt(steps) / mpmath.mpf(sigma)))
    found = exact_delta(Schedule(1, steps, participation=1.0), sigma, 1.0, epsilon, relevant=exact)
    assert found.value == pytest.approx(exact, abs=1e-14, rel=0.0)
    assert found.value == pytest.approx(exact, abs=0.0, rel=1e-9)


def test_gaussians_mixed_over_participation() -> None:
    schedule = Schedule(20, 3, participation=0.3, max_participations=5)
    masses = [math.comb(20, k) * 0.3**k * 0.7 ** (20 - k) for k in range(5)]
    masses.append(1.0 - sum(masses))
    exact = sum(masses[k] * gaussian_delta(2.0, mpmath.sqrt(3 * k) / 2) for k in range(1, 6))
    assert participation_masses(schedule) == pytest.approx(masses)
    assert exact_delta(schedule, 2.0, 1.0, 2.0, relevant=1e-3).value == pytest.approx(float(exact), rel=1e-13)


@pytest.mark.parametrize("removing", [True, False], ids=["removing", "adding"])
@pytest.mark.parametrize(
    ("q", "sigma", "epsilon"),
    [
        (0.1, 1.0, 0.05), (0.5, 3.0, 0.2), (0.9, 0.4, 1.5), (1e-4, 0.5, 0.5), (1e-6, 0.3, 1.0), (1.99e-10, 0.25, 2.49),
        (0.2, 20.0, 0.03),
    ],
)  # fmt: skip
def test_one_sampled_step_in_both_directions(q: float, sigma: float, epsilon: float, removing: bool) -> None:
    exact = float(single_step_delta(sigma, q, epsilon, removing=removing))
    schedule = Schedule(1, 1, participation=1.0)
    found = delta_of_direction(schedule, sigma, q, epsilon, removing=removing, relevant=exact or 1e-12)
    assert found.error <= 1e-7 * exact
    assert found.value == pytest.approx(exact, rel=1e-7, abs=1e-30)


def test_the_attack_is_exact_binomial_arithmetic() -> None:
    """One output and one round: the attack is the best test. Two rounds: against fractions."""
    once = Schedule(1, 1, participation=1.0)
    assert attack_delta(once, 0.5, 1e-4, 0.5) == pytest.approx(
        float(single_step_delta(0.5, 1e-4, 0.5, removing=True)), rel=1e-3
    )
    p = Fraction(1, 10**9)
    two_of_three = float(3 * p**2 * (1 - p) + p**3)
    assert float(at_least(np.array([[2]]), np.array([3.0]), float(p))[0, 0]) == pytest.approx(two_of_three, rel=1e-12)


# The seeded hole: a capped schedule whose moments vanish in rounding


HOLE = Setting(Schedule(2, 1, participation=0.5, max_participations=1), 0.25, 1e-15, 1.99e-10)


def test_both_oracles_know_the_cost_of_a_capped_schedule_with_tiny_moments() -> None:
    """Three of four runs join one round, so the truth is ¾ of one step's δ: ε = 2.49 at δ = 1e-15."""
    for epsilon, above in ((2.48, True), (2.50, False)):
        exact = 0.75 * float(single_step_delta(HOLE.sigma, HOLE.q, epsilon, removing=True))
        found = exact_delta(HOLE.schedule, HOLE.sigma, HOLE.q, epsilon, relevant=HOLE.delta)
        attacked = attack_delta(HOLE.schedule, HOLE.sigma, HOLE.q, epsilon)
        assert found.value == pytest.approx(exact, rel=1e-6)
        assert attacked == pytest.approx(exact, rel=1e-3)
        assert (found.value > HOLE.delta) == (attacked > HOLE.delta) == above


def test_a_capped_schedule_with_tiny_moments_is_not_free() -> None:
    seen = judge(HOLE)
    assert seen.exact <= 1.0
    assert seen.attacked <= 1.0
    bought = float(HOLE.curve().sampling_probability(1e-6))
    if bought > 0.0:
        seen = judge(Setting(HOLE.schedule, HOLE.sigma, HOLE.delta, bought))
        assert max(seen.exact, seen.attacked) <= 1.0


# The promise


@dataclass(frozen=True)
class Seen:
    """What the oracles say at the cost that the accountant booked, in units of the promised δ."""

    setting: Setting
    cost: float
    exact: float
    error: float
    attacked: float


def judge(setting: Setting, share: float = 1.0) -> Seen:
    """Both oracles at the booked cost, or at a share of it."""
    cost = share * float(setting.curve().epsilon(setting.q))
    if cost > LARGEST_EPSILON:
        return Seen(setting, cost, 0.0, 0.0, 0.0)
    epsilon = max(cost, LEAST_EPSILON)
    exact: Delta = exact_delta(setting.schedule, setting.sigma, setting.q, epsilon, relevant=setting.delta)
    attacked = attack_delta(setting.schedule, setting.sigma, setting.q, epsilon)
    return Seen(setting, cost, exact.value / setting.delta, exact.error / setting.delta, attacked / setting.delta)


def require_promise(settings: Iterable[Setting]) -> None:
    seen = [judge(setting) for setting in settings]
    broken = [one for one in seen if one.exact - one.error > 1.0 or one.attacked > 1.0 + 1e-9]
    assert not broken, broken[0]
    contradicting = [one for one in seen if one.attacked > one.exact + one.error + BETWEEN_ORACLES]
    assert not contradicting, contradicting[0]
    judged = [one for one in seen if one.error <= LARGEST_ERROR]
    assert len(judged) >= 0.98 * len(seen)
    assert sum(one.error <= USUAL_ERROR for one in seen) >= 0.8 * len(seen)
    print(f"{len(judged)} of {len(seen)} settings judged, worst δ_true/δ {max(one.exact for one in seen):.6f}")  # noqa: T201


@pytest.mark.parametrize("part", range(5))
def test_random_settings_keep_the_promise(part: int) -> None:
    require_promise(random_settings(100 + part, 20))


@pytest.mark.parametrize("part", range(5))
def test_settings_at_the_edges_keep_the_promise(part: int) -> None:
    require_promise(edge_settings(200 + part, 20))


def test_a_cost_that_is_two_percent_too_low_is_noticed() -> None:
    """Negative control."""
    seen = [judge(setting, share=0.98) for setting in random_settings(300, 25)]
    dear = [one for one in seen if 0.1 < one.cost < LARGEST_EPSILON]
    assert len(dear) >= 5
    assert sum(one.exact - one.error > 1.0 for one in dear) >= 0.8 * len(dear)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_many_random_settings_keep_the_promise(part: int) -> None:
    require_promise(random_settings(1000 + part, 100))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_many_settings_at_the_edges_keep_the_promise(part: int) -> None:
    require_promise(edge_settings(2000 + part, 100))
