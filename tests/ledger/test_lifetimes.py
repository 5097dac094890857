"""Whole lifetimes under an adversary who chooses each run after seeing all releases: measured, and within (ε, δ).

Bounds on δ at ε come from the releases alone (`tests.ledger.adversary`), with a confidence of 99 % and a fixed seed: an
honest build would exceed its promise in less than 1 % of seeds, in fact in none, because the lower bound is far below.
Every control must exceed it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from rpdp import BudgetTable, PublicPlan
from rpdp.accounting.renyi_filter import ORDERS
from rpdp.errors import InputError, PlanError, PrivacyRefusal
from rpdp.federation import Policy, Silo
from rpdp.ledger import Ledger
from rpdp.planning import WHOLE, assign_allowed
from rpdp.sampling import Secure
from rpdp.studies.study_file import StudyFile
from tests.federation.world import admit, make_public, make_records
from tests.ledger.adversary import MENU, delta_between, live, reserve

if TYPE_CHECKING:
    import pyarrow as pa

    from rpdp.planning import Allowance, Allowances, Planner, SiloPlan
    from tests.ledger.adversary import Lives

DELTA = 1e-2
"""A large δ, because few lives show it; the accounts are the same at any."""

CONFIDENCE = 0.99
TURNS = 9
RECORDS_OF_A_PERSON = 4


def create(directory: Path, table: BudgetTable) -> Ledger:
    return Ledger.create(directory / "ledger.db", table, kind="simulation", account="renyi", lifetime_delta=DELTA)


def records(count: int, epsilon: float, of_a_person: int = 1) -> BudgetTable:
    names = [f"r{number}" for number in range(count)]
    persons = None if of_a_person == 1 else [f"p{number // of_a_person}" for number in range(count)]
    return BudgetTable(names, np.full(count, epsilon), subjects=persons)


def book_every_fourth_turn(ledger: Ledger, run: str, plan: SiloPlan, allowance: Allowance) -> None:
    """The control: a ledger that loses bookings."""
    if int(run.split(".")[0]) % 4 == 0:
        reserve(ledger, run, plan, allowance)


def within(lives: Lives, epsilon: float) -> tuple[float, float]:
    return delta_between(lives, epsilon, CONFIDENCE, seed=1)


@pytest.mark.parametrize("epsilon", [1.0, 4.0, 8.0])
def test_a_thousand_lifetimes_of_adaptive_runs_stay_within_their_budget(epsilon: float, memory: Path) -> None:
    """About 45 runs, nine turns for each of 1,000 lives, each chosen from what was released before."""
    table = records(1_000, epsilon)
    with create(memory, table) as ledger:
        lives = live(ledger, table, TURNS, seed=5, book=reserve)
        assert lives.runs > 4 * TURNS
        assert ledger.balances(table.ids).share_used.max() <= 1.0
        assert ledger.balances(table.ids).share_used.mean() > 0.98
        assert ledger.verify().is_good
    assert within(lives, epsilon)[0] <= DELTA


def test_ten_thousand_lifetimes_show_that_the_promise_is_kept(memory: Path) -> None:
    """With so many, the upper bound on δ is below the promise as well: the test has the power to see it."""
    table = records(10_000, 4.0)
    with create(memory, table) as ledger:
        lives = live(ledger, table, TURNS, seed=6, book=reserve)
    least, most = within(lives, 4.0)
    assert least <= most <= DELTA
    assert within(lives, 1.0)[0] > DELTA  # much is spent: at a quarter of ε, δ is larger


@pytest.mark.parametrize("epsilon", [4.0, 8.0])
def test_a_ledger_that_loses_bookings_is_caught(epsilon: float, memory: Path) -> None:
    table = records(1_000, epsilon)
    with create(memory, table) as ledger:
        lives = live(ledger, table, TURNS, seed=5, book=book_every_fourth_turn)
        assert ledger.balances(table.ids).share_used.max() <= 1.0  # the books alone look right
    assert within(lives, epsilon)[0] > DELTA


def test_persons_with_four_records_stay_within_their_budget(memory: Path) -> None:
    table = records(4_000, 4.0, RECORDS_OF_A_PERSON)
    of = np.arange(4_000) // RECORDS_OF_A_PERSON
    with create(memory, table) as ledger:
        lives = live(ledger, table, TURNS, seed=5, book=reserve, persons=of)
        assert ledger.balances(table.ids).share_used.mean() > 0.98
        assert ledger.verify().is_good
    assert within(lives, 4.0)[0] <= DELTA


def test_a_split_of_the_divergence_is_caught(memory: Path) -> None:
    """The control: the person's own order, and B/k for each of k records. Divergences of one person do not add up."""
    table = records(4_000, 4.0)
    of = np.arange(4_000) // RECORDS_OF_A_PERSON

    def a_part(ledger: Ledger) -> np.ndarray:
        accounts = ledger.balances(table.ids)
        return np.maximum(1.0 / RECORDS_OF_A_PERSON - accounts.share_used, 0.0) * accounts.lifetime()[0]

    with create(memory, table) as ledger:
        lives = live(ledger, table, TURNS, seed=5, book=reserve, persons=of, limit=a_part)
        assert ledger.balances(table.ids).share_used.max() <= 1.0 / RECORDS_OF_A_PERSON + 1e-12
    assert within(lives, 4.0)[0] > DELTA


