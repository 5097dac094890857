"""A ledger with training, statistics and evaluation: it verifies, it explains, and an underpriced weight is found."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from rpdp import BudgetTable, PublicPlan, SiloPlan
from rpdp.accounting.gaussian_profile import gaussian_epsilon
from rpdp.ledger import Ledger, runs_that_fit
from rpdp.ledger.inspection.attacker import provable_delta
from rpdp.ledger.inspection.outlook import record_outlooks
from rpdp.ledger.inspection.second_moments import provable_divergence
from rpdp.planning import Allowance, MeasureSpec, Request, assign_allowed
from tests.ledger import small

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from rpdp.budgets import AccountKind
    from rpdp.planning import Purpose, RequestEstimator

REQUEST_PURPOSES: tuple[tuple[Purpose, RequestEstimator], ...] = (
    ("statistics", "representative"),
    ("evaluation", "everyone"),
)


def public(purpose: Purpose, estimator: RequestEstimator, **changes: Any) -> PublicPlan:
    request = Request(estimator, (MeasureSpec("count", 1), MeasureSpec("histogram", 10)))
    settings = {"noise_multiplier": 25.0, "delta": small.DELTA, "rounds": 2, "share": 0.2, **changes}
    return PublicPlan.of_request(request, purpose=purpose, **settings)


def persons(*, known: bool = True) -> BudgetTable:
    """Thirty records of twenty persons: a third of them have two records, and so a δ of their own."""
    names = [f"p{number % 20}" for number in range(30)] if known else None
    budgets = np.resize([0.2, 1.0, 4.0, 4.0], 20)
    return BudgetTable([f"r{number}" for number in range(30)], budgets[np.arange(30) % 20], subjects=names)


def table_of(ledger: Ledger) -> BudgetTable:
    """Rényi accounts cannot be divided among records and silos at once."""
    return persons(known=ledger.silos_per_person == 1 or ledger.account == "sums")


def ledger_of(directory: Path, account: AccountKind, silos_per_person: int = 1) -> Ledger:
    return Ledger.create(
        directory / "ledger.db",
        persons(known=silos_per_person == 1 or account == "sums"),
        kind="simulation",
        lifetime_delta=small.LIFETIME_DELTA,
        account=account,
        silos_per_person=silos_per_person,
    )


def planned(ledger: Ledger, plan: PublicPlan) -> SiloPlan:
    allowance = Allowance(share=plan.share or 0.2, purpose=plan.purpose)
    return assign_allowed(plan, persons().ids, ledger.left(table_of(ledger), small.LIFETIME_DELTA, allowance))


def all_plans(ledger: Ledger, silos_per_person: int) -> dict[str, PublicPlan]:
    common: dict[str, Any] = {"account": ledger.account, "lifetime_delta": small.LIFETIME_DELTA}
    common["silos_per_person"] = silos_per_person
    plans: dict[str, PublicPlan] = {
        purpose: public(purpose, estimator, **common) for purpose, estimator in REQUEST_PURPOSES
    }
    if ledger.account == "sums":
        return plans  # prices of training at many δ take seconds
    return {"training": small.public(share=0.2, **common), **plans}


@pytest.mark.parametrize("silos_per_person", [1, 3])
@pytest.mark.parametrize("account", ["sums", "renyi"])
def test_runs_of_all_purposes_verify_and_every_reader_understands_them(
    memory: Path, account: AccountKind, silos_per_person: int
) -> None:
    with ledger_of(memory, account, silos_per_person) as ledger:
        plans = all_plans(ledger, silos_per_person)
        for purpose, plan in plans.items():
            made = planned(ledger, plan)
            assert (made.q > 0.0).sum() >= 10
            ledger.reserve(purpose, made, None, Allowance(share=0.2, purpose=plan.purpose))
            for number in range(1, plan.schedule.rounds + 1):
                ledger.charge(purpose, number, small.heads)
            resumed = ledger.resume(purpose, persons().ids)
            np.testing.assert_array_equal(resumed.q, made.q)
        assert ledger.verify().findings == ()
        text = ledger.explain("r3").text
        weight = planned_weight(ledger, "statistics", "r3")
        assert "Run statistics (statistics, " in text
        assert f"in each release with weight {weight:.4g}." in text
        assert "in each release with weight 1." in text
        for run in ledger.explain("r3").runs[-2:]:
            assert run.given_joined == pytest.approx(run.epsilon, rel=1e-9)  # all rounds, at the δ that was booked
        assert text.count("drawn into each local step with probability") == len(plans) - 2
        everyone = ledger.explain("r0").runs[-1]
        assert (everyone.q, everyone.epsilon) == (0.0, 0.0)
        shown = ledger.overview().runs[-2:]
        assert [run.schedule for run in shown] == [
            "2 releases of 11 cells, estimator representative",
            "2 releases of 11 cells, estimator everyone",
        ]
        for overview in shown:
            alone = gaussian_epsilon(np.array([np.sqrt(2.0) / 25.0]), small.DELTA / 50.0)[0]
            assert 0.0 < overview.mean_cost <= overview.largest_cost <= alone


def planned_weight(ledger: Ledger, run: str, record: str) -> float:
    plan = ledger.resume(run, persons().ids)
    return float(plan.q[persons().ids.to_pylist().index(record)])


@pytest.mark.parametrize("silos_per_person", [1, 3])
@pytest.mark.parametrize("account", ["sums", "renyi"])
@pytest.mark.parametrize(("purpose", "estimator"), REQUEST_PURPOSES)
def test_a_weight_above_its_price_is_found(
    memory: Path, purpose: Purpose, estimator: RequestEstimator, account: AccountKind, silos_per_person: int
) -> None:
    """The control is the same plan as it is. Weights are one per mille too large; of everyone, somebody else's."""
    with ledger_of(memory, account, silos_per_person) as ledger:
        plan = all_plans(ledger, silos_per_person)[purpose]
        honest = planned(ledger, plan)
        ledger.reserve("honest", honest, None)
        assert ledger.verify().is_good
        if estimator == "everyone":
            cheap = replace(honest, cost=honest.cost * 0.999)
        else:
            cheap = replace(honest, q=np.where(honest.q < 0.99, honest.q * 1.001, honest.q))
        ledger.reserve("cheap", cheap, None)
        result = ledger.verify()
    assert {finding.check for finding in result.findings} == {"prices"}
    assert all("run 'cheap'" in finding.problem for finding in result.findings)


