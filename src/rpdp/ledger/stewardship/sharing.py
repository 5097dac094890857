"""New records of persons who are known already: what is left of each person is divided anew among all records.

For every record j let (a_j, η_j) be what is left of its account. Whatever follows is, for the person, (Σa_j, D)-private
with D from group composition (`rpdp.budgets.person_split`), given everything that happened until now. New parts with
the same Σa_j and at most the same D therefore keep the promise, however the past went: docs/explanation/accounts.md has
the argument. Old parts only ever become smaller. Nothing that is booked is forgotten or moved.

| the person's records | new records |
|---|---|
| sum accounts, booked or not | share what is left |
| Rényi accounts of which nothing is booked | share everything |
| a Rényi account of which something is booked | refused: what is left of a filter is no promise by itself |
| held by a run that has not begun | refused: what a cancelled hold returns was not counted as left |
| all withdrawn | refused: the person has taken consent back |
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rpdp.budgets import RecordBudgets
from rpdp.budgets.person_split import equal_log_delta, log_joint_delta
from rpdp.display import counts_repr
from rpdp.errors import BudgetError, PrivacyRefusal
from rpdp.ledger.balances import Balances
from rpdp.ledger.store.fixed_point import DELTA_SHIFT, EPSILON_SHIFT, amounts, left_of
from rpdp.ledger.store.roster import ABSENT, Roster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rpdp.budgets import BudgetTable
    from rpdp.ledger.account_terms import AccountTerms
    from rpdp.ledger.record_accounts import RecordAccounts
    from rpdp.ledger.stewardship.actions import Action
    from rpdp.ledger.store.fixed_point import FloatArray
    from rpdp.ledger.store.record_store import NewRecords, RecordStore
    from rpdp.ledger.store.run_book import RunBook

    Rows = NDArray[np.int64]

SHARED = "new records of this person share what is left."
"""What the lowering of old parts gives as its reason, before that of the steward."""

_CAREFUL = 1.0 - 1e-12
"""Parts are made smaller by this, so that rounding never makes their sum larger than what is left."""

_UNEVEN = 1e-9
"""Relative: parts that differ by less are even."""

_TOLERANCE = 1e-6
"""Relative: how closely a table must state the budget that a known person has."""


def left_parts(held: RecordAccounts) -> tuple[FloatArray, FloatArray]:
    """What is left of each record's part of (ε, δ); all of it in a Rényi account, of which nothing may be booked.

    A withdrawn record keeps what is left of it: it may come back.
    """
    is_sum = held.order == 0
    epsilon = np.where(is_sum, left_of(held.epsilon, held.booked, EPSILON_SHIFT), held.epsilon)
    delta = np.where(is_sum, left_of(held.delta, held.booked_delta, DELTA_SHIFT), held.delta)
    return epsilon, delta


def stated_parts(held: RecordAccounts, table: BudgetTable, terms: AccountTerms) -> RecordBudgets:
    """What a silo's table allows each record, where persons of the ledger may have uneven parts.

    The table's budget of a person is compared with that of the ledger as a whole. With even parts that is one
    comparison for each record; with uneven ones the parts of the ledger count, all less by one factor if the table has
    less.
    """
    stated = terms.per_record(table)
    if table.subjects is None or stated.delta is None:
        return stated
    person = table.subject_codes()
    has = np.bincount(person, held.epsilon)
    part = (has / np.bincount(person))[person]
    uneven = np.bincount(person, np.abs(held.epsilon - part) > _UNEVEN * part)[person] > 0
    wants = table.epsilon / terms.parts
    factor = np.minimum(1.0, np.divide(wants, has[person], out=np.ones(len(wants)), where=has[person] > 0.0))
    return RecordBudgets(
        np.where(uneven, held.epsilon * factor, stated.epsilon), np.where(uneven, held.delta, stated.delta)
    )


@dataclass(frozen=True, eq=False)
class Sharing:
    """New parts for the old records of known persons, and for their new ones.

    Attributes:
        members: The hashes of the old records.
        epsilon: Their new ε.
        delta: Their new δ.
        new: The records to add, all of them; those of known persons with their parts.
        persons: How many persons are known.
    """

    members: NDArray[np.uint64]
    epsilon: FloatArray
    delta: FloatArray
    new: NewRecords
    persons: int

    __repr__ = counts_repr


@dataclass(frozen=True, eq=False)
class _Known:
    """The known persons of a table: for each old and each new record, its person; and which rows are new."""

    of_member: Rows
    of_new: Rows
    rows: Rows

    @property
    def persons(self) -> int:
        return int(self.of_member.max()) + 1


def shared(
    store: RecordStore,
    runs: RunBook,
    actions: Sequence[Action],
    terms: AccountTerms,
    table: BudgetTable,
    new: NewRecords,
) -> Sharing | None:
    """Return how the new records of known persons share what is left; None if no person is known.

    The caller has opened the transaction that books it.
    """
    found = _known_persons(store, new)
    if found is None:
        return None
    members, known = found
    roster = Roster(members)
    held = Balances(store, roster, store.places(roster), actions, terms)
    _require_budgets(held, known, terms, table)
    _require_consent(held, known, table)
    _require_nothing_held(runs, store, held)
    _require_divisible(held, known, terms, table)
    left, left_delta = left_parts(held)
    total = np.bincount(known.of_member, left, known.persons)
    before = np.bincount(known.of_member, minlength=known.persons)
    after = before + np.bincount(known.of_new, minlength=known.persons)
    old_parts = left * (before / after)[known.of_member] * _CAREFUL
    new_parts = (total / after)[known.of_new] * _CAREFUL
    persons = np.concatenate([known.of_member, known.of_new])
    joint = log_joint_delta(left, left_delta, known.of_member, known.persons)
    delta = np.exp(equal_log_delta(np.concatenate([old_parts, new_parts]), joint, persons)) * _CAREFUL
    old_delta = np.minimum(left_delta, delta[: len(members)])
    booked = np.where(held.order == 0, amounts(held.booked, EPSILON_SHIFT), 0.0)
    booked_delta = np.where(held.order == 0, amounts(held.booked_delta, DELTA_SHIFT), 0.0)
    return Sharing(
        members,
        # Where nothing is left nothing can become less; rounding must not switch a record off.
        np.where(left > 0.0, np.minimum(held.epsilon, booked + old_parts), held.epsilon),
        np.where(left_delta > 0.0, np.minimum(held.delta, booked_delta + old_delta), held.delta),
        _with_parts(new, known.rows, new_parts, delta[len(members) :], terms),
        known.persons,
    )


def _known_persons(store: RecordStore, new: NewRecords) -> tuple[NDArray[np.uint64], _Known] | None:
    if new.subjects is None:
        return None
    wanted, row_person = np.unique(new.subjects, axis=0, return_inverse=True)
    people = Roster(wanted)
    members, of_member = [np.zeros((0, 2), dtype=np.uint64)], [np.zeros(0, dtype=np.int64)]
    for chunk in store.chunks:
        subjects = store.subjects(chunk)
        if subjects is not None:
            person = people.find(subjects)
            members.append(store.hashes(chunk)[person != ABSENT])
            of_member.append(person[person != ABSENT])
    person = np.concatenate(of_member)
    if not person.size:
        return None
    numbers, renumbered = np.unique(person, return_inverse=True)
    row_person = row_person.reshape(-1)
    rows = np.flatnonzero(np.isin(row_person, numbers))
    known = _Known(renumbered.reshape(-1), np.searchsorted(numbers, row_person[rows]), rows)
    return np.concatenate(members), known


def _with_parts(new: NewRecords, rows: Rows, epsilon: FloatArray, delta: FloatArray, terms: AccountTerms) -> NewRecords:
    all_epsilon, all_delta = new.epsilon.copy(), new.delta.copy()
    all_epsilon[rows], all_delta[rows] = epsilon, delta
    order = new.order.copy()
    order[rows] = terms.orders(RecordBudgets(epsilon, delta))
    return replace(new, epsilon=all_epsilon, delta=all_delta, order=order)


def _require_budgets(held: Balances, known: _Known, terms: AccountTerms, table: BudgetTable) -> None:
    """Refuse a table that states another budget for a known person than the ledger has."""
    has = terms.parts * np.bincount(known.of_member, held.epsilon, known.persons)[known.of_new]
    stated = table.epsilon[known.rows]
    other = np.flatnonzero(np.abs(stated - has) > _TOLERANCE * has)
    if other.size:
        first = int(other[0])
        raise BudgetError(
            f"{_named(table, known, other)} another budget in the ledger: {_subject(table, known, first)!r} has ε = "
            f"{has[first]:.6g} there and {stated[first]:.6g} in the table. Nothing was added; state what the ledger "
            "has. `rpdp ledger lower` and `rpdp ledger raise` change it"
        )


def _require_consent(held: Balances, known: _Known, table: BudgetTable) -> None:
    gone = np.bincount(known.of_member, ~held.withdrawn, known.persons) == 0
    wrong = np.flatnonzero(gone[known.of_new])
    if wrong.size:
        raise PrivacyRefusal(
            f"{_named(table, known, wrong)} withdrawn from the ledger with all records (the first is "
            f"{_subject(table, known, int(wrong[0]))!r}); nothing was added. Leave their records out, or end the "
            "withdrawal first (`rpdp ledger reconsent`)"
        )


def _require_nothing_held(runs: RunBook, store: RecordStore, held: Balances) -> None:
    for admission in runs.held():
        classes = runs.members.of(admission)
        for chunk in store.chunks:
            index = runs.members.index(admission.seq, chunk, classes)
            if index is not None and ((index > 0) & (held.places[chunk.rows] != ABSENT)).any():
                raise PrivacyRefusal(
                    f"run {admission.run!r} holds budgets of these persons and has not begun; nothing was added. What "
                    "is left of them is known once it has begun, has expired, or is cancelled (`rpdp ledger cancel`)"
                )


def _require_divisible(held: Balances, known: _Known, terms: AccountTerms, table: BudgetTable) -> None:
    if terms.account == "renyi" and terms.silos_per_person > 1:
        raise BudgetError(
            f"silos_per_person={terms.silos_per_person}: Rényi accounts cannot be divided among records and silos at "
            "once, and persons of this table have a record in the ledger already. Nothing was added; leave them out"
        )
    is_fixed = np.bincount(known.of_member, (held.order > 0) & (held.booked > 0), known.persons) > 0
    wrong = np.flatnonzero(is_fixed[known.of_new])
    if wrong.size:
        raise PrivacyRefusal(
            f"{_named(table, known, wrong)} Rényi accounts of which something is booked (the first is "
            f"{_subject(table, known, int(wrong[0]))!r}). Such an account is a filter: what is left of it is no "
            "promise that could be shared with more records. Nothing was added; leave these records out, also of the "
            "data"
        )


def _subject(table: BudgetTable, known: _Known, at: int) -> str:
    assert table.subjects is not None
    return str(table.subjects[int(known.rows[at])].as_py())


def _named(table: BudgetTable, known: _Known, wrong: Rows) -> str:
    """How many persons are meant, with the verb."""
    count = len(np.unique(known.of_new[wrong]))
    return f"{count:,} of {known.persons:,} known persons of this table {'has' if count == 1 else 'have'}"
