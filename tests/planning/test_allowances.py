"""What one run may take: shares, ceilings, reserves, own δ; and nothing of it rests on other records."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from rpdp import BudgetTable, PublicPlan
from rpdp.accounting.renyi_filter import ORDERS, order_numbers
from rpdp.errors import InputError, PlanError
from rpdp.ledger import MemoryAccount
from rpdp.planning import Allowance, Allowances, MeasureSpec, Request, Status, assign_allowed, states_its_costs

if TYPE_CHECKING:
    from rpdp.budgets import AccountKind
    from rpdp.planning import Purpose, SiloPlan

DELTA = 1e-4
EPSILON = np.array([0.5, 1.0, 2.0, 5.0, 8.0])


def table(epsilon: np.ndarray = EPSILON, **columns: Any) -> BudgetTable:
    return BudgetTable([f"r{number}" for number in range(len(epsilon))], epsilon, **columns)


def allowed(
    budgets: BudgetTable, account: AccountKind, allowance: Allowance, *, silos: int = 1, delta: float = DELTA
) -> Allowances:
    return MemoryAccount(len(budgets), account=account, silos_per_person=silos).left(budgets, delta, allowance)


KINDS = pytest.mark.parametrize("account", ["sums", "renyi"])


@KINDS
def test_a_run_takes_at_most_its_share(account: AccountKind, public: PublicPlan) -> None:
    """And nearly all of it where q is not 1 already; without the share it takes everything."""
    whole = allowed(table(), account, Allowance(share=1.0))
    part = allowed(table(), account, Allowance(share=0.1))
    np.testing.assert_array_equal(part.amount, 0.1 * whole.amount)
    plan = assign_allowed(public, table().ids, part)
    assert (plan.cost <= 0.1 * whole.amount).all()
    assert (plan.cost[1:] > 0.09 * whole.amount[1:]).all()  # the smallest is below the first price that is not 0
    assert (assign_allowed(public, table().ids, whole).cost > 0.1 * whole.amount).all()
    if account == "sums":
        np.testing.assert_array_equal(part.delta, 0.1 * whole.delta)
        assert part.common_delta == 0.1 * DELTA
        np.testing.assert_array_equal(plan.delta, np.full(5, 0.1 * DELTA))
    else:
        assert (plan.delta == 0.0).all()


@KINDS
def test_a_run_alone_stays_below_the_ceiling(account: AccountKind, public: PublicPlan) -> None:
    some = allowed(table(), account, Allowance(share=1.0, max_epsilon=0.7))
    plan = assign_allowed(public, table().ids, some)
    assert (public.curve.epsilon(plan.q) <= 0.7).all()
    assert public.curve.epsilon(plan.q).max() > 0.68
    assert states_its_costs(plan, some)
    without = assign_allowed(public, table().ids, replace(some, max_epsilon=None))
    assert (public.curve.epsilon(without.q) > 0.7).any()
    assert not states_its_costs(without, some)


@KINDS
def test_a_share_that_is_reserved_is_left_to_its_purpose(account: AccountKind, public: PublicPlan) -> None:
    reserved: dict[Purpose, float] = {"evaluation": 0.25, "statistics": 0.05}
    whole = allowed(table(), account, Allowance(share=1.0))
    training = allowed(table(), account, Allowance(share=1.0, reserved=reserved))
    evaluation = allowed(table(), account, Allowance(share=1.0, purpose="evaluation", reserved=reserved))
    np.testing.assert_allclose(training.amount, 0.7 * whole.amount, rtol=1e-12)
    np.testing.assert_allclose(evaluation.amount, 0.95 * whole.amount, rtol=1e-12)
    if account == "sums":
        np.testing.assert_allclose(training.delta, 0.7 * whole.delta, rtol=1e-12)


def test_what_a_purpose_has_booked_is_no_longer_reserved() -> None:
    account = MemoryAccount(5, account="renyi")
    kept = Allowance(share=1.0, reserved={"evaluation": 0.25})
    whole = account.left(table(), DELTA).amount
    request = Request("representative", (MeasureSpec("count", 1),))
    purpose = PublicPlan.of_request(request, noise_multiplier=4.0, delta=DELTA, purpose="evaluation")
    take = Allowance(share=0.2, purpose="evaluation", reserved=kept.reserved)
    account.reserve("run", assign_allowed(purpose, table().ids, account.left(table(), DELTA, take)), None, take)
    # 0.2 of 0.25 is booked: what training may take is as it was, but for the rounding of the booking.
    np.testing.assert_allclose(account.left(table(), DELTA, kept).amount, 0.75 * whole, rtol=1e-9)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"share": 0.0}, "share=0"),
        ({"share": 1.5}, "share=1.5"),
        ({"share": 0.1, "purpose": "fun"}, "purpose='fun'"),
        ({"share": 0.1, "max_epsilon": -1.0}, "max_epsilon=-1"),
        ({"share": 0.1, "reserved": {"fun": 0.1}}, "reserved='fun'"),
        ({"share": 0.1, "reserved": {"training": 0.6, "statistics": 0.6}}, "more than the whole budget"),
        ({"share": 0.1, "reserved": [0.1]}, "must map purposes"),
    ],
)
def test_allowances_that_mean_nothing_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Allowance(**settings)


def test_a_smaller_own_delta_is_priced_at_its_own(public: PublicPlan) -> None:
    """Nobody sits out for it. The control states the common price at the own δ, which is too low."""
    own = np.array([DELTA, DELTA / 3.0, DELTA / 50.0, 1e-9, DELTA * 5.0])
    some = allowed(table(np.full(5, 2.0), delta=own), "sums", Allowance(share=1.0))
    plan = assign_allowed(public, table().ids, some)
    assert plan.left_out == 0
    assert (plan.delta <= own * (1.0 + 1e-12)).all()
    assert (plan.delta > 0.8 * np.minimum(own, DELTA)).all()
    assert plan.delta[[0, 4]].tolist() == [DELTA, DELTA]
    assert plan.q[3] < plan.q[2] < plan.q[1] < plan.q[0] == plan.q[4]
    assert states_its_costs(plan, some)
    assert not states_its_costs(replace(plan, delta=np.full(5, 1e-9), q=np.full(5, plan.q[0])), some)
    nothing = assign_allowed(public, table().ids, replace(some, delta=np.zeros(5)))
    assert (nothing.status == Status.DELTA_TOO_SMALL).all()


def test_several_silos_book_every_divergence_several_times(public: PublicPlan) -> None:
    one, three = (allowed(table(), "renyi", Allowance(share=0.2), silos=silos) for silos in (1, 3))
    assert (three.amount <= one.amount).all()
    plan = assign_allowed(public, table().ids, three)
    for row, number in enumerate(three.order.tolist()):
        divergence = public.divergence_curve(float(ORDERS[number])).divergence(plan.q[row : row + 1])[0]
        assert plan.cost[row] == pytest.approx(3.0 * divergence, rel=1e-9)
    assert states_its_costs(plan, three)
    assert not states_its_costs(replace(plan, cost=plan.cost / 3.0), three)
    assert states_its_costs(replace(plan, cost=plan.cost / 3.0), replace(three, silos_per_person=1))


@KINDS
def test_a_plan_that_states_less_than_it_costs_is_seen(account: AccountKind, public: PublicPlan) -> None:
    some = allowed(table(), account, Allowance(share=0.2))
    plan = assign_allowed(public, table().ids, some)
    assert states_its_costs(plan, some)
    for row in range(5):
        less, more = plan.cost.copy(), plan.q.copy()
        less[row] *= 0.99
        more[row] = min(1.0, more[row] * 1.01)
        assert not states_its_costs(replace(plan, cost=less), some)
        assert not states_its_costs(replace(plan, q=more), some)
    if account == "renyi":
        early = np.full(5, 3, dtype=np.int32)
        assert not states_its_costs(replace(plan, active_rounds=early), some)


def test_a_renyi_price_is_that_of_the_records_own_order(public: PublicPlan) -> None:
    """A smaller order would be cheaper: a plan that is priced at it states too little at the true one."""
    some = allowed(table(), "renyi", Allowance(share=0.2))
    np.testing.assert_array_equal(some.order, order_numbers(EPSILON, np.full(5, DELTA)))
    cheaper = assign_allowed(public, table().ids, replace(some, order=some.order - np.uint8(4)))
    assert (cheaper.q > assign_allowed(public, table().ids, some).q).all()
    assert not states_its_costs(replace(cheaper, order=some.order), some)


def rows(plan: SiloPlan) -> list[tuple[Any, ...]]:
    columns = (plan.q, plan.cost, plan.delta, plan.order, plan.active_rounds, plan.status)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@KINDS
def test_other_records_change_nothing(account: AccountKind, public: PublicPlan) -> None:
    """To the last bit, also records with other budgets, own δ, and nothing left."""
    generator = np.random.default_rng(5)
    epsilon = np.exp(generator.uniform(np.log(0.05), np.log(20.0), 30))
    delta = np.where(generator.random(30) < 0.5, DELTA, DELTA * generator.random(30))
    whole = table(epsilon, delta=delta)
    allowance = Allowance(share=0.3, max_epsilon=3.0)
    together = rows(assign_allowed(public, whole.ids, allowed(whole, account, allowance)))
    for row in (0, 7, 12, 29):
        alone = table(epsilon[row : row + 1], delta=delta[row : row + 1])
        fresh = replace(public, notes=(f"{account} {row}",)) if row == 7 and account == "renyi" else public
        assert rows(assign_allowed(fresh, alone.ids, allowed(alone, account, allowance))) == together[row : row + 1]
    assert len(set(together)) > 20


def test_estimators_without_certificates_do_not_plan_renyi_accounts(public: PublicPlan) -> None:
    some = allowed(table(), "renyi", Allowance(share=0.2))
    with pytest.raises(PlanError, match="sum accounts only"):
        assign_allowed(public, table().ids, some, estimator="scf")
    assert np.isnan(some.epsilon).all()
