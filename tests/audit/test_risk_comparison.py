"""What others can do to a record's risk: nothing under a plan, something where σ follows the budgets."""

from __future__ import annotations

import numpy as np
import pytest

from rpdp import BudgetTable, PublicPlan, Schedule
from rpdp.audit import compare_risk
from rpdp.audit.risk_comparison import advice


@pytest.fixture(scope="module")
def public() -> PublicPlan:
    return PublicPlan(
        Schedule(15, 10, participation=1.0),
        noise_multiplier=4.9755,
        delta=1e-3,
        clip_norm=1.0,
        normaliser=64,
        weights=1.0,
    )


@pytest.mark.parametrize("others", [0.1, 1.0, 9.0])
def test_under_a_plan_the_others_change_nothing(public: PublicPlan, others: float) -> None:
    table = BudgetTable([str(row) for row in range(50)], np.array([2.0] + [others] * 49))
    plan = public.assign(table)
    alone = public.assign(BudgetTable(["0"], [2.0]))
    assert (plan.q[0], plan.cost[0]) == (alone.q[0], alone.cost[0])


def test_where_the_noise_follows_the_budgets_risk_changes(public: PublicPlan) -> None:
    """The same (ε, δ), another profile: the more cautious the others, the larger the advantage."""
    report = compare_risk(public, 1.0)
    cautious, bold, bolder = report.scenarios
    assert (cautious.probability, report.epsilon) == (1.0, 1.0)
    assert cautious.advantage > report.own.advantage > bold.advantage > bolder.advantage
    assert report.worst is cautious
    assert report.least is bolder
    for scenario in (report.own, *report.scenarios):
        assert scenario.cost <= 1.0
        at_epsilon = scenario.profile[report.levels.index(1.0)]
        assert at_epsilon == pytest.approx(public.delta, rel=0.03)
        assert scenario.advantage == scenario.profile[0]
    assert report.own.excess == 0.0
    assert cautious.excess == pytest.approx((cautious.advantage - report.own.advantage) / 2.0)
    assert 0.0 < bolder.excess < 1e-4  # only far out, beyond ε
    assert 0.14 < report.least.advantage < report.worst.advantage < 0.155


def test_noise_that_nobody_plans_with_is_left_out() -> None:
    public = PublicPlan(
        Schedule(1, 1, participation=1.0),
        noise_multiplier=0.8,
        delta=1e-3,
        clip_norm=1.0,
        normaliser=64,
        weights=1.0,
    )
    assert len(compare_risk(public, 1.0).scenarios) < 3


def test_advice(public: PublicPlan) -> None:
    assert "nobody's risk depends on the others" in advice(public)
    assert "the others do change one's q" in advice(public, "minimum")
