"""New records of a person who is known share what is left, and nothing that was booked is forgotten."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from rpdp import BudgetTable
from rpdp.budgets.person_split import log_joint_delta
from rpdp.errors import BudgetError, InputError, PrivacyRefusal
from rpdp.ledger import Ledger, StewardKey
from rpdp.ledger.stewardship.sharing import left_parts
from rpdp.ledger.store.fixed_point import DELTA_SHIFT, EPSILON_SHIFT
from tests.ledger import small
from tests.ledger.small import LIFETIME_DELTA, heads

if TYPE_CHECKING:
    from rpdp.budgets import AccountKind

EPSILON = 4.0


@pytest.fixture
def key() -> StewardKey:
    return StewardKey()


def table(*records: str) -> BudgetTable:
    """Records a… of Ann, b… of Bob; each allows EPSILON."""
    names = {"a": "ann", "b": "bob"}
    return BudgetTable(records, [EPSILON] * len(records), subjects=[names[record[0]] for record in records])


def make(directory: Path, account: AccountKind = "sums", **settings: Any) -> Ledger:
    given = {"kind": "simulation", "lifetime_delta": LIFETIME_DELTA, "account": account, **settings}
    return Ledger.create(directory / "ledger.db", table("a1", "a2", "b1"), **given)


def booked(ledger: Ledger, run: str, costs: dict[str, float], delta: float = 1e-4, *, begins: bool = True) -> None:
    """Book what each record is told to."""
    records = table(*costs)
    cost = np.array(list(costs.values()))
    made = small.by_hand(small.public(delta=delta), records.ids, cost, np.where(cost > 0.0, 0.5, 0.0))
    ledger.reserve(run, made, None)
    if begins:
        ledger.charge(run, 1, heads)


def findings(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What `verify` finds; prices are made up here."""
    monkeypatch.setattr("rpdp.ledger.inspection.verification.reprice", lambda ledger, progress: iter(()))
    return [f"{one.check}: {one.problem}" for one in ledger.verify().findings]