# What is not allowed has no way in.


def at_another_order(step: int) -> Planner:
    """Priced truly, at an order that the adversary prefers."""

    def planner(public: PublicPlan, ids: pa.ChunkedArray, allowed: Allowances) -> SiloPlan:
        plan = assign_allowed(public, ids, replace(allowed, order=(allowed.order.astype(int) + step).astype(np.uint8)))
        assert plan.q.any()
        return plan

    return planner


def by_loss_distributions(public: PublicPlan, ids: pa.ChunkedArray, allowed: Allowances) -> SiloPlan:
    """As a sum account would: ε of this run by its privacy-loss distribution, subtracted from what is left."""
    as_sums = replace(allowed, order=np.zeros(len(ids), dtype=np.uint8), delta=np.full(len(ids), public.delta))
    return assign_allowed(public, ids, replace(as_sums, common_delta=public.delta))


def half_of_the_divergence(public: PublicPlan, ids: pa.ChunkedArray, allowed: Allowances) -> SiloPlan:
    """Half of the divergence is stated, as a tighter account of one run might justify."""
    plan = assign_allowed(public, ids, allowed)
    return replace(plan, cost=plan.cost / 2.0)


def in_some_rounds(public: PublicPlan, ids: pa.ChunkedArray, allowed: Allowances) -> SiloPlan:
    plan = assign_allowed(public, ids, allowed)
    return replace(plan, active_rounds=np.ones(len(ids), dtype=np.int32))


@pytest.mark.parametrize(
    ("planner", "told"),
    [
        (at_another_order(1), "another order"),
        (at_another_order(-1), "another order"),
        (by_loss_distributions, "allowance|another kind of account|states lower costs"),
        (half_of_the_divergence, "states lower costs"),
        (in_some_rounds, "states lower costs"),
    ],
)
def test_no_planner_gets_around_the_filter(planner: Planner, told: str, memory: Path) -> None:
    """Of a real silo with a production ledger. The planner that is meant to be used is admitted."""
    public = make_public(noise_multiplier=4.0)
    table = BudgetTable(["a", "b"], [2.0, 8.0])
    policy = replace(Policy.of(public), max_share_per_run=0.3)
    with Ledger.create(memory / "real.db", table, kind="production", lifetime_delta=1e-3) as ledger:
        silo = Silo("a", make_records(2), table, policy=policy, account=ledger, planner=planner)
        with pytest.raises(PrivacyRefusal, match=told):
            admit(silo, public, randomness=Secure())
        assert ledger.status().runs == ()
        assert not ledger.balances(table.ids).booked.any()
        honest = Silo("a", make_records(2), table, policy=policy, account=ledger)
        assert (admit(honest, public, randomness=Secure()).cost > 0.0).all()


def test_a_lower_price_that_was_put_into_the_ledger_itself_is_found(memory: Path) -> None:
    """By somebody with the ledger in hand, past the silo: `verify` prices every run again."""
    table = records(3, 4.0)
    public, share = MENU[0]
    with create(memory, table) as ledger:
        plan = assign_allowed(public, table.ids, ledger.left(table, DELTA, share))
        ledger.reserve("split", replace(plan, cost=plan.cost / 2.0), None, WHOLE)
        found = " ".join(finding.problem for finding in ledger.verify().findings)
        assert "booked below their cost" in found


def test_neither_a_plan_nor_a_study_can_state_an_order(memory: Path) -> None:
    stated = json.loads(MENU[0][0].to_json())
    with pytest.raises(PlanError, match="order"):
        PublicPlan.from_json(json.dumps({**stated, "order": float(ORDERS[9])}))
    study = memory / "run.toml"
    example = Path("examples/breast_cancer.toml").read_text(encoding="utf-8")
    study.write_text(example, encoding="utf-8")
    StudyFile.read(study)
    study.write_text(example.replace("[privacy]", "[privacy]\norder = 4.0"), encoding="utf-8")
    with pytest.raises(InputError, match="order"):
        StudyFile.read(study)
