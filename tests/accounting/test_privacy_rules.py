"""Rules of privacy.md that a seeded bug has shown to need a test of their own: prices on the safe side, whatever."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import optimize, stats

from rpdp import PrivacyCurve, Schedule
from rpdp.accounting import pld
from rpdp.accounting.certificate import Certificate

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


def test_costs_rise_with_q_whatever_the_prices_do(monkeypatch: pytest.MonkeyPatch) -> None:
    curve = make_curve()
    monkeypatch.setattr(curve, "_price", wavy)
    q = np.geomspace(1e-4, 1.0, 500)
    costs = curve.epsilon(q)
    assert (np.diff(wavy(q)) < 0.0).any()
    assert (np.diff(costs) >= 0.0).all()
    assert (costs >= wavy(q)).all()


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
