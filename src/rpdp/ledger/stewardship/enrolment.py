"""Enrolling records anew, as Rényi accounts: only those of whose person nothing is booked, and no run holds anything.

A filter's order is fixed before its first release. Of a record of which nothing was ever booked nothing was released,
so for it a filter that begins now is one that began at the start. All records of a person are enrolled together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpdp.accounting.renyi_filter import order_numbers
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.ledger.balances import Balances
from rpdp.ledger.stewardship.actions import apply_actions
from rpdp.ledger.store.roster import ABSENT, Roster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rpdp.ledger.account_terms import AccountTerms
    from rpdp.ledger.stewardship.actions import Action
    from rpdp.ledger.store.record_store import Chunk, RecordStore

    Hashes = NDArray[np.uint64]


def write_enrolment(
    seq: int, store: RecordStore, actions: Sequence[Action], terms: AccountTerms, named: Hashes | None
) -> int:
    """Store the orders of newly enrolled records for event `seq`, and return how many there are.

    The caller has opened the transaction, and appends the event.

    Args:
        seq: The event.
        store: The records.
        actions: All steward actions so far: the order follows from the budget in force.
        terms: The terms of the ledger.
        named: The records to enrol, with all others of their persons; None for all of which nothing is booked.
    """
    if terms.silos_per_person > 1:
        raise PrivacyRefusal(
            f"silos_per_person={terms.silos_per_person}: all silos of a person keep one kind of account, and this "
            "ledger holds parts of sums; nothing was changed"
        )
    free = _free_records(store, actions)
    if named is not None:
        taken = int((Roster(free).find(named) == ABSENT).sum())
        if taken:
            raise PrivacyRefusal(
                f"{taken:,} of {len(named):,} records cannot be enrolled anew: something is booked or held of them or "
                "of another record of their person, or they have Rényi accounts already, or their δ was raised, which "
                "a Rényi account never allows. Nothing was changed; a kind of account with bookings stays"
            )
        free = named
    if not len(free):
        raise InputError("there is no record with a sum account of whose person nothing is booked; nothing was changed")
    roster = Roster(free)
    held = Balances(store, roster, store.places(roster), actions, terms)
    orders = order_numbers(held.epsilon, held.delta)
    for chunk in store.chunks:
        place = held.places[chunk.rows]
        here = place != ABSENT
        if here.any():
            changed = store.orders(chunk).copy()
            changed[here] = orders[place[here]]
            store.write_orders(seq, chunk, changed)
    return len(free)


def _free_records(store: RecordStore, actions: Sequence[Action]) -> Hashes:
    """The records with sum accounts of whose persons nothing is booked or held: totals count holds, too.

    Nor was the δ of any of them raised: a Rényi account never follows such an action, not even an earlier one.
    """
    raised = Roster(_with_raised_delta(store, actions))
    taken = [np.zeros((0, 2), dtype=np.uint64)]
    for chunk in store.chunks:
        subjects = store.subjects(chunk)
        if subjects is not None:
            taken.append(subjects[_is_taken(store, chunk, raised)])
    persons = Roster(np.unique(np.concatenate(taken), axis=0))
    free = [np.zeros((0, 2), dtype=np.uint64)]
    for chunk in store.chunks:
        subjects, is_free = store.subjects(chunk), ~_is_taken(store, chunk, raised)
        if subjects is not None:
            is_free &= persons.find(subjects) == ABSENT
        free.append(store.hashes(chunk)[is_free])
    return np.concatenate(free)


def _is_taken(store: RecordStore, chunk: Chunk, raised: Roster) -> NDArray[np.bool_]:
    booked, booked_delta = store.totals(chunk)
    taken: NDArray[np.bool_] = (booked != 0) | (booked_delta != 0) | (store.orders(chunk) > 0)
    taken |= raised.find(store.hashes(chunk)) != ABSENT
    return taken


def _with_raised_delta(store: RecordStore, actions: Sequence[Action]) -> Hashes:
    """The records whose δ an action raised, whatever came after it."""
    named = [one.hashes[~np.isnan(one.delta)] for one in actions if one.kind == "raise"]
    candidates = np.unique(np.concatenate([np.zeros((0, 2), dtype=np.uint64), *named]), axis=0)
    roster = Roster(candidates)
    size = len(roster)
    _, delta = store.gather(store.places(roster), size, store.budgets)
    epsilon, withdrawn, sums = np.zeros(size), np.zeros(size, dtype=bool), np.zeros(size, dtype=np.uint8)
    raised = np.zeros(size, dtype=bool)
    for action in actions if size else ():
        before = delta.copy()
        apply_actions([action], roster.find, epsilon, delta, withdrawn, sums)
        raised |= delta > before
    return candidates[raised]
