"""Lifetimes of Rényi and sum accounts in a ledger: how many runs fit, what all of them cost together, what is refused.

Joint prices are those of `dp_accounting`, which knows nothing of accounts: all runs that a ledger admitted are composed
as one mechanism.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from rpdp import BudgetTable, PublicPlan, Schedule
from rpdp.accounting.calibration import calibrate_noise
from rpdp.accounting.renyi_filter import ORDERS, lifetime_divergence, order_numbers
from rpdp.errors import BudgetError, InputError, PrivacyRefusal
from rpdp.ledger import Action, Ledger, StewardKey
from rpdp.ledger.store.schema import pack
from rpdp.planning import WHOLE, Allowance, MeasureSpec, Request, assign_allowed
from tests.ledger.small import by_hand, heads

if TYPE_CHECKING:
    from rpdp.budgets import AccountKind
    from rpdp.planning import SiloPlan

EPSILON, DELTA = 5.0, 1e-3
SCHEDULE = Schedule(6, 5, participations=4)
STEPS = 20
"""Exactly 4 rounds of 5 steps are joined."""

ONE_ALONE, ONE_DELTA = 1.0, 1e-4
"""What a run costs alone at q = 1."""


@lru_cache
def sigma() -> float:
    return calibrate_noise(SCHEDULE, epsilon=ONE_ALONE, delta=ONE_DELTA)


def public(**changes: Any) -> PublicPlan:
    settings: dict[str, Any] = {"clip_norm": 1.0, "normaliser": 10.0, "weights": 1.0, "accountant": "rdp"}
    return PublicPlan(SCHEDULE, **{"noise_multiplier": sigma(), "delta": ONE_DELTA, **settings, **changes})


def create(directory: Path, table: BudgetTable, account: AccountKind = "renyi", **settings: Any) -> Ledger:
    name = settings.pop("name", "ledger")
    settings = {"lifetime_delta": DELTA, **settings}
    return Ledger.create(directory / f"{name}.db", table, kind="simulation", account=account, **settings)


def one(epsilon: float = EPSILON) -> BudgetTable:
    return BudgetTable(["a", "b"], [epsilon, epsilon])


def plan(ledger: Ledger, table: BudgetTable, allowance: Allowance = WHOLE, **changes: Any) -> SiloPlan:
    return assign_allowed(public(**changes), table.ids, ledger.left(table, ledger.lifetime_delta, allowance))


def joint_epsilon(probabilities: list[float], delta: float) -> float:
    """What all of these runs cost together, as one mechanism, by privacy-loss distributions."""
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    for q in sorted(set(probabilities)):
        step = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(sigma()))
        accountant.compose(step, STEPS * probabilities.count(q))
    return float(accountant.get_epsilon(delta))


def admitted(ledger: Ledger, table: BudgetTable, most: int = 40, **changes: Any) -> list[float]:
    """The probabilities of the first record in run after run, until one would be below 1."""
    found: list[float] = []
    for number in range(most):
        next_plan = plan(ledger, table, **changes)
        if next_plan.q[0] < 1.0:
            break
        ledger.reserve(f"run {number}", next_plan, None)
        found.append(float(next_plan.q[0]))
    return found


def test_a_renyi_account_pays_for_seventeen_runs_where_sums_pay_for_five(memory: Path) -> None:
    """All admitted runs, priced together by somebody else, are within ε; twice as many are not."""
    with create(memory, one()) as ledger:
        runs = admitted(ledger, one())
        assert ledger.verify().is_good
        assert "spent" not in ledger.explain("a").text
    assert len(runs) >= 17
    assert joint_epsilon(runs, DELTA) <= EPSILON
    assert joint_epsilon(runs * 2, DELTA) > EPSILON  # the control: it is a price that can exceed
    with create(memory, one(), "sums", name="sums") as ledger:
        found = 0
        while found < 10:
            left = replace(ledger.left(one(), DELTA), common_delta=ONE_DELTA)  # at this δ a run costs 1
            next_plan = assign_allowed(public(accountant="pld"), one().ids, left)
            if next_plan.q[0] < 1.0:
                break
            ledger.reserve(f"run {found}", next_plan, None)
            found += 1
        assert found == EPSILON / ONE_ALONE
        assert "spent" in ledger.explain("a").text


def test_runs_of_many_kinds_stay_within_the_budget_together(memory: Path) -> None:
    """Shares of all sizes, chosen as they come; the control books half of each and exceeds."""
    generator = np.random.default_rng(3)
    table = one(2.0)
    with create(memory, table) as ledger:
        probabilities = []
        for number in range(12):
            made = plan(ledger, table, Allowance(share=float(generator.choice([0.05, 0.1, 0.3]))))
            ledger.reserve(f"run {number}", made, None)
            probabilities.append(float(made.q[0]))
        assert 0.99 < ledger.balances(table.ids).share_used[0] <= 1.0
        assert ledger.verify().is_good
    probabilities = [q for q in probabilities if q > 0.0]
    assert joint_epsilon(probabilities, DELTA) <= 2.0
    assert joint_epsilon(probabilities * 3, DELTA) > 2.0


def test_the_share_is_checked_again_in_the_transaction(memory: Path) -> None:
    """A plan that was made with a larger share is refused, and one that was made with this share is not."""
    table = one()
    small = Allowance(share=0.05)
    with create(memory, table) as ledger:
        large = plan(ledger, table, Allowance(share=0.06))
        with pytest.raises(PrivacyRefusal, match="2 records would go over their budgets or their allowance"):
            ledger.reserve("run", large, None, small)
        assert ledger.balances(table.ids).booked.tolist() == [0, 0]
        ledger.reserve("run", plan(ledger, table, small), None, small)
        assert 0.049 < ledger.balances(table.ids).share_used[0] <= 0.05


def test_a_reserved_share_is_kept_for_its_purpose(memory: Path) -> None:
    table = one()
    kept = Allowance(share=1.0, reserved={"evaluation": 0.4})
    with create(memory, table) as ledger:
        whole = ledger.left(table, DELTA).amount[0]
        made = plan(ledger, table, kept, noise_multiplier=1.0)
        assert made.cost[0] <= 0.6 * whole
        with pytest.raises(PrivacyRefusal, match="or their allowance"):
            ledger.reserve("too much", plan(ledger, table, noise_multiplier=1.0), None, kept)
        ledger.reserve("training", made, None, kept)
        assert ledger.left(table, DELTA, kept).amount[0] < 0.01 * whole
        evaluation = replace(kept, purpose="evaluation")
        assert 0.39 * whole < ledger.left(table, DELTA, evaluation).amount[0] <= 0.41 * whole
        request = Request("representative", (MeasureSpec("count", 1),))
        counts = PublicPlan.of_request(request, noise_multiplier=1.0, delta=DELTA, purpose="evaluation")
        second = assign_allowed(counts, table.ids, ledger.left(table, DELTA, replace(evaluation, share=0.1)))
        ledger.reserve("evaluation", second, None, evaluation)
        # What the purpose has booked of its reserve does not stay reserved: training has no more than before.
        assert ledger.left(table, DELTA, kept).amount[0] < 0.01 * whole
        assert 0.29 * whole < ledger.left(table, DELTA, evaluation).amount[0] < 0.31 * whole
        assert ledger.verify().is_good


def test_another_order_is_refused(memory: Path) -> None:
    table = one()
    with create(memory, table) as ledger:
        made = plan(ledger, table, Allowance(share=0.1))
        for other in (made.order + np.uint8(1), np.zeros(2, dtype=np.uint8)):
            with pytest.raises(PrivacyRefusal, match="another order"):
                ledger.reserve("run", replace(made, order=other), None)
        with pytest.raises(PrivacyRefusal, match="would go over"):
            ledger.reserve("run", replace(made, delta=np.full(2, 1e-9)), None)


def test_a_cost_below_zero_is_no_plan() -> None:
    """It would return what other runs have booked."""
    with pytest.raises(PrivacyRefusal, match="2 costs below 0"):
        by_hand(public(), one().ids, [-0.5, -0.5])


def test_a_booking_covers_its_cost(memory: Path) -> None:
    """In whole units, rounded up: exactly what the file has, run by run."""
    table = one()
    with create(memory, table) as ledger:
        for number in range(6):
            before = ledger.records.totals(ledger.records.chunks[0])[0].copy()
            made = plan(ledger, table, Allowance(share=0.01 * (number + 1)))
            ledger.reserve(f"run {number}", made, None)
            added = ledger.records.totals(ledger.records.chunks[0])[0] - before
            exact = np.array([int(cost * 2**52) + (cost * 2**52 % 1 > 0) for cost in made.cost.tolist()])
            assert added.tolist() == exact.tolist()


def test_a_cancelled_run_returns_exactly_what_it_held(memory: Path) -> None:
    table = one()
    share = Allowance(share=0.13)
    with create(memory, table) as ledger:
        ledger.reserve("first", plan(ledger, table, share), None)
        before, left = ledger.balances(table.ids).booked.copy(), ledger.left(table, DELTA).amount
        ledger.reserve("second", plan(ledger, table, share), None)
        assert (ledger.balances(table.ids).booked > before).all()
        ledger.cancel("second")
        np.testing.assert_array_equal(ledger.balances(table.ids).booked, before)
        np.testing.assert_array_equal(ledger.left(table, DELTA).amount, left)
        assert ledger.verify().is_good


def test_raising_adds_the_difference_at_the_same_order_and_lowering_ends_at_what_is_booked(memory: Path) -> None:
    key, table = StewardKey(), one()
    wide = one(900.0)
    with create(memory, table, steward=key.public) as ledger:
        before = ledger.left(table, DELTA)
        ledger.raise_budgets(["a"], EPSILON + 2.0, key=key)
        after = ledger.left(wide, DELTA)
        np.testing.assert_allclose(after.amount - before.amount, [2.0, 0.0], atol=1e-9)
        np.testing.assert_array_equal(after.order, before.order)
        assert after.order[0] != order_numbers(np.array([EPSILON + 2.0]), np.array([DELTA]))[0]
        ledger.reserve("run", plan(ledger, wide, Allowance(share=0.5), noise_multiplier=2.0), None)
        ledger.charge("run", 1, heads, lambda: (1, 2, 3, 4))
        assert ledger.switched_off().tolist() == []
        ledger.lower_budgets(["a"], 3.0)
        assert ledger.switched_off().tolist() == [0]
        assert ledger.left(wide, DELTA).amount[0] == 0.0
        np.testing.assert_array_equal(ledger.left(wide, DELTA).order, before.order)
        ledger.withdraw(["b"])
        assert sorted(ledger.switched_off().tolist()) == [0, 1]
        assert ledger.left(wide, DELTA).amount.tolist() == [0.0, 0.0]
        text = ledger.explain("a").text + ledger.explain("b").text
        assert "spent" not in text
        assert "no part of that ε belongs to a single run" in text
        assert ledger.verify().is_good


def test_the_delta_of_a_renyi_account_is_never_raised(memory: Path) -> None:
    """Neither through the method nor by an action that a steward has signed by hand; in a sum account it is."""
    key, table = StewardKey(), one()
    for account in ("renyi", "sums"):
        with create(memory, table, account, steward=key.public, name=account) as ledger:
            wide = BudgetTable(["a", "b"], [900.0, 900.0], delta=[0.5, 0.5])
            before = ledger.left(wide, DELTA)
            if account == "renyi":
                with pytest.raises(InputError, match="never raised"):
                    ledger.raise_budgets(["a"], delta=1e-2, key=key)
            unchanged = np.full(2, np.nan)
            action = Action("raise", ledger.id, ledger.key.records(table.ids), unchanged, np.full(2, 1e-2))
            ledger.submit(action.signed(key))
            after = ledger.left(wide, DELTA)
            np.testing.assert_array_equal(after.amount, before.amount)
            in_force = 1e-2 if account == "sums" else DELTA
            assert ledger.balances(wide.ids).delta.tolist() == [in_force, in_force]
            assert ledger.explain("a").delta == in_force
            ledger.reserve("run", plan(ledger, table), None)
            assert ledger.verify().is_good


PEOPLE = [(f"p{person}", 1 + person % 4, (0.5, 2.0, 8.0)[person % 3]) for person in range(12)]
"""Persons with 1 to 4 records and three budgets."""


@pytest.mark.parametrize("account", ["sums", "renyi"])
def test_persons_with_several_records_all_take_part(account: AccountKind, memory: Path) -> None:
    """The own δ of a record is smaller than that of the plan, and no reason to sit out."""
    rows = [(f"{name}-{number}", name, epsilon) for name, count, epsilon in PEOPLE for number in range(count)]
    records, names, epsilon = (list(column) for column in zip(*rows, strict=True))
    table = BudgetTable(records, epsilon, subjects=names)
    with create(memory, table, account, lifetime_delta=1e-5) as ledger:
        share = Allowance(share=0.2)
        made = plan(ledger, table, share, delta=1e-5)
        assert made.left_out == 0
        assert (made.q > 1e-4).all()
        ledger.reserve("run", made, None, share)
        assert ledger.verify().is_good
        assert ((made.delta > 0.0) == (account == "sums")).all()


@pytest.mark.parametrize("runs_in", [(0, 1, 2, 0, 1, 2), (0, 0, 0, 0, 1, 2)])
def test_a_person_in_three_silos_is_within_the_budget_over_all_of_them(runs_in: tuple[int, ...], memory: Path) -> None:
    """Runs in some silos only; everything together is priced by somebody else. Without k·ρ the person exceeds."""
    table, epsilon = one(2.0), 2.0
    for silos, exceeds in ((3, False), (1, True)):
        probabilities = []
        ledgers = [create(memory, table, name=f"{silos}-{number}", silos_per_person=silos) for number in range(3)]
        for number, place in enumerate(runs_in):
            left_share = 1.0 if runs_in[number:].count(place) == 1 else 0.5
            share = Allowance(share=left_share)
            made = plan(ledgers[place], table, share, noise_multiplier=3.0)
            ledgers[place].reserve(f"run {number}", made, None, share)
            probabilities.append(float(made.q[0]))
        for ledger in ledgers:
            assert ledger.verify().is_good
            ledger.close()
        accountant = PLDAccountant(value_discretization_interval=1e-3)
        for q in [q for q in probabilities if q > 0.0]:
            step = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(3.0))
            accountant.compose(step, STEPS)
        assert (accountant.get_epsilon(DELTA) > epsilon) == exceeds


def test_the_silos_of_a_person_use_one_delta(memory: Path) -> None:
    """At the order of δ = 1e-3, two silos together would be worth ε = 5.86 at δ = 1e-5 in place of 5."""
    table = one()
    with create(memory, table, silos_per_person=2) as ledger:
        assert (ledger.left(table, DELTA).amount > 0.0).all()
        for other in (1e-5, 1e-2):
            with pytest.raises(PrivacyRefusal, match="need one δ"):
                ledger.left(table, other)
    with pytest.raises(BudgetError, match="needs one δ"):
        create(memory, BudgetTable(["a"], [1.0], delta=[1e-6]), silos_per_person=2, name="own")
    with pytest.raises(BudgetError, match="several records of one person"):
        create(memory, BudgetTable(["a", "b"], [1.0, 1.0], subjects=["p", "p"]), silos_per_person=2, name="two")
    with create(memory, table, name="alone") as ledger:  # one silo: the smaller δ counts
        assert (ledger.left(table, 1e-5).amount < ledger.left(table, DELTA).amount).all()


def test_a_lowered_delta_gives_nothing_to_a_person_in_several_silos(memory: Path) -> None:
    """At ε = 4.868 and δ = 1e-3, just below a border of two orders, B would rise from 2.83 to 3.05."""
    table = one(4.868)
    with create(memory, table, silos_per_person=2) as ledger:
        before = ledger.left(table, DELTA)
        ledger.lower_budgets(["a"], delta=0.64 * DELTA)
        after = ledger.left(table, DELTA)
        np.testing.assert_array_equal(after.order, before.order)
        assert after.amount[0] <= before.amount[0]
        assert after.amount[1] == before.amount[1]
        assert ledger.verify().is_good


def test_a_sum_account_holds_a_part_for_each_silo(memory: Path) -> None:
    table = one()
    with create(memory, table, "sums", silos_per_person=4) as ledger:
        left = ledger.left(table, DELTA)
        assert left.amount.tolist() == [EPSILON / 4.0] * 2
        assert left.delta.tolist() == [DELTA / 4.0] * 2


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("accounts")
    table = BudgetTable(["a", "b", "c"], [1.0, 5.0, 10.0])
    with create(directory, table, silos_per_person=2) as ledger:
        share = Allowance(share=0.1)
        ledger.reserve("run", plan(ledger, table, share), None, share)
        assert ledger.verify().is_good
    return directory


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE enrolment SET orders = ?",
        "DELETE FROM enrolment",
        "UPDATE class_account SET orders = ?",
        "DELETE FROM class_account",
    ],
)
def test_changed_rows_of_accounts_are_found(original: Path, memory: Path, statement: str) -> None:
    target = memory / "copy"
    shutil.copytree(original, target)
    connection = apsw.Connection(str(target / "ledger.db"))
    blob = pack(np.array([7, 7, 7, 7][: 4 if "class" in statement else 3], dtype=np.uint8))
    connection.execute(statement, (blob,) if "?" in statement else ()).fetchall()
    connection.close()
    with Ledger.read(target / "ledger.db") as ledger:
        assert "bulk" in {finding.check for finding in ledger.verify().findings}


def findings(ledger: Ledger) -> str:
    return "\n".join(finding.problem for finding in ledger.verify().findings)


def rebooked(directory: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> str:
    """What `verify` says of a ledger that booked a changed plan because it checked nothing."""
    monkeypatch.setattr("rpdp.ledger.record_accounts.RecordAccounts.require", lambda *_: None)
    table = BudgetTable(["a", "b", "c"], [1.0, 5.0, 10.0])
    silos = changes.pop("silos", 1)
    with create(directory, table, silos_per_person=silos) as ledger:
        share = Allowance(share=0.1)
        made = plan(ledger, table, changes.pop("planned", share))
        for name in list(changes):
            changes[name] = changes[name](getattr(made, name))
        if "cost" in changes:
            changes["budget"] = np.maximum(made.budget, changes["cost"])
        ledger.reserve("run", replace(made, **changes), None, share)
        return findings(ledger)


def test_verify_accepts_what_was_honestly_booked(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rebooked(memory, monkeypatch) == ""


def test_verify_finds_another_order(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problems = rebooked(memory, monkeypatch, order=lambda order: order - np.uint8(3), cost=lambda cost: cost * 1.0)
    assert "at another order than they were enrolled with" in problems


def test_verify_finds_a_booking_above_the_share(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "beyond their budget in force" in rebooked(memory, monkeypatch, planned=Allowance(share=0.2))


def test_verify_finds_a_delta_above_the_share(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a sum account a run may take no larger share of δ than of ε; the plan alone does not say so."""
    monkeypatch.setattr("rpdp.ledger.record_accounts.RecordAccounts.require", lambda *_: None)
    share = Allowance(share=0.2)
    for delta, problem in ((0.2 * DELTA, ""), (0.9 * DELTA, "beyond their budget in force")):
        with create(memory, one(), "sums", name=f"{delta}") as ledger:
            left = replace(ledger.left(one(), DELTA, share), common_delta=delta, delta=np.full(2, DELTA))
            ledger.reserve("run", assign_allowed(public(), one().ids, left), None, share)
            assert problem in findings(ledger)
            assert bool(problem) == bool(findings(ledger))


