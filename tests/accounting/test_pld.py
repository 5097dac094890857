"""The privacy-loss-distribution route against closed forms, dp_accounting, and simulation."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from scipy import optimize, stats

from rpdp import PrivacyCurve, Schedule
from rpdp.accounting import pld, renyi
from rpdp.accounting.participation import BinomialCount

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rpdp.accounting._types import FloatArray
    from rpdp.accounting.composition import TiltedLoss

CENTRAL = [
    # steps, σ, q, δ
    (1, 1.0, 0.1, 1e-5),
    (50, 0.7, 1e-3, 1e-5),
    (50, 4.0, 0.3, 1e-6),
    (750, 10.748, 0.003, 1e-4),
    (750, 10.748, 0.1, 1e-4),
    (750, 10.748, 1.0, 1e-4),
    (5000, 1.1, 0.004, 1e-5),
    (3, 0.5, 0.01, 1e-2),
]


def gaussian_log_delta(epsilon: float, mu: float) -> float:
    """Log δ of the Gaussian mechanism with sensitivity over noise μ (Balle and Wang 2018)."""
    first = stats.norm.logcdf(mu / 2 - epsilon / mu)
    second = epsilon + stats.norm.logcdf(-mu / 2 - epsilon / mu)
    return float(first + np.log(-np.expm1(second - first)))


@pytest.mark.parametrize(("steps", "sigma", "q", "delta"), CENTRAL)
def test_within_half_a_percent_of_dp_accounting(steps: int, sigma: float, q: float, delta: float) -> None:
    curve = PrivacyCurve(Schedule(1, steps, participation=1.0), noise_multiplier=sigma, delta=delta)
    event = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(sigma))
    spacing = min(1e-4, 0.02 * curve.epsilon(q) / np.sqrt(steps))  # the peer's default is coarse for small q
    peer = PLDAccountant(value_discretization_interval=spacing).compose(event, steps).get_epsilon(delta)
    assert curve.epsilon(q) == pytest.approx(peer, rel=5e-3)


@pytest.mark.parametrize("delta", [1e-15, 1e-8, 1e-4, 0.1])
@pytest.mark.parametrize(
    ("rounds", "steps", "sigma"), [(1, 1, 1.0), (15, 50, 10.748), (300, 7, 40.0), (1, 2000, 100.0)]
)
def test_equals_the_gaussian_mechanism_at_q_one(rounds: int, steps: int, sigma: float, delta: float) -> None:
    mu = np.sqrt(rounds * steps) / sigma
    exact = optimize.brentq(lambda epsilon: gaussian_log_delta(epsilon, mu) - np.log(delta), 0.0, 100.0)
    curve = PrivacyCurve(Schedule(rounds, steps, participation=1.0), noise_multiplier=sigma, delta=delta)
    bounds = curve.bounds(1.0)
    assert bounds.lower[0] <= exact <= bounds.upper[0]
    assert bounds.upper[0] <= exact * (1 + 2 * pld.ACCURACY) + 2 * pld.ACCURACY * pld.ACCURACY_FLOOR
    assert curve.delta(1.0, exact) == pytest.approx(delta, rel=0.04)
    assert curve.advantage(1.0) == pytest.approx(2 * stats.norm.cdf(mu / 2) - 1, rel=2e-3)


SCHEDULES = {
    "poisson": Schedule(6, 4, participation=0.5),
    "capped": Schedule(6, 4, participation=0.5, max_participations=3),
    "exact": Schedule(6, 4, participations=3),
}


def simulated_lower_bound(schedule: Schedule, q: float, sigma: float, delta: float, samples: int = 400_000) -> float:
    """An ε that the mechanism provably exceeds, up to a false alarm of 3e-7 (five standard errors), by simulation.

    Draws the run's loss with the record present, joined rounds included, and estimates δ(ε) = E[(1 − e^{ε−L})₊].
    """
    generator = np.random.default_rng(20240)
    joined = generator.choice(schedule.count().largest + 1, size=samples, p=schedule.count().probabilities())
    loss = np.zeros(samples)
    for step in range(schedule.count().largest * schedule.local_steps):
        active = joined > step // schedule.local_steps
        present = generator.random(samples) < q
        x = generator.normal(size=samples) * sigma + present
        loss += np.where(active, np.log1p(q * np.expm1((2 * x - 1) / (2 * sigma**2))), 0.0)

    def surely_above(epsilon: float) -> float:
        values = np.maximum(-np.expm1(epsilon - loss), 0.0)
        return float(values.mean() - 5 * values.std() / np.sqrt(samples)) - delta

    return float(optimize.brentq(surely_above, 0.0, 50.0))


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES.keys())
@pytest.mark.parametrize(("q", "sigma"), [(0.2, 1.0), (0.9, 2.0)])
def test_lies_between_simulation_and_the_renyi_bound(schedule: Schedule, q: float, sigma: float) -> None:
    delta = 1e-2
    cost = PrivacyCurve(schedule, noise_multiplier=sigma, delta=delta).epsilon(q)
    renyi_cost = PrivacyCurve(schedule, noise_multiplier=sigma, delta=delta, accountant="rdp").epsilon(q)
    simulated = simulated_lower_bound(schedule, q, sigma, delta)
    assert simulated <= cost <= renyi_cost
    assert cost <= 1.08 * simulated  # the simulation is tight enough to notice a wrong mixture
    # Negative control: half the participation, as if rounds were not charged, falls below what was simulated.
    half = BinomialCount(6, 0.25)
    guide = renyi.best_epsilon(np.array([q]), sigma, 4, half, delta)
    wrong = pld.upper_epsilon(np.array([q]), pld.Run(sigma, 4, half), delta, guide)[0]
    assert wrong < simulated


SETTINGS = [
    (Schedule(15, 50, participation=0.5), 10.748, 1e-4),
    (Schedule(15, 50, participation=0.5, max_participations=8), 3.0, 1e-6),
    (Schedule(20, 5, participations=9), 1.0, 1e-3),
    (Schedule(200, 10, participation=0.1), 2.0, 1e-8),
    (Schedule(1, 300, participation=1.0), 0.8, 1e-5),
]


@pytest.mark.parametrize(("schedule", "sigma", "delta"), SETTINGS)
def test_stated_error_is_small_and_holds_on_finer_grids(schedule: Schedule, sigma: float, delta: float) -> None:
    q = np.geomspace(3e-3, 1.0, 12)
    curve = PrivacyCurve(schedule, noise_multiplier=sigma, delta=delta)
    bounds = curve.bounds(q)
    meaningful = (bounds.upper > 0.05) & (bounds.upper < 200)
    assert meaningful.sum() >= 5
    assert (bounds.upper - bounds.lower)[meaningful] == pytest.approx(0, abs=3e-3 * bounds.upper[meaningful].max())
    assert ((bounds.upper - bounds.lower) / bounds.upper)[meaningful].max() < 3e-3
    guide = renyi.best_epsilon(q, sigma, schedule.local_steps, schedule.count(), delta)
    finer = pld.upper_epsilon(
        q, pld.Run(sigma, schedule.local_steps, schedule.count()), delta, guide, pld.ACCURACY / 16
    )
    assert (finer <= bounds.upper * (1 + 1e-9)).all()
    assert (finer >= bounds.lower).all()


HARD = [
    # Heavy tails and a tiny δ: a tilt helps little, so the errors of long transforms decide.
    (Schedule(136, 3, participation=1.0, max_participations=112), 0.5805012672871321, 2.9515805461322495e-09),
    (Schedule(150, 40, participations=120), 0.6, 2e-9),
]


@pytest.mark.parametrize(("schedule", "sigma", "delta"), HARD)
@pytest.mark.parametrize("q", [5.324133808627535e-06, 2.0161475970544603e-05])
def test_a_finer_grid_is_not_looser(schedule: Schedule, sigma: float, delta: float, q: float) -> None:
    row, run = np.array([q]), pld.Run(sigma, schedule.local_steps, schedule.count())
    guide = renyi.best_epsilon(row, sigma, schedule.local_steps, run.count, delta)
    coarse, fine, finer = (
        float(pld.upper_epsilon(row, run, delta, guide, pld.ACCURACY / part)[0]) for part in (1, 4, 16)
    )
    allowed = 3e-4 * max(coarse, pld.ACCURACY_FLOOR)  # long transforms round differently on different processors
    assert fine <= coarse + allowed
    assert finer <= fine + allowed
    lower = float(pld.lower_epsilon(row, run, delta, np.array([coarse]))[0])
    assert lower <= finer


def test_a_row_with_too_large_an_error_gets_another_tilt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told that steps are exact, the first pass goes without a tilt; the error that it incurs asks for one."""
    schedule, sigma, delta, q = Schedule(20, 5, participation=0.5), 1.0, 1e-11, np.array([0.01])
    run = pld.Run(sigma, 5, schedule.count())
    guide = renyi.best_epsilon(q, sigma, 5, run.count, delta)
    usual = pld.upper_epsilon(q, run, delta, guide)[0]
    monkeypatch.setattr(pld, "_STEP_ERROR", 1e-30)
    assert pld.upper_epsilon(q, run, delta, guide)[0] == pytest.approx(usual, rel=2e-4)
    monkeypatch.setattr(pld, "_LARGEST_ERROR_SHARE", np.inf)
    assert pld.upper_epsilon(q, run, delta, guide)[0] > usual * (1 + 2e-3)