def of_ann(ledger: Ledger, *records: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """ε and δ in force, and what is booked of both, of Ann's records."""
    held = ledger.balances(table(*records).ids)
    spent = held.booked * 2.0**-EPSILON_SHIFT, held.booked_delta * 2.0**-DELTA_SHIFT
    return held.epsilon, held.delta, *spent


def joint(epsilon: np.ndarray, delta: np.ndarray) -> float:
    return float(np.exp(log_joint_delta(epsilon, delta, np.zeros(len(epsilon), dtype=np.int64), 1)[0]))


# What the parts are


def test_what_is_left_is_shared_and_nothing_booked_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two records at ε = 2 each; 0.5 and 1 are booked. A third record: 2.5 are left for three."""
    with make(tmp_path) as ledger:
        booked(ledger, "one", {"a1": 0.5, "a2": 1.0, "b1": 1.0})
        before = of_ann(ledger, "a1", "a2")
        ledger.add(table("a3"))
        epsilon, delta, spent, spent_delta = of_ann(ledger, "a1", "a2", "a3")
        assert epsilon - spent == pytest.approx([1.5 * 2 / 3, 1.0 * 2 / 3, 2.5 / 3], rel=1e-9)
        assert epsilon.sum() <= EPSILON
        assert spent.tolist() == [0.5, 1.0, 0.0]
        left_before = joint(before[0] - before[2], before[1] - before[3])
        assert joint(epsilon - spent, delta - spent_delta) == pytest.approx(left_before, rel=1e-6)
        # All of it together, as group composition counts it: what was booked, and what is left.
        assert joint(spent, spent_delta) + joint(epsilon - spent, delta - spent_delta) <= LIFETIME_DELTA
        assert [event.kind for event in ledger.chain.events()] == ["create", "admit", "charge", "lower", "add"]
        assert ledger.explain("b1").epsilon == EPSILON
        assert findings(ledger, monkeypatch) == []
        person = ledger.explain_subject("ann")
        assert person.epsilon == pytest.approx(EPSILON)
        assert 0.5 * LIFETIME_DELTA < person.delta <= LIFETIME_DELTA


def test_of_a_person_of_whom_nothing_is_booked_all_parts_are_even(tmp_path: Path) -> None:
    with make(tmp_path) as ledger:
        ledger.add(table("a3", "a4"))
        epsilon, delta, *_ = of_ann(ledger, "a1", "a2", "a3", "a4")
        assert epsilon == pytest.approx([1.0] * 4, rel=1e-9)
        assert joint(epsilon, delta) == pytest.approx(LIFETIME_DELTA, rel=1e-6)
        assert joint(epsilon, delta) <= LIFETIME_DELTA
        assert ledger.explain("a1").changes[0].count("new records of this person share what is left") == 1


def test_a_person_who_has_nothing_left_gets_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with make(tmp_path) as ledger:
        booked(ledger, "one", {"a1": 2.0, "a2": 2.0})
        ledger.add(table("a3"))
        everyone = table("a1", "a2", "a3")
        assert ledger.left(everyone, LIFETIME_DELTA).epsilon.tolist() == [0.0, 0.0, 0.0]
        assert ledger.switched_off().tolist() == []
        assert findings(ledger, monkeypatch) == []


def test_a_life_of_runs_and_new_records_stays_within_the_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random runs that take what they can, and new records in between: the sum of all group costs, run by run, stays
    within (ε, δ). The control forgets what was booked, and exceeds it. Seed 11, 12 steps."""
    for forgets in (False, True):
        (tmp_path / str(forgets)).mkdir()
        generator, records = np.random.default_rng(11), ["a1", "a2"]
        spent, spent_delta, step = 0.0, 0.0, 0
        with make(tmp_path / str(forgets)) as ledger:
            if forgets:
                monkeypatch.setattr("rpdp.ledger.stewardship.sharing._require_budgets", lambda *given: None)
                monkeypatch.setattr(
                    "rpdp.ledger.stewardship.sharing.left_parts", lambda held: (held.epsilon, held.delta)
                )
            while step < 12:
                step += 1
                if step % 3 == 0:
                    records.append(f"a{len(records) + 1}")
                    ledger.add(table(records[-1]))
                    continue
                left = ledger.left(table(*records), LIFETIME_DELTA)
                assert left.delta is not None
                cost = left.epsilon * generator.random(len(records))
                delta = float(left.delta[cost > 0.0].min(initial=1.0)) * 0.5
                if not cost.any() or delta <= 0.0:
                    continue
                booked(ledger, f"run {step}", dict(zip(records, cost.tolist(), strict=True)), delta)
                spent += cost.sum()
                spent_delta += joint(cost, np.where(cost > 0.0, delta, 0.0))
            if not forgets:
                assert findings(ledger, monkeypatch) == []
        assert (spent > EPSILON * (1 + 1e-9) or spent_delta > LIFETIME_DELTA) == forgets


def test_the_next_run_can_use_all_that_is_left(tmp_path: Path) -> None:
    """The silo's table states the person's whole budget; its even part is no limit for uneven parts."""
    with make(tmp_path) as ledger:
        booked(ledger, "one", {"a1": 1.5, "a2": 1.5})
        ledger.add(table("a3"))
        everyone = table("a1", "a2", "a3")
        assert ledger.left(everyone, LIFETIME_DELTA).epsilon == pytest.approx([1 / 3] * 3, rel=1e-9)
        less = BudgetTable(everyone.ids, everyone.epsilon / 2.0, subjects=everyone.subjects)
        assert ledger.left(less, LIFETIME_DELTA).epsilon[0] == 0.0


# Changing budgets afterwards


def test_raising_and_lowering_uneven_parts(tmp_path: Path, key: StewardKey) -> None:
    with make(tmp_path, steward=key.public) as ledger:
        booked(ledger, "one", {"a1": 0.5, "a2": 1.0})
        ledger.add(table("a3"))
        records = ("a1", "a2", "a3")
        before = of_ann(ledger, *records)
        ledger.raise_budgets(["a3"], 7.0, key=key)
        ledger.left(table(*records), LIFETIME_DELTA)
        epsilon, delta, spent, spent_delta = of_ann(ledger, *records)
        assert epsilon.sum() == pytest.approx(7.0)
        assert epsilon - before[0] == pytest.approx([1.0] * 3)
        left_before = joint(before[0] - spent, before[1] - spent_delta)
        assert joint(epsilon - spent, delta - spent_delta) <= left_before * (1 + 1e-9)
        with pytest.raises(InputError, match="share what was left when some of them were added"):
            ledger.raise_budgets(["a1"], delta=0.5, key=key)
        ledger.lower_budgets(["a1"], 3.5)
        ledger.left(table(*records), LIFETIME_DELTA)
        assert of_ann(ledger, *records)[0] == pytest.approx(epsilon / 2.0)
        ledger.lower_budgets(subjects=["ann"], delta=1e-5)
        ledger.left(table(*records), LIFETIME_DELTA)
        lowered = of_ann(ledger, *records)
        assert joint(lowered[0], lowered[1]) <= 1e-5 * (1 + 1e-9)
        assert ledger.explain_subject("ann").delta <= 1e-5 * (1 + 1e-9)


# Rényi accounts


def test_renyi_accounts_are_divided_while_nothing_is_booked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with make(tmp_path, "renyi") as ledger:
        ledger.add(table("a3"))
        epsilon, delta, *_ = of_ann(ledger, "a1", "a2", "a3")
        assert epsilon == pytest.approx([EPSILON / 3] * 3, rel=1e-9)
        assert joint(epsilon, delta) <= LIFETIME_DELTA
        assert (ledger.balances(table("a1", "a2", "a3").ids).lifetime()[0] > 0.0).all()
        assert findings(ledger, monkeypatch) == []


def test_what_is_left_of_a_renyi_account_is_not_shared(tmp_path: Path) -> None:
    with make(tmp_path, "renyi") as ledger:
        records = table("a1", "a2", "b1")
        ledger.reserve("one", small.plan(ledger, records), None)
        ledger.charge("one", 1, heads)
        with pytest.raises(PrivacyRefusal, match=r"1 of 1 known persons of this table has Rényi accounts .* 'ann'"):
            ledger.add(table("a3"))
        assert [event.kind for event in ledger.chain.events()] == ["create", "admit", "charge"]
        ledger.add(BudgetTable(["c1"], [1.0], subjects=["cleo"]))


# What is refused


def test_what_a_run_holds_is_not_shared(tmp_path: Path) -> None:
    """What a cancelled hold returned would come on top of what was shared."""
    with make(tmp_path) as ledger:
        booked(ledger, "one", {"a1": 0.5, "a2": 1.0}, begins=False)
        with pytest.raises(PrivacyRefusal, match="run 'one' holds budgets of these persons and has not begun"):
            ledger.add(table("a3"))
        ledger.add(table("b2"))
        ledger.cancel("one")
        ledger.add(table("a3"))


def test_a_table_states_the_budget_that_the_ledger_has(tmp_path: Path) -> None:
    with make(tmp_path) as ledger:
        more = BudgetTable(["a3", "b2"], [5.0, EPSILON], subjects=["ann", "bob"])
        with pytest.raises(BudgetError, match=r"1 of 2 known persons .* another budget .* 'ann' has ε = 4 there and 5"):
            ledger.add(more)
        with pytest.raises(BudgetError, match="record 'a1' is in the ledger already"):
            ledger.add(table("a1"))


def test_who_has_withdrawn_gets_no_new_record(tmp_path: Path, key: StewardKey) -> None:
    with make(tmp_path, steward=key.public) as ledger:
        ledger.withdraw(subjects=["ann"])
        with pytest.raises(PrivacyRefusal, match=r"withdrawn from the ledger with all records .the first is 'ann'"):
            ledger.add(table("a3"))
        ledger.reconsent(subjects=["ann"], key=key)
        ledger.add(table("a3"))


def test_no_action_comes_between(tmp_path: Path, key: StewardKey) -> None:
    """A raise that waits in the inbox is booked before: else it would be divided among the old records alone."""
    with make(tmp_path, steward=key.public) as ledger, Ledger.read(tmp_path / "ledger.db") as steward:
        steward.raise_budgets(["a1"], 6.0, key=key)
        records = BudgetTable(["a3"], [6.0], subjects=["ann"])
        ledger.add(records)
        assert [event.kind for event in ledger.chain.events()] == ["create", "lower", "raise", "lower", "add"]
        epsilon, *_ = of_ann(ledger, "a1", "a2", "a3")
        assert epsilon.sum() <= 6.0
        assert steward.left(table("a1", "a2", "a3"), LIFETIME_DELTA).epsilon.sum() <= 6.0


def test_in_several_silos_each_shares_its_part(tmp_path: Path) -> None:
    with make(tmp_path, silos_per_person=2) as ledger:
        ledger.add(table("a3"))
        assert of_ann(ledger, "a1", "a2", "a3")[0].sum() == pytest.approx(EPSILON / 2)
        assert ledger.explain_subject("ann").epsilon == pytest.approx(EPSILON)


# What verify finds


@pytest.mark.parametrize(
    ("forge", "found"),
    [
        (lambda epsilon, delta: (epsilon * 1.01, delta), "more ε than was left"),
        (lambda epsilon, delta: (epsilon, delta * 1.01), "more δ than was left"),
    ],
)
def test_verify_finds_parts_that_are_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forge: Any, found: str
) -> None:
    monkeypatch.setattr("rpdp.ledger.stewardship.sharing.left_parts", lambda held: forge(*left_parts(held)))
    with make(tmp_path) as ledger:
        booked(ledger, "one", {"a1": 0.5, "a2": 1.0})
        ledger.add(table("a3"))
        assert any(found in line for line in findings(ledger, monkeypatch))