def test_verify_finds_a_divergence_that_is_too_low(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "booked below their cost" in rebooked(memory, monkeypatch, cost=lambda cost: cost * 0.999)


def test_verify_finds_a_divergence_that_is_booked_once_for_two_silos(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "booked below their cost" in rebooked(memory, monkeypatch, silos=2, cost=lambda cost: cost / 2.0)


def test_verify_finds_a_renyi_account_that_books_a_delta(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problems = rebooked(memory, monkeypatch, delta=lambda delta: delta + 1e-9)
    assert "classes of Rényi accounts book a δ" in problems


def test_verify_finds_orders_that_are_not_those_of_the_map(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A smaller ε enrolled at the order of a larger one, or the other way round."""
    monkeypatch.setattr(
        "rpdp.ledger.account_terms.order_numbers", lambda epsilon, delta: order_numbers(epsilon * 3.0, delta)
    )
    with create(memory, one()) as ledger:
        assert "at other orders than the public map gives" in findings(ledger)


def test_verify_finds_one_order_that_is_not_that_of_the_map(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def one_wrong(epsilon: Any, delta: Any) -> Any:
        numbers = order_numbers(epsilon, delta)
        numbers[0] += 1
        return numbers

    monkeypatch.setattr("rpdp.ledger.account_terms.order_numbers", one_wrong)
    with create(memory, one()) as ledger:
        assert "at other orders than the public map gives" in findings(ledger)


def test_verify_takes_either_price_at_a_delta_of_the_lattice(memory: Path) -> None:
    """A common δ may lie on the lattice of own ones by chance; then prices of the plan's accountant are honest, too."""
    delta = 2.0**-10
    with create(memory, one(), "sums", lifetime_delta=delta) as ledger:
        made = plan(ledger, one(), accountant="pld", delta=delta)
        ledger.reserve("run", made, None)
        assert findings(ledger) == ""


def test_the_budget_is_that_of_the_filter() -> None:
    """B at (5, 1e-3), from the formula, with an independent conversion back."""
    number = order_numbers(np.array([EPSILON]), np.array([DELTA]))
    lifetime = float(lifetime_divergence(np.array([EPSILON]), np.array([DELTA]), number)[0])
    accountant = RdpAccountant([float(ORDERS[number][0])])
    noise = float(np.sqrt(ORDERS[number][0] / (2.0 * lifetime)))  # a Gaussian whose divergence is B
    accountant.compose(dp_accounting.GaussianDpEvent(noise))
    assert accountant.get_epsilon(DELTA) == pytest.approx(EPSILON, rel=1e-9)
