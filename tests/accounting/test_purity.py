"""A price, a probability and the active rounds of a record are functions of the public plan and its own budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from rpdp import PrivacyCurve, Schedule
from rpdp.planning.estimators import ESTIMATORS, estimator_named
from tests.accounting.certificates import random_setting

if TYPE_CHECKING:
    from rpdp.accounting._types import FloatArray
    from rpdp.accounting.curve import Accountant

ALIGNED = np.array([0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0])


def assert_one_price(seed: int, accountant: Accountant) -> None:
    """Prices of a batch, of single q on fresh curves, and in another order are equal to the last bit."""
    generator = np.random.default_rng(seed)
    schedule, sigma, delta = random_setting(generator)
    sigma, delta = max(sigma, 0.9), delta if generator.random() < 0.5 else delta**1.3
    q = np.exp(generator.uniform(np.log(1e-6), 0.0, 8))

    def fresh() -> PrivacyCurve:
        return PrivacyCurve(schedule, noise_multiplier=sigma, delta=delta, accountant=accountant)

    together = fresh().epsilon(q)
    alone = np.array([fresh().epsilon(float(value)) for value in q])
    np.testing.assert_array_equal(together, alone)
    busy = fresh()
    busy.epsilon(np.sqrt(q))
    np.testing.assert_array_equal(busy.epsilon(q[::-1])[::-1], alone)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_a_probability_has_one_price_whoever_asks(seed: int, accountant: Accountant) -> None:
    assert_one_price(seed, accountant)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 400))
def test_a_probability_has_one_price_at_length(seed: int) -> None:
    assert_one_price(seed, "pld" if seed % 3 else "rdp")


def estimated(name: str, curve: PrivacyCurve, budgets: FloatArray) -> FloatArray:
    estimate = estimator_named(name)(curve, budgets)
    return np.stack([estimate.q, estimate.cost, estimate.active_rounds.astype(np.float64)])


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("seed", range(2))
def test_other_budgets_change_nothing(name: str, seed: int) -> None:
    """The record's own result, alone and among others: aligned, random, larger, smaller, and very many."""
    generator = np.random.default_rng(seed)
    schedule, sigma, delta = random_setting(generator)
    sigma = max(sigma, 2.0)
    if name == "scf":  # the fit needs an ordinary curve
        schedule, sigma, delta = Schedule(15, 6 + seed, participation=0.5), 3.0 + seed, 1e-4
    own = np.exp(generator.uniform(np.log(0.02), np.log(10.0), 3))
    others = np.exp(generator.uniform(np.log(0.01), np.log(30.0), 5 if name == "binary_search" else 2000))

    def fresh() -> PrivacyCurve:
        return PrivacyCurve(schedule, noise_multiplier=sigma, delta=delta)

    alone = np.concatenate([estimated(name, fresh(), own[i : i + 1]) for i in range(own.size)], axis=1)
    for company in (ALIGNED, np.array([own.min() / 3.0]), np.array([own.max() * 3.0]), others):
        np.testing.assert_array_equal(estimated(name, fresh(), np.append(own, company))[:, : own.size], alone)
    used = fresh()
    estimated(name, used, others)
    np.testing.assert_array_equal(estimated(name, used, own), alone)


def test_a_small_budget_does_not_move_a_large_one() -> None:
    """Seen: q = 0.14147 alone, and 0.14097 once a record with ε = 0.02 is there."""
    schedule, epsilon = Schedule(15, 50, participations=8), 0.9991067841

    def probability(*others: float) -> float:
        curve = PrivacyCurve(schedule, noise_multiplier=9.11, delta=1e-4)
        return float(curve.sampling_probability([epsilon, *others])[0])

    assert probability() == probability(0.02) == probability(0.02, 5.0) > 0.141


def test_one_more_budget_does_not_end_others_elsewhere() -> None:
    """Seen: with the 1,025th distinct budget, `scf` priced all by another rule, and 4 of 1,024 ended elsewhere."""
    budgets = np.exp(np.random.default_rng(0).uniform(np.log(0.1), np.log(10.0), 1025))

    def ends(some: FloatArray) -> FloatArray:
        curve = PrivacyCurve(Schedule(15, 5, participation=0.5), noise_multiplier=3.0, delta=1e-4)
        return estimated("scf", curve, some)[:, :1024]

    np.testing.assert_array_equal(ends(budgets[:1024]), ends(budgets))


def test_prices_of_a_batch_and_alone_at_a_setting_where_they_differed() -> None:
    """Seen: 2.1e-5 apart, so that `verify` accused an honest ledger."""
    schedule = Schedule(67, 10, participation=1.0)
    budgets = np.array([0.18088663648196354, 0.2458832964521499, 0.029089512532333512])

    def fresh() -> PrivacyCurve:
        return PrivacyCurve(schedule, noise_multiplier=0.8101856497787335, delta=2.6355001154562887e-08)

    q, cost = fresh().certify(budgets)
    for probability, stated in zip(q, cost, strict=True):
        assert fresh().epsilon(float(probability)) <= stated
        assert fresh().covers(float(probability), stated)
