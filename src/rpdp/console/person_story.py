"""A record or a person, as the people page shows it, and the steward's actions on it: those of `rpdp ledger`."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rpdp.errors import InputError, RpdpError
from rpdp.ledger.stewardship.actors import acting_user
from rpdp.ledger.stewardship.prompt_booking import book_now

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rpdp.console.console_silo import ConsoleSilo
    from rpdp.ledger import Action, Ledger
    from rpdp.ledger.inspection.explanation import Explanation

LOG = logging.getLogger("rpdp.console")

DONE = {
    "withdraw": "withdrawn",
    "lower": "lowered",
    "raise": "raised, with the steward's signature",
    "reconsent": "taken back in, with the steward's signature",
}
"""Each action, and what a page tells when it was done."""

_LONGEST_ID = 1_000


@dataclass(frozen=True)
class Person:
    """Whom a steward looks up: a record, or a person with all records."""

    kind: Literal["record", "subject"]
    id: str


@dataclass(frozen=True)
class PersonStory:
    """What the ledger knows of somebody, for a page."""

    summary: str
    records: tuple[Explanation, ...]
    epsilon: float
    delta: float
    share_used: float
    withdrawn: int
    may_raise_delta: bool


def found_person(ledger: Ledger, kind: str, name: str) -> Person:
    """The record or person of this id; refused if the ledger does not know it."""
    if not 0 < len(name) <= _LONGEST_ID:
        raise InputError(f"give an id of 1 to {_LONGEST_ID:,} characters")
    if kind == "record":
        with ledger.reading():
            if ledger.records.find(ledger.key.record(name)) is None:
                raise InputError(f"there is no record {name!r} in this ledger; ids are compared exactly")
        return Person("record", name)
    if kind != "subject":
        raise InputError(f"look for a record or a subject, not for {kind!r}")
    with ledger.reading():
        if not len(ledger.records.of_subject(ledger.key.subject(name))):
            raise InputError(f"there is no person {name!r} in this ledger; ids are compared exactly")
    return Person("subject", name)


def story_of(ledger: Ledger, person: Person) -> PersonStory:
    """Everything that the ledger knows of somebody."""
    if person.kind == "record":
        one = ledger.explain(person.id)
        may = one.account == "sums"
        return PersonStory(one.text, (one,), one.epsilon, one.delta, one.share_used, int(one.withdrawn), may)
    found = ledger.explain_subject(person.id)
    summary = found.text.partition("\n")[0]
    may = found.account == "sums"
    return PersonStory(summary, found.records, found.epsilon, found.delta, found.share_used, found.withdrawn, may)


def act(silo: ConsoleSilo, person: Person, form: Mapping[str, str]) -> str:
    """Do what a form asks for, and return what to tell. Whoever acts has typed the id again."""
    key = silo.key
    kind = form.get("action", "")
    if kind not in DONE:
        raise InputError(f"{kind!r} is no action: {', '.join(DONE)}")
    if form.get("confirmation", "") != person.id:
        raise InputError(f"type the id {person.id!r} exactly as it is to confirm; nothing was changed")
    if not form.get("actor", "").strip():
        raise InputError("say who acts; nothing was changed")
    records, subjects = ([person.id], []) if person.kind == "record" else ([], [person.id])
    reason, actor = form.get("reason", ""), form["actor"]
    with silo.ledger() as ledger:
        action: Action
        if kind == "withdraw":
            action = ledger.withdraw(records, subjects=subjects, reason=reason, actor=actor)
        elif kind == "reconsent":
            action = ledger.reconsent(records, subjects=subjects, key=key, reason=reason, actor=actor)
        elif kind == "lower":
            new = _number(form, "epsilon"), _number(form, "delta")
            action = ledger.lower_budgets(records, *new, subjects=subjects, reason=reason, actor=actor)
        else:
            new = _number(form, "epsilon"), _number(form, "delta")
            action = ledger.raise_budgets(records, *new, subjects=subjects, key=key, reason=reason, actor=actor)
    LOG.info("%s of %d records by %s", kind, len(action.hashes), action.actor)
    count = len(action.hashes)
    return f"{count:,} {'record' if count == 1 else 'records'} {DONE[kind]}: {_booked(silo)}."


def _booked(silo: ConsoleSilo) -> str:
    """Book what waits, and tell how it stands. The action is in force already, whatever happens here."""
    try:
        is_booked = book_now(silo.path)
    except RpdpError as error:
        return f"in force from the next local step on, but it could not be booked yet ({error})"
    return "booked" if is_booked else "in force from the next local step on; the run books it with its next round"


def _number(form: Mapping[str, str], name: str) -> float | None:
    text = form.get(name, "").strip()
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):  # NaN would mean "as it is" to the ledger
        raise InputError(f"{name}={text[:40]!r} must be a number; nothing was changed")
    return number


def usual_actor() -> str:
    """Who acts unless the form says otherwise."""
    return acting_user()