def test_verify_finds_records_that_share_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rpdp.ledger.stewardship.bookings.shared", lambda *given: None)
    with make(tmp_path) as ledger:
        ledger.add(table("a3"))
        assert findings(ledger, monkeypatch) == [
            "persons: event 2 added records of known persons without dividing what is left"
        ]


def test_verify_finds_that_a_hold_or_a_booked_filter_was_divided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rpdp.ledger.stewardship.sharing._require_nothing_held", lambda *given: None)
    monkeypatch.setattr("rpdp.ledger.stewardship.sharing._require_divisible", lambda *given: None)
    with make(tmp_path, "renyi") as ledger:
        ledger.reserve("one", small.plan(ledger, table("a1", "a2", "b1")), None)
        ledger.add(table("a3"))
        said = " ".join(findings(ledger, monkeypatch))
        assert "divided what run 'one' was holding" in said
        assert "divided Rényi accounts of which something was booked" in said


@pytest.mark.parametrize("again", [0.7 * EPSILON, EPSILON, 1.5 * EPSILON])
def test_a_raise_covers_first_what_was_booked_before_a_lowering(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: StewardKey, again: float
) -> None:
    """a1 used its 2 of 4 and was lowered to 0.8. Raised again, the others must not get the 1.2 that a1 has used."""
    with make(tmp_path, steward=key.public) as ledger:
        booked(ledger, "one", {"a1": 2.0, "a2": 0.0})
        ledger.lower_budgets(subjects=["ann"], epsilon=0.4 * EPSILON)
        budget = table("a3")
        ledger.add(BudgetTable(budget.ids, [0.4 * EPSILON], subjects=budget.subjects))
        most = np.maximum(*[of_ann(ledger, "a1", "a2", "a3")[column] for column in (0, 2)]).sum()
        ledger.raise_budgets(subjects=["ann"], epsilon=again, key=key)
        ledger.left(table("a1", "a2", "a3"), LIFETIME_DELTA)
        epsilon, _, spent, _ = of_ann(ledger, "a1", "a2", "a3")
        assert epsilon.sum() == pytest.approx(again)
        assert np.maximum(epsilon, spent).sum() <= max(again, most) * (1 + 1e-12)
        assert findings(ledger, monkeypatch) == []