@pytest.mark.parametrize("account", ["sums", "renyi"])
def test_the_rounds_of_a_request_are_all_paid_for(memory: Path, account: AccountKind) -> None:
    """A plan of four releases that books the price of one is found by every price, and by the attacker alone."""
    with ledger_of(memory, account) as ledger:
        one = planned(ledger, public("statistics", "representative", rounds=1))
        four = public("statistics", "representative", rounds=4)
        cheap = replace(one, public=four, active_rounds=np.full(len(one), 4, dtype=np.int32))
        ledger.reserve("cheap", cheap, None)
        problems = [finding.problem for finding in ledger.verify().findings]
    assert any("booked below their cost" in problem for problem in problems)
    if account == "sums":
        assert any("what an attacker can prove" in problem for problem in problems)


def test_second_opinions_prove_the_whole_price_and_no_more() -> None:
    plan = public("statistics", "representative", rounds=3, noise_multiplier=4.0)
    weights = np.array([0.0, 1e-12, 1e-6, 0.01, 0.3, 1.0])
    for delta in (1e-2, 1e-5, 1e-12):
        price = plan.curve_at(delta).epsilon(weights)
        assert (provable_delta(plan, 3, weights, price) <= delta * (1.0 + 1e-9)).all()
        dear = price > 1e-4
        assert dear.sum() >= 2
        assert (provable_delta(plan, 3, weights, price * 0.999)[dear] > delta).all()
        assert (provable_delta(plan, 2, weights, price * 0.9)[dear] < delta).all()
    for order in (1.25, 2.0, 64.0):
        found = plan.divergence_curve(order).divergence(weights)
        np.testing.assert_allclose(provable_divergence(plan, weights, order), found, rtol=1e-12)


@pytest.mark.parametrize("account", ["sums", "renyi"])
def test_an_outlook_speaks_of_weights(memory: Path, account: AccountKind) -> None:
    with ledger_of(memory, account) as ledger:
        plan = public("statistics", "representative")
        allowance = Allowance(share=0.2, purpose="statistics")
        for number in range(4):
            ledger.reserve(f"run {number}", planned(ledger, plan), None, allowance)
        found = record_outlooks(ledger, persons(), plan, allowance, small.LIFETIME_DELTA)
        summary = found.summary("a")
    lines = "\n".join(summary.lines())
    assert "signal to noise Σw/s" in lines
    assert "in a release" in lines
    assert "q" not in lines.replace("equal", "")
    assert asdict(summary)["purpose"] == "statistics"
    assert summary.in_full + summary.reduced + summary.left_out == 30
    assert summary.unused_signal_to_noise == pytest.approx(float(found.runs.q.sum()) / 25.0)


def test_an_outlook_leaves_out_who_is_kept_for_another_purpose(memory: Path) -> None:
    """Of thirty records six are held out: only they serve evaluation. The control knows of no such records."""
    serves = np.arange(30) % 5 == 0
    with ledger_of(memory, "sums") as ledger:
        plan = public("evaluation", "representative")
        allowance = Allowance(share=0.2, purpose="evaluation")
        held_out, all_records = (
            record_outlooks(ledger, persons(), plan, allowance, small.LIFETIME_DELTA, assign_allowed, some)
            for some in (serves, None)
        )
    found, control = held_out.summary("a"), all_records.summary("a")
    assert (control.in_full, found.in_full) == (30, 6)
    assert found.why_left_out == {"kept for runs of another purpose": 24}
    assert (found.left_out, found.missing) == (24, 0)
    assert found.unused_signal_to_noise == pytest.approx(float(all_records.runs.q[serves].sum()) / 25.0)


@pytest.mark.parametrize("account", ["sums", "renyi"])
def test_runs_that_fit_are_as_many_as_the_ledger_admits(memory: Path, account: AccountKind) -> None:
    plan, table = public("evaluation", "everyone", share=0.1, noise_multiplier=40.0), persons()
    found = runs_that_fit(plan, table, share=0.1, account=account, lifetime_delta=small.LIFETIME_DELTA)
    with ledger_of(memory, account) as ledger:
        allowance = Allowance(share=0.1, purpose="evaluation")
        first = planned(ledger, plan)
        for number in range(found.runs_in_full):
            made = assign_allowed(plan, table.ids, ledger.left(table, small.LIFETIME_DELTA, allowance))
            np.testing.assert_array_equal(made.q, first.q)
            ledger.reserve(f"run {number}", made, None, allowance)
        beyond = assign_allowed(plan, table.ids, ledger.left(table, small.LIFETIME_DELTA, allowance))
        assert (beyond.q < first.q).any()
