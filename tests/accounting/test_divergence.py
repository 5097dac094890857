"""The divergence of a run and its inverse: priced twice, never over, within 0.5 %, the same whoever asks."""

from __future__ import annotations

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from scipy import special

from rpdp import Schedule
from rpdp.accounting.divergence import DivergenceCurve
from rpdp.accounting.renyi_filter import ORDERS, lifetime_divergence, order_numbers
from tests.accounting.certificates import random_setting

SOME_ORDERS = ORDERS[[1, 5, 9, 13, 17, 21, 25, 33]]


def curve(schedule: Schedule, sigma: float, order: float) -> DivergenceCurve:
    return DivergenceCurve(schedule, noise_multiplier=sigma, order=order)


def random_curve(generator: np.random.Generator) -> DivergenceCurve:
    schedule, sigma, _ = random_setting(generator)
    return curve(schedule, sigma, float(generator.choice(SOME_ORDERS)))


def binomial_sum(q: float, sigma: float, order: int) -> float:
    """K_α of one step at a whole order (arXiv 1908.10530, section 3.3)."""
    terms = np.arange(order + 1.0)
    logs = (
        np.log(special.comb(order, terms))
        + special.xlogy(terms, q)
        + special.xlog1py(order - terms, -q)
        + terms * (terms - 1.0) / (2.0 * sigma**2)
    )
    return float(special.logsumexp(logs))


@pytest.mark.parametrize("order", [2, 3, 5, 9, 17])
@pytest.mark.parametrize(("q", "sigma"), [(0.01, 1.0), (0.3, 2.0), (0.9, 5.0)])
def test_whole_orders_match_the_binomial_sum_over_the_rounds_that_are_joined(
    q: float, sigma: float, order: int
) -> None:
    """ρ = log E_k[exp(k τ K)] / (α − 1), with k binomial; the control takes the mean of k and is below it."""
    rounds, steps, chance = 6, 5, 0.5
    moment = steps * binomial_sum(q, sigma, order)
    expected = rounds * np.log1p(chance * np.expm1(moment)) / (order - 1.0)
    found = curve(Schedule(rounds, steps, participation=chance), sigma, float(order)).divergence(np.array([q]))[0]
    assert found == pytest.approx(expected, rel=1e-9)
    assert found >= expected * (1.0 - 1e-12)
    if moment > 0.5:
        assert found > 1.05 * chance * rounds * moment / (order - 1.0)


@pytest.mark.parametrize("order", SOME_ORDERS[SOME_ORDERS >= 2.0].tolist())
@pytest.mark.parametrize(("q", "sigma"), [(0.02, 1.0), (0.5, 4.0), (1.0, 10.0)])
def test_without_coins_it_is_the_divergence_of_dp_accounting(q: float, sigma: float, order: float) -> None:
    accountant = RdpAccountant([order])
    step = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(sigma))
    accountant.compose(step, 30)
    found = curve(Schedule(6, 5, participation=1.0), sigma, order).divergence(np.array([q]))[0]
    assert found == pytest.approx(float(accountant._rdp[0]), rel=1e-7)


def test_nothing_is_drawn_for_nothing_and_less_than_the_smallest_costs_as_much() -> None:
    some = curve(Schedule(6, 5, participation=0.5), 2.0, 5.0)
    found = some.divergence(np.array([0.0, 2.0**-60, 2.0**-40, 2.0**-39]))
    assert found[0] == 0.0
    assert 0.0 < found[1] == found[2] < found[3]


@pytest.mark.parametrize("part", range(10))
def test_the_inverse_is_never_over_and_within_half_a_per_cent(part: int) -> None:
    """1,000 random settings in ten parts, with budgets from eight powers of ten."""
    generator = np.random.default_rng([11, part])
    for _ in range(100):
        some = random_curve(generator)
        whole = some.divergence(np.array([1.0]))[0]
        budgets = np.sort(np.exp(generator.uniform(np.log(1e-7), np.log(50.0), 2)))
        q, cost = some.certify(budgets)
        drawn = q > 0.0
        assert (cost <= budgets).all()
        assert (cost[drawn] >= some.divergence(q[drawn])).all()
        assert (np.diff(q) >= 0.0).all()
        tight = drawn & (q < 1.0)
        assert (cost[tight] >= 0.995 * budgets[tight]).all()
        assert (budgets[q == 1.0] >= whole).all()
        assert some.covers(q, cost).all()
        assert not some.covers(q[drawn], cost[drawn] * (1.0 - 1e-6)).any()


@pytest.mark.parametrize("seed", range(8))
def test_a_budget_has_one_answer_alone_and_in_company(seed: int) -> None:
    """To the last bit, whatever other budgets there are and whatever was asked before."""
    generator = np.random.default_rng([12, seed])
    schedule, sigma, _ = random_setting(generator)
    order = float(generator.choice(SOME_ORDERS))
    budgets = np.exp(generator.uniform(np.log(1e-6), np.log(20.0), 12))
    together = curve(schedule, sigma, order).certify(budgets)
    whole = curve(schedule, sigma, order)
    whole.tabulate()
    for alone in range(budgets.size):
        q, cost = curve(schedule, sigma, order).certify(budgets[alone : alone + 1])
        assert (q[0], cost[0]) == (together[0][alone], together[1][alone])
    np.testing.assert_array_equal(whole.certify(budgets), together)


def test_several_silos_cost_several_times_as_much() -> None:
    some = curve(Schedule(6, 5, participations=4), 5.0, 5.0)
    q, cost = some.certify(np.array([0.2]))
    assert some.covers(q, 3.0 * cost, times=3).all()
    assert not some.covers(q, 2.9 * cost, times=3).any()


TABLE = {1.0: (0.0689, 0.0350, 0.0158), 5.0: (0.280, 0.143, 0.064), 10.0: (0.492, 0.252, 0.114)}
"""privacy.md, section 7: q per run for 5, 20 and 100 runs."""

SIGMA = 10.748
"""That of the MNIST setting (privacy.md, section 6)."""


@pytest.mark.parametrize("epsilon", TABLE)
def test_the_probabilities_of_the_specification(epsilon: float) -> None:
    """Within 2 %, at the MNIST setting with a lifetime δ of 1e-4."""
    schedule = Schedule(15, 50, participation=0.5)
    budget, delta = np.array([epsilon]), np.array([1e-4])
    number = order_numbers(budget, delta)
    lifetime = lifetime_divergence(budget, delta, number)
    q, _ = curve(schedule, SIGMA, float(ORDERS[number][0])).certify(lifetime / np.array([5.0, 20.0, 100.0]))
    np.testing.assert_allclose(q, TABLE[epsilon], rtol=0.02)
