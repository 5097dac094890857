"""Three estimators behind one interface: what they promise, and how the paper's fit overspends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rpdp import PrivacyCurve, Schedule
from rpdp.errors import InputError
from rpdp.planning import AUTHORS_CANDIDATES, ESTIMATORS, binary_search, certified, fit_curve, scf
from rpdp.planning.estimators import _search, estimator_named

MNIST = Schedule(15, 50, participation=0.5)
BUDGETS = np.array([0.02, 0.1, 0.1, 0.7, 1.0, 5.0, 9.5, 100.0])

OTHER_LISTS = {
    "0.01 … 1 by 0.01": np.arange(1, 101) / 100,
    "0.05 … 1 by 0.05": np.arange(1, 21) / 20,
    "0.001 … 1 by 0.001": np.arange(1, 1001) / 1000,
    "100 points, even in log q": np.geomspace(1e-3, 1.0, 100),
}


@pytest.fixture(scope="module")
def curve() -> PrivacyCurve:
    return PrivacyCurve(MNIST, noise_multiplier=10.748, delta=1e-4, accountant="rdp")


@pytest.mark.parametrize("name", ESTIMATORS)
def test_nobody_is_overdrawn(curve: PrivacyCurve, name: str) -> None:
    estimate = estimator_named(name)(curve, BUDGETS)
    assert (estimate.cost <= BUDGETS).all()
    assert ((estimate.q >= 0) & (estimate.q <= 1)).all()
    for q, rounds, cost in zip(estimate.q, estimate.active_rounds, estimate.cost, strict=True):
        assert curve.after(int(rounds)).covers(float(q), cost)
        assert curve.after(int(rounds)).epsilon(float(q)) == pytest.approx(cost, rel=5e-3, abs=1e-4)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_larger_budgets_are_sampled_more(curve: PrivacyCurve, name: str) -> None:
    estimate = estimator_named(name)(curve, np.sort(BUDGETS))
    assert (np.diff(estimate.q) >= 0).all()
    assert estimate.q[-1] == 1.0


def test_certified_and_binary_search_agree(curve: PrivacyCurve) -> None:
    one, other = certified(curve, BUDGETS), binary_search(curve, BUDGETS)
    np.testing.assert_allclose(one.q, other.q, rtol=8e-3)
    assert (one.active_rounds == 15).all()


def test_scf_overspends_at_the_mnist_setting(curve: PrivacyCurve) -> None:
    """The authors' list at the MNIST setting: R² above 0.999, and yet a record with ε = 0.1 would spend 0.124."""
    fit = fit_curve(curve)
    assert fit.r_squared > 0.9998
    q = fit.probabilities(np.array([0.1]))
    assert q[0] == pytest.approx(0.0225, abs=3e-4)
    assert curve.epsilon(q)[0] == pytest.approx(0.124, abs=0.002)
    assert AUTHORS_CANDIDATES.size == 190


@pytest.mark.parametrize(("name", "violation"), list(zip(OTHER_LISTS, [1.53, 1.66, 1.50, 1.0], strict=True)))
def test_the_violation_depends_on_the_candidates(curve: PrivacyCurve, name: str, violation: float) -> None:
    fit = fit_curve(curve, OTHER_LISTS[name])
    budgets = np.array([0.1, 1.0, 5.0])
    spent = curve.epsilon(fit.probabilities(budgets)) / budgets
    assert fit.r_squared > 0.999
    assert spent[0] == pytest.approx(violation, abs=0.03)


def test_an_attacker_can_prove_the_overspending() -> None:
    """At the MNIST setting even the lower bound on the true cost of the fitted q is above the budget."""
    exact = PrivacyCurve(MNIST, noise_multiplier=10.748, delta=1e-4)
    assert exact.bounds(0.0225).lower[0] > 0.1


def test_scf_at_the_papers_figure_setting() -> None:
    """Half of the budgets between 0.1 and 10 overspent by the accountant that the fit was made for, up to 3.6 times."""
    figure = PrivacyCurve(Schedule(20, 5, participation=0.5), noise_multiplier=1.0, delta=1e-3, accountant="rdp")
    budgets = np.geomspace(0.1, 10.0, 60)
    spent = figure.epsilon(fit_curve(figure).probabilities(budgets)) / budgets
    assert (spent > 1.0).mean() > 0.5
    assert spent.max() == pytest.approx(3.6, abs=0.1)


def test_scf_under_the_accountant_drops_records_in_time(curve: PrivacyCurve) -> None:
    estimate = scf(curve, np.array([0.1, 5.0, 20.0]))
    assert estimate.facts["violation"] == pytest.approx(1.23, abs=0.02)
    assert 0 < estimate.active_rounds[0] < 15
    assert estimate.active_rounds[2] == 15
    too_long = curve.after(int(estimate.active_rounds[0]) + 1).epsilon(float(estimate.q[0]))
    assert too_long > 0.1  # one round more would overspend


def test_scf_below_the_fitted_floor_gives_zero(curve: PrivacyCurve) -> None:
    tiny = scf(curve, np.array([1e-6, 1.0]))
    assert tiny.cost[0] <= 1e-6


def test_scf_works_for_exactly_k_rounds() -> None:
    curve = PrivacyCurve(Schedule(15, 50, participations=8), noise_multiplier=10.748, delta=1e-4, accountant="rdp")
    estimate = scf(curve, np.array([0.1, 1.0, 5.0]))
    assert (estimate.cost <= [0.1, 1.0, 5.0]).all()


@pytest.mark.parametrize("candidates", [[0.1], [0.0, 0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8, 1.5]])
def test_wrong_candidates_are_refused(curve: PrivacyCurve, candidates: list[float]) -> None:
    with pytest.raises(InputError, match="candidates"):
        fit_curve(curve, candidates)


def test_unknown_estimators_are_named() -> None:
    with pytest.raises(InputError, match="estimator='best' must be one of certified, scf, binary_search"):
        estimator_named("best")


def test_many_budgets_of_scf_are_priced_from_above_and_hardly_higher(curve: PrivacyCurve) -> None:
    budgets = np.geomspace(0.05, 5.0, 1500)
    many, few = estimator_named("scf")(curve, budgets), estimator_named("scf")(curve, budgets[::100])
    assert (many.cost <= budgets).all()
    for place, index in enumerate(range(0, 1500, 100)):
        assert abs(int(many.active_rounds[index]) - int(few.active_rounds[place])) <= 1
        price = curve.after(int(many.active_rounds[index])).epsilon(float(many.q[index]))
        assert price * (1 - 1e-9) <= many.cost[index] <= price * 1.005 + 1e-12


class Line:
    """A curve on which q costs 10 q; it counts how often it is asked."""

    largest_cost = 10.0
    asked = 0

    def epsilon(self, q: float) -> float:
        self.asked += 1
        return 10.0 * q


def test_a_search_ends_as_soon_as_it_is_close_enough() -> None:
    line: Any = Line()
    q, cost = _search(line, 1.0)
    assert 0.999 <= cost <= 1.0
    assert q == cost / 10.0
    assert line.asked <= 15


@pytest.mark.parametrize("budget", [10.0, 10.005, 1e6])
def test_a_search_gives_one_to_every_budget_that_pays_for_it(budget: float) -> None:
    line: Any = Line()
    assert _search(line, budget) == (1.0, 10.0)


def test_a_search_below_every_cost_gives_nothing() -> None:
    line: Any = Line()
    assert _search(line, 0.0) == (0.0, 0.0)
