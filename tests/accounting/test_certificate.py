"""Certified probabilities: never over budget, little slack, and a check that would notice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from rpdp import PrivacyCurve, Schedule
from tests.accounting.certificates import examine, random_budgets, random_setting

if TYPE_CHECKING:
    from rpdp.accounting import Accountant

RUNS = [("rdp", 30, 0), ("pld", 8, 0)]
SLOW_RUNS = [("rdp", 1000, 1), ("pld", 100, 1)]


def assert_certified(accountant: Accountant, settings: int, seed: int) -> None:
    generator = np.random.default_rng([seed, settings])
    for _ in range(settings):
        schedule, sigma, delta = random_setting(generator)
        verdict = examine(schedule, sigma, delta, accountant, random_budgets(generator))
        where = f"{schedule}, σ={sigma}, δ={delta}: {verdict}"
        assert verdict.overspent <= 1e-9, where
        assert verdict.slack <= 1.0, where


@pytest.mark.parametrize(("accountant", "settings", "seed"), RUNS)
def test_no_violation_and_little_slack(accountant: Accountant, settings: int, seed: int) -> None:
    assert_certified(accountant, settings, seed)


@pytest.mark.slow
@pytest.mark.parametrize(("accountant", "settings", "seed"), SLOW_RUNS)
def test_no_violation_and_little_slack_at_length(accountant: Accountant, settings: int, seed: int) -> None:
    assert_certified(accountant, settings, seed)


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_plain_interpolation_would_be_caught(accountant: Accountant) -> None:
    """The mutant takes q between priced knots by a straight line, in the logarithms of ε and q."""
    schedule, sigma, delta = Schedule(20, 5, participation=0.5), 1.0, 1e-3
    curve = PrivacyCurve(schedule, noise_multiplier=sigma, delta=delta, accountant=accountant)
    knots = np.exp2(-np.arange(10.0, -1.0, -1.0))
    budgets = np.exp(np.linspace(np.log(0.2), np.log(30.0), 300))
    interpolated = np.exp(np.interp(np.log(budgets), np.log(curve.epsilon(knots)), np.log(knots)))
    assert examine(schedule, sigma, delta, accountant, budgets).overspent <= 1e-9
    assert examine(schedule, sigma, delta, accountant, budgets, chosen=interpolated).overspent > 1e-3


def test_below_the_least_cost_and_above_the_largest() -> None:
    schedule = Schedule(100_000, 1000, participation=1.0)
    curve = PrivacyCurve(schedule, noise_multiplier=0.5, delta=1e-15, accountant="rdp")
    least = curve.epsilon(2.0**-40)
    assert least > 0.01
    q = curve.sampling_probability([0.0, 0.5 * least, 1.01 * least, curve.largest_cost, 1e9])
    assert q[0] == q[1] == 0.0
    assert 0.0 < q[2] < 1.0
    assert q[3] == q[4] == 1.0


def test_a_budget_of_nothing_buys_nothing() -> None:
    curve = PrivacyCurve(Schedule(1, 1, participation=1.0), noise_multiplier=1000.0, delta=0.1)
    assert curve.epsilon(0.5) == 0.0  # δ alone covers it
    assert curve.sampling_probability(0.0) == 0.0
    assert curve.sampling_probability(1e-9) == 1.0


@pytest.mark.parametrize("delta", [1e-4, 1e-11, 1e-15])
def test_a_price_hardly_depends_on_its_company(delta: float) -> None:
    """Priced alone or among others, a certified probability stays within its budget."""
    curve = PrivacyCurve(Schedule(20, 5, participation=0.5), noise_multiplier=1.0, delta=delta)
    budgets = np.array([0.3, 0.5, 1.0, 3.0])
    q, cost = curve.certify(budgets)
    alone = np.array([curve.epsilon(float(value)) for value in q])
    assert (cost <= budgets).all()
    assert (alone <= budgets * (1 + 1e-6)).all()


def test_a_harmless_cap_on_a_long_run_changes_nothing() -> None:
    """More than 2048 possible counts are shortened where the mass is not."""
    uncapped = Schedule(100_000, 1, participation=1e-4)
    with_cap = Schedule(100_000, 1, participation=1e-4, max_participations=50_000)
    free = PrivacyCurve(uncapped, noise_multiplier=2.0, delta=1e-5).bounds(0.1)
    capped = PrivacyCurve(with_cap, noise_multiplier=2.0, delta=1e-5).bounds(0.1)
    assert capped.upper[0] == pytest.approx(free.upper[0], rel=2e-3)
    assert capped.lower[0] <= free.upper[0]
    assert with_cap.expected_participations == pytest.approx(10)


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_after_tabulating_no_budget_takes_another_price(
    accountant: Accountant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which budgets there are must not show in the time that planning takes. Without a table it does."""
    plain, tabulated = (
        PrivacyCurve(Schedule(3, 2, participations=2), noise_multiplier=3.0, delta=1e-3, accountant=accountant)
        for _ in range(2)
    )
    tabulated.tabulate()
    budgets, priced = np.append(np.geomspace(1e-6, 50.0, 60), 0.0), list[int]()
    price = PrivacyCurve._price

    def counted(curve: PrivacyCurve, q: np.ndarray) -> np.ndarray:
        priced.append(q.size)
        return price(curve, q)

    monkeypatch.setattr(PrivacyCurve, "_price", counted)
    tabulated._certificate.price = plain._certificate.price = lambda q: counted(plain, q)
    q, cost = tabulated.certify(budgets)
    assert tabulated.covers(q, cost).all()
    assert sum(priced) == 0
    assert not tabulated.covers(q[q > 0.0], np.nextafter(cost[q > 0.0], 0.0))[cost[q > 0.0] > 0.0].any()
    priced.clear()
    for values, same in zip(plain.certify(budgets), (q, cost), strict=True):
        assert np.array_equal(values, same)
    assert sum(priced) > 0
