"""Checking what was divided anew when records of known persons were added, from raw events.

For each such event: what the person's records may still use after it, all together, is at most what they could use
before, in ε and by group composition in δ; no run held any of it; no Rényi account among them had booked anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpdp.budgets.person_split import log_joint_delta
from rpdp.ledger.balances import Balances
from rpdp.ledger.past_balances import balances_before
from rpdp.ledger.stewardship.sharing import left_parts
from rpdp.ledger.store.roster import ABSENT, Roster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from rpdp.ledger.ledger_base import LedgerBase
    from rpdp.ledger.store.chain import Event

_ROUNDING = 1e-9
"""Relative, and far below what any part could be worth."""


def replay_sharing(ledger: LedgerBase) -> Iterator[str]:
    """Check every event that added records of persons who were known already."""
    for event in ledger.chain.events("add"):
        people = _subjects(ledger, event.seq)
        members, person, is_old = _records_of(ledger, people, until=event.seq)
        is_known = np.isin(person, person[is_old])
        stated = event.facts.get("shared")
        if not is_known.any():
            if stated is not None:
                yield f"event {event.seq} says that known persons share what is left, but none was known"
            continue
        if stated is None or stated["lower"] != event.seq - 1:
            yield f"event {event.seq} added records of known persons without dividing what is left"
            continue
        yield from _check(ledger, event, members[is_known], person[is_known], is_old[is_known])


def _check(
    ledger: LedgerBase,
    event: Event,
    members: NDArray[np.uint64],
    person: NDArray[np.int64],
    is_old: NDArray[np.bool_],
) -> Iterator[str]:
    roster = Roster(members)
    now = Balances(ledger.records, roster, ledger.records.places(roster), ledger.booked_actions(), ledger.terms)
    before = balances_before(ledger, event.facts["shared"]["lower"], now)
    after = balances_before(ledger, event.seq, now)
    for held in (before, after):
        held.order = _orders_before(ledger, now.places, len(members), event.seq + (held is after))
    _, person = np.unique(person, return_inverse=True)
    persons = int(person.max()) + 1
    epsilon, delta = left_parts(before)
    epsilon, delta = np.where(is_old, epsilon, 0.0), np.where(is_old, delta, 0.0)
    new_epsilon, new_delta = left_parts(after)
    most, share = np.bincount(person, epsilon, persons), np.bincount(person, new_epsilon, persons)
    if (share > most * (1.0 + _ROUNDING)).any():
        yield f"event {event.seq} gave known persons more ε than was left of them"
    joint = log_joint_delta(epsilon, delta, person, persons)
    if (log_joint_delta(new_epsilon, new_delta, person, persons) > joint + _ROUNDING).any():
        yield f"event {event.seq} gave known persons more δ than was left of them"
    if (is_old & (before.order > 0) & (before.booked > 0)).any():
        yield f"event {event.seq} divided Rényi accounts of which something was booked"
    yield from _held_then(ledger, event.seq, now)


def _held_then(ledger: LedgerBase, seq: int, members: Balances) -> Iterator[str]:
    for admission in ledger.runs.admissions():
        ends = [one.seq for one in ledger.chain.events("charge", "cancel", run=admission.run)]
        if admission.seq < seq < min(ends, default=2**62):
            classes = ledger.runs.members.of(admission)
            for chunk in ledger.records.chunks:
                index = ledger.runs.members.index(admission.seq, chunk, classes)
                if index is not None and ((index > 0) & (members.places[chunk.rows] != ABSENT)).any():
                    yield f"event {seq} divided what run {admission.run!r} was holding"


def _subjects(ledger: LedgerBase, segment: int) -> NDArray[np.uint64]:
    found = [np.zeros((0, 2), dtype=np.uint64)]
    for chunk in ledger.records.chunks:
        held = ledger.records.subjects(chunk) if chunk.segment == segment else None
        if held is not None:
            found.append(held)
    return np.unique(np.concatenate(found), axis=0)


def _records_of(
    ledger: LedgerBase, people: NDArray[np.uint64], until: int
) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.bool_]]:
    """The records of these persons up to an event, the person of each, and whether it was there before the event."""
    roster = Roster(people)
    hashes, persons, is_old = [np.zeros((0, 2), np.uint64)], [np.zeros(0, np.int64)], [np.zeros(0, np.bool_)]
    for chunk in ledger.records.chunks:
        held = ledger.records.subjects(chunk) if chunk.segment <= until else None
        if held is not None:
            person = roster.find(held)
            here = person != ABSENT
            hashes.append(ledger.records.hashes(chunk)[here])
            persons.append(person[here])
            is_old.append(np.full(int(here.sum()), chunk.segment < until))
    return np.concatenate(hashes), np.concatenate(persons), np.concatenate(is_old)


def _orders_before(ledger: LedgerBase, places: NDArray[np.int32], size: int, seq: int) -> NDArray[np.uint8]:
    orders = np.zeros(size, dtype=np.uint8)
    for chunk in ledger.records.chunks:
        place = places[chunk.rows]
        orders[place[place != ABSENT]] = ledger.records.orders(chunk, before=seq)[place != ABSENT]
    return orders
