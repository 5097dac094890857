"""B is the batch to expect in a silo like the declared one: whoever computes it, and whatever share a run takes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from rpdp import BudgetTable, Schedule, declared_plan
from rpdp.errors import PlanError, PrivacyRefusal
from rpdp.ledger import unused_accounts
from rpdp.methods import METHODS, Declared, method_named
from rpdp.planning import Allowance, Allowances

if TYPE_CHECKING:
    from rpdp import PublicPlan
    from rpdp.budgets import AccountKind

BUDGETS = np.array([0.1, 1.0, 1.0, 5.0])
RECORDS = 200


@pytest.mark.parametrize(
    ("account", "share", "silos"),
    [("sums", 1.0, 1), ("sums", 0.1, 1), ("sums", 0.2, 3), ("renyi", 1.0, 1), ("renyi", 0.2, 1), ("renyi", 0.2, 3)],
)
def test_declared_budgets_allow_what_accounts_will(
    public: PublicPlan, account: AccountKind, share: float, silos: int
) -> None:
    asked = replace(public, share=share, account=account, lifetime_delta=1e-3, silos_per_person=silos)
    declared = Allowances.of_new_accounts(asked, BUDGETS)
    table = BudgetTable(["a", "b", "c", "d"], BUDGETS)
    real = unused_accounts(
        table, Allowance(share=share), account=account, lifetime_delta=1e-3, silos_per_person=silos
    ).one_run
    for name in ("amount", "delta", "order"):
        np.testing.assert_allclose(getattr(declared, name), getattr(real, name), rtol=1e-9, err_msg=name)


@pytest.mark.parametrize("share", [None, 0.1])
def test_plans_and_methods_agree_on_the_normaliser(share: float | None) -> None:
    schedule = Schedule(6, 5, participations=6)
    plan = declared_plan(schedule, budgets=BUDGETS, records=RECORDS, delta=1e-4, share=share, accountant="rdp")
    known = Declared(BUDGETS, RECORDS, 10.0)
    assert method_named("rpdp").public(replace(plan, normaliser=1.0), known, None).normaliser == plan.normaliser
    table = BudgetTable([str(row) for row in range(4)], BUDGETS)
    accounts = unused_accounts(table, Allowance(share=share or 1.0), account="sums", lifetime_delta=1e-4)
    drawn = method_named("rpdp").planner(BUDGETS, known, None)(plan, table.ids, accounts.one_run)
    assert plan.normaliser == pytest.approx(RECORDS * drawn.q.mean(), rel=1e-9)


@pytest.mark.parametrize("name", [name for name in METHODS if name != "scf"])
def test_a_share_makes_every_batch_smaller(public: PublicPlan, name: str) -> None:
    """Each method divides by the batch of its own run, which takes a share; the level stays one of a lifetime."""
    known, level = Declared(BUDGETS, 1_000_000, 10.0), 1.0
    whole, part = (method_named(name).public(replace(public, share=share), known, level) for share in (None, 0.2))
    assert 1.0 < part.normaliser < 0.5 * whole.normaliser


def test_levels_are_not_compared_with_other_amounts(public: PublicPlan) -> None:
    with pytest.raises(PlanError, match="compares budgets of sum accounts"):
        method_named("threshold").public(replace(public, account="renyi"), Declared(BUDGETS, RECORDS, 10.0), 1.0)


def test_nobody_to_draw_is_refused(public: PublicPlan) -> None:
    known = Declared(BUDGETS, RECORDS, 10.0)
    with pytest.raises(PrivacyRefusal, match="method threshold: no declared budget is large enough for a single draw"):
        method_named("threshold").public(public, known, level=50.0)


def test_without_a_ceiling_no_record_pays_more_than_ten() -> None:
    plan = declared_plan(Schedule(5, 10, participation=0.5), budgets=[1.0, 5.0], records=100, delta=1e-4)
    assert 9.9 < plan.curve.largest_cost <= 10.0
