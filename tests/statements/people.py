"""Ledgers of a few people, put together at random."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rpdp import BudgetTable
from rpdp.ledger import Ledger, StewardKey
from rpdp.planning import assign_allowed
from tests.ledger import small

if TYPE_CHECKING:
    from rpdp.budgets import AccountKind

RECORDS = ["a1", "a2", "b1", "c1", "c2", "c3", "d1", "e1"]
SUBJECTS = ["a", "a", "b", "c", "c", "c", "d", "e"]
PEOPLE = sorted(set(SUBJECTS))
KEY = StewardKey()


def table(random: np.random.Generator) -> BudgetTable:
    """Budgets from 0.05 to 6, the same for all records of a person."""
    epsilon = {person: float(np.exp(random.uniform(np.log(0.05), np.log(6.0)))) for person in PEOPLE}
    return BudgetTable(RECORDS, np.array([epsilon[one] for one in SUBJECTS]), subjects=SUBJECTS)


def ledger(
    path: Path, random: np.random.Generator, account: AccountKind, budgets: BudgetTable, silos: int = 1
) -> Ledger:
    """A ledger with some runs, and with budgets that were lowered, raised, withdrawn and given again in between."""
    path.mkdir(parents=True, exist_ok=True)
    made = Ledger.create(
        path / "ledger.db",
        budgets,
        kind="simulation",
        lifetime_delta=small.LIFETIME_DELTA,
        account=account,
        steward=KEY.public,
        silos_per_person=silos,
    )
    for number in range(int(random.integers(0, 4))):
        left = made.left(budgets, small.LIFETIME_DELTA)
        share = random.choice([0.3, 0.7, 1.0])
        public = small.public(noise_multiplier=float(random.uniform(1.0, 3.0)))
        made.reserve(f"run{number}", assign_allowed(public, budgets.ids, small.part(left, share)), None)
        for person in PEOPLE:
            change(made, person, random)
        made.left(budgets, small.LIFETIME_DELTA)
    return made


def change(made: Ledger, person: str, random: np.random.Generator) -> None:
    explained = made.explain_subject(person)
    chance = random.random()
    if chance < 0.2:
        made.lower_budgets(subjects=[person], epsilon=explained.epsilon / made.terms.parts * random.uniform(0.1, 1.0))
    elif chance < 0.3:
        made.withdraw(subjects=[person])
    elif chance < 0.4 and explained.withdrawn == len(explained.records):
        made.reconsent(subjects=[person], key=KEY)
