"""The budget accountant of the paper: budget, cost so far, rounds left, at a price that does not grow with records."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rpdp import BudgetTable, PublicPlan, Schedule, SiloPlan
from rpdp.errors import PrivacyRefusal
from rpdp.ledger import BudgetAccountant
from tests.federation.world import make_ids

ROUNDS = 20
BUDGETS = np.geomspace(0.1, 10.0, 25)


@pytest.fixture(scope="module")
def public() -> PublicPlan:
    """The paper's figure setting, where its curve fit overspends by up to 3.6 times."""
    return PublicPlan(
        Schedule(ROUNDS, 5, participation=0.5),
        noise_multiplier=1.0,
        delta=1e-3,
        clip_norm=1.0,
        normaliser=10.0,
        weights=1.0,
        accountant="rdp",
    )


@pytest.fixture(scope="module")
def certified(public: PublicPlan) -> SiloPlan:
    return public.assign(BudgetTable(make_ids(BUDGETS.size), BUDGETS))


@pytest.fixture(scope="module")
def fitted(public: PublicPlan) -> SiloPlan:
    return public.assign(BudgetTable(make_ids(BUDGETS.size), BUDGETS), estimator="scf")


@pytest.mark.parametrize("name", ["certified", "fitted"])
def test_spending_rises_with_rounds_and_ends_within_the_budget(name: str, request: pytest.FixtureRequest) -> None:
    plan: SiloPlan = request.getfixturevalue(name)
    accountant = BudgetAccountant(plan)
    spent = [accountant.spent()]
    assert (spent[0] == 0.0).all()
    for number in (1, 2, 5, 12, ROUNDS):
        accountant.charge(number)
        spent.append(accountant.spent())
    drawn = plan.cost > 0.01
    assert drawn.sum() > 15
    assert (np.diff(spent, axis=0) >= 0.0).all()
    assert (spent[1] < spent[-1])[drawn & (plan.active_rounds > 1)].all()
    assert (spent[-1] <= plan.cost).all()
    assert (plan.cost <= BUDGETS).all()
    # A plan may price each q at a fixed point just above it.
    np.testing.assert_allclose(spent[-1], plan.cost, rtol=5e-3)
    assert (spent[-1] <= plan.cost * (1.0 + 1e-6)).all()


def test_the_cost_so_far_is_the_cost_of_the_announced_rounds(public: PublicPlan, certified: SiloPlan) -> None:
    accountant = BudgetAccountant(certified)
    accountant.charge(7)
    np.testing.assert_allclose(accountant.spent(), public.curve.after(7).epsilon(certified.q), rtol=1e-12)


def test_certified_records_stay_to_the_end(certified: SiloPlan) -> None:
    accountant = BudgetAccountant(certified)
    for number in range(1, ROUNDS + 1):
        assert accountant.charge(number).size == 0
        assert (accountant.rounds_left == ROUNDS - number).all()


def test_fitted_records_end_at_their_own_round(public: PublicPlan, fitted: SiloPlan) -> None:
    """One round more would overspend, so some records end early; each does so right after its last round."""
    accountant = BudgetAccountant(fitted)
    assert fitted.facts["violation"] > 3.0
    assert 5 < (fitted.active_rounds < ROUNDS).sum() < BUDGETS.size
    ended_before: dict[int, int] = {}
    for number in range(1, ROUNDS + 1):
        ended_before |= dict.fromkeys(accountant.charge(number).tolist(), number)
        assert (accountant.rounds_left == np.maximum(fitted.active_rounds - number, 0)).all()
    early = {row: int(last) + 1 for row, last in enumerate(fitted.active_rounds) if last < ROUNDS}
    assert ended_before == early
    row = int(np.flatnonzero((fitted.active_rounds < ROUNDS) & (fitted.q > 0.0))[-1])
    one_more = public.curve.after(int(fitted.active_rounds[row]) + 1)
    assert one_more.epsilon(float(fitted.q[row])) > BUDGETS[row]


def test_missed_rounds_are_charged_with_the_next(fitted: SiloPlan) -> None:
    step_by_step, at_once = BudgetAccountant(fitted), BudgetAccountant(fitted)
    ended = [row for number in range(1, 12) for row in step_by_step.charge(number).tolist()]
    assert sorted(ended) == sorted(at_once.charge(11).tolist())
    assert at_once.announced == 11
    assert at_once.spent().tolist() == step_by_step.spent().tolist()


@pytest.mark.parametrize("number", [4, 3, 0, -1, ROUNDS + 1])
def test_rounds_are_charged_once_and_only_those_of_the_plan(certified: SiloPlan, number: int) -> None:
    accountant = BudgetAccountant(certified)
    accountant.charge(4)
    with pytest.raises(PrivacyRefusal, match=f"round {number} cannot be charged: 4 of 20"):
        accountant.charge(number)
    assert accountant.announced == 4


def test_a_round_is_charged_without_looking_at_records(fitted: SiloPlan) -> None:
    """After the start the plan's columns are gone; charging needs the number of rounds only."""

    class NoColumns(SimpleNamespace):
        def __getattr__(self, name: str) -> Any:
            pytest.fail(f"charging a round reads {name} of every record")

    accountant = BudgetAccountant(fitted)
    accountant.plan = NoColumns(public=fitted.public)  # type: ignore[assignment]
    for number in range(1, ROUNDS + 1):
        accountant.charge(number)
    with pytest.raises(pytest.fail.Exception, match="active_rounds"):
        accountant.spent()  # the control: this one does look
