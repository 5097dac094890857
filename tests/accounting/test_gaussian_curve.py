"""Prices of weights: exact, never over a budget, and the same in any company."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant

from rpdp import Schedule
from rpdp.accounting.gaussian_curve import (
    ALL_OR_NOTHING,
    PERSONAL_WEIGHTS,
    GaussianCurve,
    GaussianDeltaTable,
    GaussianDivergence,
)
from rpdp.accounting.gaussian_profile import gaussian_epsilon, gaussian_shift
from rpdp.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

SETTINGS = [(1, 4.0, 1e-5), (3, 0.05, 1e-2), (1000, 1e6, 1e-10), (7, 6.0, 0.03)]


def rounds_of(count: int) -> Schedule:
    return Schedule(count, 1, participation=1.0)


def curve(rounds: int, s: float, delta: float, weights: NDArray[np.float64] = PERSONAL_WEIGHTS) -> GaussianCurve:
    return GaussianCurve(rounds_of(rounds), noise_multiplier=s, delta=delta, weights=weights)


@pytest.mark.parametrize(("rounds", "s", "delta"), SETTINGS)
def test_a_weight_costs_what_a_gaussian_of_multiplier_s_over_w_costs(rounds: int, s: float, delta: float) -> None:
    """Controls: the price of the square of the weight, of one round, or of s alone is another."""
    weights = np.array([1e-6, 0.01, 0.3, 1.0])
    price = curve(rounds, s, delta).epsilon(weights)
    due = gaussian_epsilon(np.sqrt(rounds) / (s / weights), delta)
    np.testing.assert_allclose(price, due, rtol=1e-9, atol=1e-12)
    assert (price >= due * (1.0 - 1e-12)).all()
    dear = (due > 1e-3) & (weights < 1.0)
    assert (curve(rounds, s, delta).epsilon(weights**2)[dear] < 0.99 * due[dear]).all()
    if rounds > 1:
        assert (curve(1, s, delta).epsilon(weights)[due > 1e-3] < 0.99 * due[due > 1e-3]).all()


@pytest.mark.parametrize(("rounds", "s", "delta"), SETTINGS)
def test_the_inverse_is_never_over_and_within_half_a_per_cent(rounds: int, s: float, delta: float) -> None:
    some = curve(rounds, s, delta)
    budgets = np.append(np.geomspace(1e-6, 1e5, 3000), [0.0, np.inf])
    w, cost = some.certify(budgets)
    drawn = w > 0.0
    assert (cost <= budgets).all()
    assert some.covers(w, cost).all()
    assert (cost[drawn] >= some.bounds(w[drawn]).lower).all()
    assert (np.diff(w[:-2]) >= 0.0).all()
    assert (w[-2], w[-1]) == (0.0, 1.0)
    tight = drawn & (w < 1.0) & (w > PERSONAL_WEIGHTS[0])
    assert (cost[tight] >= 0.995 * budgets[tight] - 2.5e-4).all()
    exact = gaussian_shift(budgets[tight], delta) * s / np.sqrt(rounds)
    assert (w[tight] >= 0.9986 * exact).all()
    some_cost = drawn & (cost > 0.0)
    assert not some.covers(w[some_cost], cost[some_cost] * (1.0 - 1e-6)).any()


@pytest.mark.parametrize(("rounds", "s", "delta"), SETTINGS)
def test_all_or_nothing_is_decided_by_the_price_of_one(rounds: int, s: float, delta: float) -> None:
    some = curve(rounds, s, delta, ALL_OR_NOTHING)
    floor = some.largest_cost
    w, cost = some.certify(np.array([0.0, 0.5 * floor, np.nextafter(floor, 0.0), floor, 10.0 * floor]))
    assert w.tolist() == [0.0, 0.0, 0.0, 1.0, 1.0]
    assert cost.tolist() == [0.0, 0.0, 0.0, floor, floor]


@pytest.mark.parametrize("seed", range(4))
def test_a_budget_has_one_answer_alone_and_in_company(seed: int) -> None:
    """To the last bit, whatever other budgets there are and whatever was asked before."""
    generator = np.random.default_rng([21, seed])
    rounds, s, delta = SETTINGS[seed]
    budgets = np.exp(generator.uniform(np.log(1e-6), np.log(20.0), 12))

    def certified(some: NDArray[np.float64]) -> NDArray[np.float64]:
        table = GaussianDeltaTable(rounds_of(rounds), noise_multiplier=s)
        order = GaussianDivergence(rounds_of(rounds), noise_multiplier=s, order=5.0)
        answers = curve(rounds, s, delta).certify(some), table.certify(some, delta), order.certify(some)
        return np.array(answers)

    together = certified(budgets)
    for alone in range(budgets.size):
        np.testing.assert_array_equal(certified(budgets[alone : alone + 1]), together[..., alone : alone + 1])


def test_an_own_delta_has_the_exact_price_too() -> None:
    table = GaussianDeltaTable(rounds_of(2), noise_multiplier=6.0)
    budgets = np.geomspace(0.01, 10.0, 50)
    for delta in (1e-3, 1e-12, 1e-250):
        w, cost = table.certify(budgets, delta)
        np.testing.assert_array_equal((w, cost), curve(2, 6.0, delta, table.weights).certify(budgets))
        finer, _ = curve(2, 6.0, delta).certify(budgets)
        assert (w <= finer).all()
        assert (w >= 0.994 * finer).all()
        assert (w[finer == 1.0] == 1.0).all()
        assert table.covers(w, cost, delta).all()
        assert not table.covers(w[cost > 0.0], cost[cost > 0.0], delta / 10.0).any()


@pytest.mark.parametrize("order", [1.25, 2.0, 64.0])
@pytest.mark.parametrize(("rounds", "s", "delta"), SETTINGS)
def test_divergences_are_those_of_two_gaussians(rounds: int, s: float, delta: float, order: float) -> None:
    """ρ = T w² α / (2s²), by integration: log ∫ p^α r^(1−α) / (α − 1) for Gaussians that are w√T/s apart."""
    del delta
    some = GaussianDivergence(rounds_of(rounds), noise_multiplier=s, order=order)
    w, cost = some.certify(np.geomspace(1e-9, 100.0, 500))
    assert (cost <= np.geomspace(1e-9, 100.0, 500)).all()
    assert some.covers(w, cost).all()
    assert some.covers(w, 3.0 * cost, times=3).all()
    above = w > 0.0
    assert not some.covers(w[above], 2.99 * cost[above], times=3).any()
    mu = np.sqrt(rounds) / s
    x = order * mu + np.linspace(-40.0, 40.0, 20_001)  # the integrand is a Gaussian around αμ
    log_integrand = order * -0.5 * (x - mu) ** 2 + (1.0 - order) * -0.5 * x**2 - 0.5 * np.log(2.0 * np.pi)
    top = log_integrand.max()
    moment = top + np.log(np.exp(log_integrand - top).sum() * (x[1] - x[0]))
    found = some.divergence(np.array([1.0]))[0]
    assert found == pytest.approx(moment / (order - 1.0), rel=1e-7, abs=1e-9)


def test_divergences_are_those_of_dp_accounting() -> None:
    weights = np.array([0.01, 0.5, 1.0])
    for order in (1.25, 2.0, 64.0):
        found = GaussianDivergence(rounds_of(3), noise_multiplier=4.0, order=order).divergence(weights)
        for weight, divergence in zip(weights.tolist(), found.tolist(), strict=True):
            accountant = RdpAccountant([order])
            accountant.compose(dp_accounting.GaussianDpEvent(4.0 / weight), 3)
            assert divergence == pytest.approx(float(accountant._rdp[0]), rel=1e-12)


def test_a_part_of_the_rounds_costs_less_and_none_nothing() -> None:
    some = curve(9, 4.0, 1e-5)
    assert some.after(4).epsilon(0.6) == pytest.approx(some.epsilon(0.4), rel=1e-9)
    assert some.given(0).epsilon(1.0) == 0.0
    assert some.advantage(0.0) == 0.0
    assert some.advantage(1.0) == some.delta(1.0, 0.0) > some.delta(1.0, 1.0)


@pytest.mark.parametrize(
    "schedule",
    [Schedule(3, 2, participation=1.0), Schedule(3, 1, participation=0.5), Schedule(3, 1, participations=2)],
)
def test_a_schedule_with_coins_or_steps_is_refused(schedule: Schedule) -> None:
    for made in (
        lambda: GaussianCurve(schedule, noise_multiplier=1.0, delta=1e-5),
        lambda: GaussianDeltaTable(schedule, noise_multiplier=1.0),
        lambda: GaussianDivergence(schedule, noise_multiplier=1.0, order=2.0),
    ):
        with pytest.raises(InputError, match=r"once in every round.*Schedule\(3, 1, participation=1.0\)"):
            made()


def test_arguments_are_checked() -> None:
    some = curve(1, 4.0, 1e-5)
    with pytest.raises(InputError, match=r"q=1\.5"):
        some.epsilon(1.5)
    with pytest.raises(InputError, match="epsilon=-1"):
        some.certify([-1.0])
    with pytest.raises(InputError, match="finite"):
        some.delta(0.5, np.inf)
    with pytest.raises(InputError, match="outside"):
        curve(1, 1e-3, 1e-5)
