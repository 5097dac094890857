"""Silo plans of requests: weights within budgets, by one path for all accounts, the same whoever else is planned."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from rpdp import PublicPlan
from rpdp.accounting.gaussian_profile import gaussian_epsilon
from rpdp.accounting.renyi_filter import ORDERS, lifetime_divergence, order_numbers
from rpdp.errors import PlanError
from rpdp.planning import Allowances, MeasureSpec, Request, SiloPlan, assign_allowed, states_its_costs

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from numpy.typing import NDArray

DELTA, S = 1e-4, 12.0
MEASURES = (MeasureSpec("count", 1), MeasureSpec("histogram", 10))


def public(estimator: str = "representative", **settings: Any) -> PublicPlan:
    given = {"noise_multiplier": S, "delta": DELTA, "purpose": "statistics", "rounds": 2, **settings}
    return PublicPlan.of_request(Request(estimator, MEASURES), **given)  # type: ignore[arg-type]


def ids_of(count: int) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array([f"r-{number}" for number in range(count)])])


def budgets(count: int = 60) -> NDArray[np.float64]:
    return np.random.default_rng(5).permutation(np.append(np.geomspace(0.003, 10.0, count - 2), [0.0, 0.0]))


def all_allowances(epsilon: NDArray[np.float64], ceiling: float = 0.2) -> dict[str, Allowances]:
    """Sum accounts at a common δ, with own δ, Rényi accounts, and those of persons in three silos, with a ceiling."""
    size = epsilon.size
    orders = order_numbers(epsilon, np.full(size, DELTA))
    left = 0.3 * lifetime_divergence(epsilon, np.full(size, DELTA), orders)
    own = DELTA * np.exp2(-np.arange(size) / 3.0)
    return {
        "common": Allowances.of_sums(epsilon),
        "own": Allowances.of_sums(epsilon, own),
        "renyi": Allowances(epsilon, left, np.zeros(size), orders),
        "three silos": Allowances(epsilon, left, np.zeros(size), orders, max_epsilon=ceiling, silos_per_person=3),
        "ceiling": replace(Allowances.of_sums(epsilon), max_epsilon=ceiling),
    }


KINDS = tuple(all_allowances(budgets()))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("estimator", ["everyone", "representative"])
def test_no_record_pays_more_than_it_may_and_all_pay_their_price(estimator: str, kind: str) -> None:
    """Each price by Balle & Wang's formula or ρ = T w² α / (2 s²), for a Gaussian of multiplier s/(w√T)."""
    ceiling = 0.5 if estimator == "everyone" else 0.2
    plan_of, allowed = public(estimator), all_allowances(budgets(), ceiling)[kind]
    plan = assign_allowed(plan_of, ids_of(60), allowed)
    assert (plan.cost <= allowed.amount).all()
    assert (plan.q[allowed.amount == 0.0] == 0.0).all()
    assert 10 < (plan.q > 0.0).sum() < 60
    if estimator == "everyone":
        assert set(plan.q.tolist()) == {0.0, 1.0}
    shift = plan.q * np.sqrt(2.0) / S
    for row in np.flatnonzero(plan.q > 0.0):
        if plan.order[row]:
            due = allowed.silos_per_person * shift[row] ** 2 * ORDERS[plan.order[row]] / 2.0
        else:
            due = gaussian_epsilon(shift[row : row + 1], plan.delta[row])[0]
        assert due * (1.0 - 1e-12) <= plan.cost[row] <= due * (1.0 + 1e-9)
        if allowed.max_epsilon is not None:
            assert gaussian_epsilon(shift[row : row + 1], DELTA)[0] <= allowed.max_epsilon
    assert states_its_costs(plan, allowed)


@pytest.mark.parametrize("kind", KINDS)
def test_everyone_takes_part_exactly_if_the_price_of_one_is_covered(kind: str) -> None:
    plan_of, allowed = public("everyone"), all_allowances(budgets(), ceiling=0.5)[kind]
    plan = assign_allowed(plan_of, ids_of(60), allowed)
    sums = allowed.order == 0
    deltas = np.where(plan.delta > 0.0, plan.delta, np.minimum(allowed.delta, DELTA))
    for row in np.flatnonzero(sums):
        most = allowed.amount[row] if allowed.max_epsilon is None else min(allowed.amount[row], allowed.max_epsilon)
        price = gaussian_epsilon(np.array([np.sqrt(2.0) / S]), float(deltas[row]))[0]
        if not 0.8 * most < price < most:  # an own δ may have been rounded down
            assert plan.q[row] == float(price <= most)
    for row in np.flatnonzero(~sums & (plan.q == 0.0)):
        due = allowed.silos_per_person * ORDERS[allowed.order[row]] / S**2
        assert due > allowed.amount[row]


