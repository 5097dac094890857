"""The odds of a statement are never understated: no release that the accounts allow is guessed more often."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from rpdp import BudgetTable
from rpdp.ledger import Ledger
from rpdp.ledger.inspection.lifetime_bound import bounds_of_person
from rpdp.ledger.inspection.person_explanation import balances_of, members_of
from rpdp.ledger.store.record_keys import as_bytes
from rpdp.planning import assign_allowed
from rpdp.statements.odds_words import Odds
from tests.ledger import small
from tests.statements import people
from tests.statements.attacker import Account, accounts, right_of_100

if TYPE_CHECKING:
    from rpdp.budgets import AccountKind
    from rpdp.ledger.inspection.lifetime_bound import PersonBounds

LAST_DIGITS = 1.0 + 1e-9
LEDGERS = range(6)
SILOS = 3


def of_person(ledger: Ledger, person: str, path: Path) -> tuple[PersonBounds, list[Account]]:
    members = members_of(ledger, person)
    known = accounts(ledger, path)
    return bounds_of_person(ledger, balances_of(ledger, members)), [known[as_bytes(one).hex()] for one in members]


@pytest.mark.parametrize("account", ["sums", "renyi"])
@pytest.mark.parametrize("seed", LEDGERS)
def test_odds_are_never_understated(memory: Path, seed: int, account: AccountKind) -> None:
    random = np.random.default_rng(seed)
    with people.ledger(memory / "silo", random, account, people.table(random)) as ledger:
        for person in people.PEOPLE:
            bounds, held = of_person(ledger, person, memory / "export.json")
            life = right_of_100([one.for_life() for one in held])
            assert life <= bounds.for_life.guesses * LAST_DIGITS
            assert life <= Odds(bounds.for_life.guesses).shown * LAST_DIGITS
            if len(held) == 1:  # and they are as small as can be
                assert bounds.for_life.guesses == pytest.approx(life, rel=1e-6)
            so_far = right_of_100([one.so_far() for one in held])
            assert so_far <= bounds.for_life.guesses * LAST_DIGITS
            if bounds.so_far is not None:
                assert so_far <= bounds.so_far.guesses * LAST_DIGITS
            else:
                assert account == "renyi"


def test_a_bound_that_leaves_one_run_out_is_caught(memory: Path) -> None:
    """The control of the test above: what it computes exceeds the bound of all runs but the last one."""
    table = BudgetTable(["a", "b"], np.array([2.0, 2.0]))
    with small.make(memory, table) as ledger:
        found = []
        for run in ("one", "two", "three"):
            ledger.reserve(run, small.plan(ledger, table, share=0.5), None)
            found.append(of_person(ledger, "a", memory / "export.json"))
    (before, _), (after, held) = found[-2:]
    assert before.so_far is not None
    assert after.so_far is not None
    truth = right_of_100([one.so_far() for one in held])
    assert before.so_far.guesses < truth - 0.5
    assert truth <= after.so_far.guesses * LAST_DIGITS


@pytest.mark.parametrize("account", ["sums", "renyi"])
@pytest.mark.parametrize("seed", LEDGERS[:2])
def test_all_silos_of_a_person_together(memory: Path, seed: int, account: AccountKind) -> None:
    """Silos that were given the same budgets: who sees the releases of all is within the odds of any page."""
    random = np.random.default_rng(seed)
    table = people.table(random)
    if account == "renyi":  # which silos cannot share for several records of one person
        table = BudgetTable(people.PEOPLE, np.linspace(0.2, 5.0, len(people.PEOPLE)), subjects=people.PEOPLE)
    silos = [people.ledger(memory / name, random, account, table, silos=SILOS) for name in "xyz"]
    for person in people.PEOPLE:
        seen = [of_person(silo, person, memory / "export.json") for silo in silos]
        together = [of_one_silo(one) for _, held in seen for one in held]
        for bounds, _ in seen:
            assert bounds.so_far is None
            assert right_of_100([one.so_far() for one in together]) <= bounds.for_life.guesses * LAST_DIGITS


def of_one_silo(held: Account) -> Account:
    """A Rényi account of a person in several silos books every divergence once for each of them."""
    return replace(held, booked=held.booked / SILOS) if held.order > 1.0 else held


def test_silos_that_are_used_up_reveal_more_than_one_of_them(memory: Path) -> None:
    table, seen = BudgetTable(["r"], np.array([3.0])), []
    for name in "xyz":
        with Ledger.create(
            memory / f"{name}.db",
            table,
            kind="simulation",
            lifetime_delta=small.LIFETIME_DELTA,
            account="sums",
            silos_per_person=SILOS,
        ) as ledger:
            ledger.reserve("run", small.by_hand(small.public(), table.ids, 1.0), None)
            seen.append(of_person(ledger, "r", memory / "export.json"))
    releases = [one.so_far() for _, held in seen for one in held]
    assert right_of_100(releases[:1]) < right_of_100(releases) - 5.0
    for bounds, _ in seen:
        assert right_of_100(releases) <= bounds.for_life.guesses * LAST_DIGITS


def test_what_was_booked_before_a_budget_was_lowered_counts(memory: Path) -> None:
    table = BudgetTable(["r"], np.array([3.0]))
    for account in ("sums", "renyi"):
        with Ledger.create(
            memory / f"{account}.db", table, kind="simulation", lifetime_delta=1e-3, account=account
        ) as ledger:
            left = ledger.left(table, 1e-3)
            ledger.reserve("run", assign_allowed(small.public(delta=1e-4), table.ids, left), None)
            before, _ = of_person(ledger, "r", memory / "export.json")
            ledger.lower_budgets(["r"], epsilon=0.01, delta=1e-9)
            after, held = of_person(ledger, "r", memory / "export.json")
            assert after.for_life.guesses > 80.0
            assert after.for_life.guesses <= before.for_life.guesses * LAST_DIGITS
            assert right_of_100([one.so_far() for one in held]) <= after.for_life.guesses * LAST_DIGITS


@pytest.mark.parametrize(("account", "used_up"), [("sums", 95.30), ("renyi", 87.88)])
def test_nobody_who_was_never_used_and_has_withdrawn_is_at_risk(
    memory: Path, account: AccountKind, used_up: float
) -> None:
    table = BudgetTable(["r", "s"], np.array([3.0, 3.0]))
    with Ledger.create(
        memory / "l.db", table, kind="simulation", lifetime_delta=small.LIFETIME_DELTA, account=account
    ) as ledger:
        ledger.withdraw(["r"])
        for record, odds in (("r", 50.0), ("s", used_up)):
            bounds, _ = of_person(ledger, record, memory / "export.json")
            assert bounds.for_life.guesses == pytest.approx(odds, abs=0.01)
            assert bounds.so_far is not None
            assert bounds.so_far.guesses == 50.0
