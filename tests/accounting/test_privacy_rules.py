"""Rules of privacy.md that a seeded bug has shown to need a test of their own: prices on the safe side, whatever."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import numpy as np
from scipy import optimize, stats

from rpdp import PrivacyCurve, Schedule
from rpdp.accounting import pld
from rpdp.accounting.certificate import SMALLEST_PROBABILITY, Certificate

if TYPE_CHECKING:
    import pytest

    from rpdp.accounting._types import FloatArray

SCHEDULE = Schedule(20, 5, participation=0.5)


def make_curve() -> PrivacyCurve:
    return PrivacyCurve(SCHEDULE, noise_multiplier=1.0, delta=1e-3, accountant="rdp")


def test_what_is_bought_is_within_the_budget() -> None:
    """The cost that is stated for a certified q is its price, to a millionth, and not above the budget."""
    budgets = np.geomspace(0.3, 20.0, 100)
    q, cost = make_curve().certify(budgets)
    price = make_curve().epsilon(q)
    assert (cost <= budgets).all()
    assert (price <= budgets).all()
    np.testing.assert_allclose(cost, price, rtol=1e-6)
    assert ((q > 0.0) & (q < 1.0)).sum() > 50


def wavy(q: FloatArray) -> FloatArray:
    """Prices that rise on the whole and dip in between, as upper bounds may."""
    return np.asarray(10.0 * q * (1.0 + 0.2 * np.sin(300.0 * np.log(q))))


def test_a_price_that_dips_buys_nothing_over_budget() -> None:
    budgets = np.geomspace(0.01, 9.0, 2000)
    q, cost = Certificate(wavy).invert(budgets)
    assert (cost <= budgets).all()
    assert (np.diff(q) >= 0.0).all()
    assert (np.diff(cost) >= 0.0).all()


def test_no_table_states_less_than_the_price_of_a_probability() -> None:
    """Also where the price dips: a record books at least what its own q costs, as `verify` will ask for."""
    budgets = np.geomspace(0.01, 9.0, 2000)
    q, cost = Certificate(wavy).invert(budgets)
    assert (np.diff(wavy(np.unique(q[q > 0.0]))) < 0.0).any()
    assert (cost >= wavy(np.maximum(q, 1e-300)))[q > 0.0].all()


def test_a_small_budget_wastes_little_and_a_tiny_one_gets_the_smallest_probability() -> None:
    """Steps of 0.42 % of the budget, of 0.05 below it; the smallest q is 2^-40, and what does not pay for it gets 0."""
    budgets = np.geomspace(1e-5, 9.0, 3000)
    q, cost = Certificate(lambda q: 10.0 * q).invert(budgets)
    assert (cost == 10.0 * q).all()
    assert ((budgets - cost) <= 0.0042 * np.maximum(budgets, 0.05)).all()
    tiny = np.array([0.999, 1.0, 1.0001]) * 10.0 * 2.0**-40
    assert Certificate(lambda q: 10.0 * q).invert(tiny)[0].tolist() == [0.0, 2.0**-40, 2.0**-40]


def test_no_probability_that_is_offered_is_below_the_smallest_that_is_priced() -> None:
    """A smaller q is priced as the smallest one. If smaller ones were offered, nobody could check their prices."""
    certificate = Certificate(lambda q: 10.0 * q)
    certificate.fill()
    nodes = np.concatenate([nodes for nodes, _ in certificate._brackets.values()])
    assert nodes.min() == SMALLEST_PROBABILITY
    assert nodes.max() == 1.0


def test_a_jump_of_the_price_is_not_split_without_end() -> None:
    certificate = Certificate(lambda q: np.where(q < 0.3, 0.1, 1.0))
    q, _ = certificate.invert(np.array([0.5]))
    assert 0.3 * (1.0 - 1e-6) < q[0] < 0.3
    nodes = np.unique(np.concatenate([nodes for nodes, _ in certificate._brackets.values()]))
    assert np.diff(np.log(nodes)).min() > 1e-8


def test_a_certificate_is_given_a_price_and_no_table() -> None:
    assert list(inspect.signature(Certificate).parameters) == ["price", "absolute_below"]
    assert Certificate(wavy).prices(np.array([0.5])).tolist() == [np.inf]


def test_a_table_knows_the_prices_of_its_own_nodes_alone() -> None:
    """The price of a neighbour would depend on which neighbours earlier budgets have put there."""
    certificate = Certificate(wavy)
    q = np.unique(certificate.invert(np.geomspace(0.5, 5.0, 50))[0])
    assert certificate.prices(q).tolist() == wavy(q).tolist()
    nodes = np.concatenate([nodes for nodes, _ in certificate._brackets.values()])
    others = np.concatenate([np.nextafter(q, 0.0), np.nextafter(q, 1.0), [1e-6, 1.0]])
    others = others[~np.isin(others, nodes)]
    assert others.size > q.size
    assert np.isinf(certificate.prices(others)).all()


def gaussian_delta(epsilon: float, mu: float) -> float:
    """δ of the Gaussian mechanism (Balle and Wang 2018)."""
    return float(stats.norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu))


def test_what_a_grid_cuts_off_is_paid_from_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grid that leaves out masses of half of δ: bounds get worse, and stay bounds."""
    schedule, delta = Schedule(1, 1, participation=1.0), 1e-2
    exact = float(optimize.brentq(lambda epsilon: gaussian_delta(epsilon, 1.0) - delta, 0.0, 10.0))
    curve = PrivacyCurve(schedule, noise_multiplier=1.0, delta=delta)
    usual, usual_delta = curve.epsilon(1.0), curve.delta(1.0, exact)
    monkeypatch.setattr(pld, "_LOST_SHARE", 0.5)
    cut = PrivacyCurve(schedule, noise_multiplier=1.0, delta=delta)
    assert exact <= usual < 1.001 * exact < cut.epsilon(1.0)
    assert delta <= usual_delta < 1.01 * delta < cut.delta(1.0, exact)


def test_a_capped_schedule_is_not_free_at_a_tiny_delta() -> None:
    """At most one round of two, λ = ½: with q the loss is a Gaussian's, σ = ¼, in three of four runs.

    An attacker who says "in" where an output is beyond c has Pr[in] = ¾ q Φ(…) > δ: a positive ε in closed form.
    """
    schedule = Schedule(2, 1, participation=0.5, max_participations=1)
    curve = PrivacyCurve(schedule, noise_multiplier=0.25, delta=1e-15)
    q = 1.99e-10
    thresholds = np.linspace(0.5, 4.0, 2000)
    there = 0.75 * ((1.0 - q) * stats.norm.sf(thresholds / 0.25) + q * stats.norm.sf((thresholds - 1.0) / 0.25))
    proven = np.log(np.maximum(there - 1e-15, 1e-300) / (0.75 * stats.norm.sf(thresholds / 0.25))).max()
    assert proven > 2.4
    assert curve.epsilon(q) >= proven
    assert curve.sampling_probability(1e-6) < q
    rdp = PrivacyCurve(schedule, noise_multiplier=0.25, delta=1e-15, accountant="rdp")
    assert rdp.epsilon(q) >= proven


def test_the_first_rounds_of_an_exact_schedule_are_not_free_either() -> None:
    """`after(t)` of exactly k rounds has a hypergeometric count, which passes through the same moments."""
    curve = PrivacyCurve(Schedule(4, 1, participations=2), noise_multiplier=0.25, delta=1e-15).after(1)
    assert curve.epsilon(1.99e-10) > 2.0