@pytest.mark.parametrize("estimator", ["everyone", "representative"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_weight_is_the_same_alone_and_in_company(estimator: str, kind: str) -> None:
    """To the last bit: weight, price and δ of one record, whatever other budgets there are."""
    allowed = all_allowances(budgets())[kind]
    together = assign_allowed(public(estimator), ids_of(60), allowed)
    for row in range(0, 60, 7):
        alone = assign_allowed(public(estimator), ids_of(1), allowed.rows(np.array([row])))
        for column in ("q", "cost", "delta", "order", "active_rounds", "status"):
            assert getattr(alone, column)[0] == getattr(together, column)[row]


@pytest.mark.parametrize("kind", KINDS)
def test_a_planner_that_states_less_than_a_weight_costs_is_caught(kind: str) -> None:
    """Priced as the square of the weight, for one round, or for a weight one per cent smaller; truth is accepted."""
    allowed = all_allowances(budgets())[kind]
    plan = assign_allowed(public(), ids_of(60), allowed)
    assert states_its_costs(plan, allowed)
    some = np.flatnonzero((plan.q > 0.1) & (plan.q < 1.0) & (plan.cost > 1e-6))
    assert some.size
    heavier = {"heavier": np.where(plan.q < 0.9, plan.q * 1.01, plan.q), "root": np.sqrt(plan.q)}
    for q in heavier.values():
        assert not states_its_costs(replaced(plan, q=q), allowed)
    one_round = assign_allowed(public(rounds=1), ids_of(60), allowed)
    assert not states_its_costs(replaced(plan, q=one_round.q, cost=one_round.cost), allowed)


def replaced(plan: SiloPlan, **columns: NDArray[np.float64]) -> SiloPlan:
    return replace(plan, **columns)  # type: ignore[arg-type]


@pytest.mark.parametrize("estimator", ["scf", "binary_search"])
def test_estimators_of_probabilities_refuse_a_request(estimator: str) -> None:
    with pytest.raises(PlanError, match=f"{estimator}.*samples nobody.*use estimator='certified'"):
        assign_allowed(public(), ids_of(60), Allowances.of_sums(budgets()), estimator=estimator)


def test_a_plan_of_weights_speaks_of_weights_and_one_of_training_does_not() -> None:
    epsilon = np.array([0.001, 0.1, 10.0, 1.0])
    plan = assign_allowed(public(), ids_of(4), Allowances.of_sums(epsilon, np.array([1.0, 1.0, 1.0, 0.0])))
    text = plan.explain("r-1")
    assert f"It counts with weight {plan.q[1]:.4g} in each of 2 releases of this run for statistics." in text
    assert f"at δ = {DELTA:g} by the exact price of a Gaussian." in text
    assert f"an advantage of at most {public().curve.advantage(plan.q[1]):.1%}" in text
    assert "counts in full (weight 1)" in plan.explain("r-2")
    assert "nothing is left of its δ" in plan.explain("r-3")
    assert "count, histogram" in plan.public._repr_html_()
    everyone = assign_allowed(public("everyone", rounds=1), ids_of(4), Allowances.of_sums(epsilon))
    price = everyone.public.curve.largest_cost
    assert f"taking part (ε = {price:.4g} at δ = 0.0001) would cost more over 1 release of 11" in everyone.explain(
        "r-0"
    )
    for words in ("probability", "batch", "local step", "accountant", "normaliser", "learning"):
        assert words not in text + everyone.explain("r-0") + everyone.explain("r-1")
    assert plan.summary()["rarely_drawn"] == 0


def test_weights_between_nothing_and_one_are_none_of_everyone() -> None:
    plan = assign_allowed(public("everyone"), ids_of(4), Allowances.of_sums(np.full(4, 10.0)))
    with pytest.raises(PlanError, match=r"weights between 0 and 1.*counts whole or not at all"):
        replaced(plan, q=np.array([1.0, 0.5, 0.0, 1.0]))


def test_a_silo_plan_returns_from_its_file(tmp_path: Path) -> None:
    plan = assign_allowed(public(), ids_of(60), all_allowances(budgets())["renyi"])
    plan.write(tmp_path / "plan.parquet")
    again = SiloPlan.read(tmp_path / "plan.parquet")
    assert again.fingerprint == plan.fingerprint
    np.testing.assert_array_equal(again.q, plan.q)