def test_a_cost_that_says_nothing_about_privacy_is_left_to_the_renyi_bound() -> None:
    """Above ε = 200 no grid is tried: it would have to cover losses whose exponentials overflow."""
    q, run = np.array([0.01, 0.9, 1.0]), pld.Run(0.05, 1, BinomialCount(1, 1.0))
    guide = renyi.best_epsilon(q, 0.05, 1, run.count, 1e-3)
    assert (guide.bound > 200.0).all()
    np.testing.assert_array_equal(pld.upper_epsilon(q, run, 1e-3, guide), guide.bound)
    np.testing.assert_array_equal(pld.lower_epsilon(q, run, 1e-3, guide.bound), np.zeros(3))


def test_an_unknown_direction_is_never_taken_for_a_cheap_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN in one direction leaves the Rényi bound, whatever the other direction says."""
    schedule, q = Schedule(3, 2, participation=0.5), np.array([0.1])
    run = pld.Run(1.0, 2, schedule.count())
    guide = renyi.best_epsilon(q, 1.0, 2, run.count, 1e-5)
    assert pld.upper_epsilon(q, run, 1e-5, guide)[0] < guide.bound[0]
    smallest_epsilon = pld._smallest_epsilon
    for broken in (0, 1):
        ways = itertools.count()  # removing, adding, removing, …

        def one_broken(loss: TiltedLoss, delta: float, broken: int = broken, ways: Iterator[int] = ways) -> FloatArray:
            if next(ways) % 2 == broken:
                loss = replace(loss, error=np.full(1, np.nan), tilt=np.ones(1))
            return smallest_epsilon(loss, delta)

        monkeypatch.setattr(pld, "_smallest_epsilon", one_broken)
        assert pld.upper_epsilon(q, run, 1e-5, guide)[0] == guide.bound[0]


def test_the_worse_direction_counts() -> None:
    """Adding and removing differ; the bound is at least what either direction alone can prove."""
    schedule, sigma, delta, q = Schedule(1, 1, participation=1.0), 0.7, 0.3, np.array([0.9])
    run = pld.Run(sigma, 1, schedule.count())
    guide = renyi.best_epsilon(q, sigma, 1, run.count, delta)
    tilts, lost = np.zeros(1), 1e-9 * delta
    grid = pld._choose_grid(q, run, guide.bound, guide.theta, 1e-5, tilts, lost)
    removing, adding = (way[0, 0] for way in pld._both_ways(grid, run, lambda loss: pld._smallest_epsilon(loss, delta)))
    assert abs(removing - adding) > 0.05
    cost = PrivacyCurve(schedule, noise_multiplier=sigma, delta=delta).epsilon(0.9)
    assert cost == pytest.approx(max(removing, adding), rel=2e-3)


def test_profile_falls_and_passes_through_the_promise() -> None:
    curve = PrivacyCurve(Schedule(15, 50, participation=0.5), noise_multiplier=10.748, delta=1e-4)
    cost = curve.epsilon(0.1)
    profile = curve.delta(0.1, np.array([0.0, 0.1, 0.3, cost, 1.0, 2.0]))
    assert (np.diff(profile) < 0).all()
    assert profile[3] == pytest.approx(1e-4, rel=0.02)
    renyi_profile = PrivacyCurve(
        Schedule(15, 50, participation=0.5), noise_multiplier=10.748, delta=1e-4, accountant="rdp"
    ).delta(0.1, 0.3)
    assert profile[2] < renyi_profile


def test_a_lower_bound_never_rests_on_counts_that_were_rounded_up() -> None:
    """5,000 rounds, cap 4,000: the counts are shortened upwards; a lower bound from them, 7.9, was above the truth."""
    schedule = Schedule(5000, 1, participation=0.02, max_participations=4000)
    curve = PrivacyCurve(schedule, noise_multiplier=20.0, delta=1e-20)
    bounds = curve.bounds(1.0)
    k = np.arange(301)
    exact = _gaussian_mixture_epsilon(stats.binom.pmf(k, 5000, 0.02), np.sqrt(k) / 20.0, 1e-20)
    assert bounds.lower[0] <= exact <= bounds.upper[0]


def _gaussian_mixture_epsilon(mass: FloatArray, shift: FloatArray, delta: float) -> float:
    """ε at δ of Σ mass · (Gaussian with this shift), in closed form, by bisection."""
    low, high = 0.0, 100.0
    for _ in range(60):
        epsilon = 0.5 * (low + high)
        some = shift > 0.0
        upper = stats.norm.sf(epsilon / shift[some] - shift[some] / 2)
        lower = np.exp(epsilon + stats.norm.logsf(epsilon / shift[some] + shift[some] / 2))
        low, high = (epsilon, high) if float(mass[some] @ (upper - lower)) > delta else (low, epsilon)
    return high


def test_a_lower_bound_is_close_to_a_large_cost() -> None:
    """A false alarm is e^−ε times as likely as an alarm: what a grid may lose must shrink with it."""
    curve = PrivacyCurve(Schedule(1, 1, participation=1.0), noise_multiplier=0.15, delta=1e-3)
    bounds = curve.bounds(1.0)
    assert 35.0 < bounds.upper[0] < 60.0
    assert bounds.lower[0] > 0.99 * bounds.upper[0]


@pytest.mark.skipif(bool(np.finfo(np.longdouble).eps > 1e-18), reason="no extended precision on this machine")
def test_what_double_precision_leaves_unresolved_is_computed_with_more_digits() -> None:
    """At a δ this small, the price from double precision alone is 0.310, a quarter above this one."""
    schedule = Schedule(1, 1, participation=0.6868891365318662)
    curve = PrivacyCurve(schedule, noise_multiplier=2.632852488782301, delta=2.399679208255084e-31)
    assert 0.2 < curve.epsilon(0.0001542623882616944) < 0.26
