"""Statements of consent, whatever form they came in, and which of them counts for a person: the latest.

| of one person                                  | what counts                                                    |
|------------------------------------------------|----------------------------------------------------------------|
| several statements                             | the latest by the time at which it was written                 |
| two that cannot be ordered, or one in future   | nothing: an error that names them                              |
| a draft, or one whose period has not begun yet | passed over, and the earlier one counts until then             |
| ended: revoked, expired, entered in error      | no use any more                                                |
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

import numpy as np

from rpdp.errors import InputError
from rpdp.ledger.stewardship.wanted_budgets import WantedBudgets

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from zoneinfo import ZoneInfo

    from rpdp.consent.consent_map import BudgetChoice, ConsentMap

_MOMENT = re.compile(
    r"(\d{4})(?:-(\d\d)(?:-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(\.\d+)?)?(Z|[+-]\d\d:\d\d)?)?)?)?", re.ASCII
)
_LONGEST_ID = 200


@dataclass(frozen=True)
class Span:
    """A stretch of time, from `start` up to `end`. A date that was written by the day is the whole day."""

    start: datetime
    end: datetime

    @classmethod
    def parse(cls, text: object, zone: ZoneInfo) -> Span:
        """Read a date or a time as FHIR writes it, or with a blank for the T; `zone` is for those that name none."""
        found = _MOMENT.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise InputError(f"{text!r} is not a date such as 2026-05-03 or a time such as 2026-05-03T09:30:00+02:00")
        year, month, day, hour, minute, second, fraction, offset = found.groups()
        try:
            if hour is None:
                start = datetime(int(year), int(month or 1), int(day or 1), tzinfo=zone)
                return cls(start.astimezone(UTC), _next(start, month, day).astimezone(UTC))
            start = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second or 0))
            start += timedelta(microseconds=int(f"{fraction or '.0'}000000"[1:7]))
            width = timedelta(microseconds=1) if fraction else timedelta(seconds=1 if second else 60)
            if offset is None:  # twice in the hour that a clock is put back: the span covers both
                early, late = start.replace(tzinfo=zone, fold=0), start.replace(tzinfo=zone, fold=1)
                ends = sorted((early.astimezone(UTC), late.astimezone(UTC)))
                return cls(ends[0], ends[1] + width)
            exact = datetime.fromisoformat(f"{start.isoformat()}{'+00:00' if offset == 'Z' else offset}")
            return cls(exact.astimezone(UTC), exact.astimezone(UTC) + width)
        except (ValueError, OverflowError) as error:
            raise InputError(f"{text!r} is no date: {error}") from None


def _next(start: datetime, month: str | None, day: str | None) -> datetime:
    if day is not None:
        return start + timedelta(days=1)
    if month is not None:
        return start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
    return start.replace(year=start.year + 1)


@dataclass(frozen=True)
class ConsentStatement:
    """What one resource or line says of one person.

    Attributes:
        place: Where it stands, for messages.
        person: Whom it is of.
        kind: "allows" a choice; "ended"; "waits" until it begins or is more than a draft.
        written: When, or None if it does not say so.
        choice: What it allows.
        why: Why it ended or waits.
    """

    place: str
    person: str
    kind: Literal["allows", "ended", "waits"]
    written: Span | None
    choice: BudgetChoice | None = None
    why: str = ""


@dataclass(frozen=True)
class Decisions:
    """What counts for every person, sorted by name, and how many statements were passed over, by the reason."""

    latest: tuple[ConsentStatement, ...]
    passed_over: dict[str, int]

    def wanted(self, consent_map: ConsentMap) -> WantedBudgets:
        """The same for the ledger."""
        choices = [one.choice if one.kind == "allows" else None for one in self.latest]
        epsilon = [np.nan if one is None or one.epsilon is None else one.epsilon for one in choices]
        delta = [np.nan if one is None or one.delta is None else one.delta for one in choices]
        names = [one.person for one in self.latest]
        return WantedBudgets(names, np.array(epsilon), np.array(delta), consent_map.are_subjects)


def decide(statements: Iterable[ConsentStatement], now: datetime, passed_over: dict[str, int]) -> Decisions:
    """Which statement counts for each person at a time."""
    people: dict[str, list[ConsentStatement]] = {}
    counts = dict(passed_over)
    for one in statements:
        if one.written is not None and one.written.start > now:
            raise InputError(
                f"{one.place}: it is dated in the future; nothing was changed. Check the clock of its source"
            )
        if one.kind == "waits":
            counts[one.why] = counts.get(one.why, 0) + 1
        else:
            people.setdefault(one.person, []).append(one)
    return Decisions(tuple(_latest(people[person]) for person in sorted(people)), counts)


def _latest(statements: Sequence[ConsentStatement]) -> ConsentStatement:
    if len(statements) == 1:
        return statements[0]
    undated = next((one for one in statements if one.written is None), None)
    if undated is not None:
        raise InputError(
            f"{undated.place}: it does not say when it was written, and there are {len(statements)} statements of that "
            "person; nothing was changed"
        )
    dated = sorted(((one.written, one) for one in statements if one.written), key=lambda pair: pair[0].start)
    newest, latest = dated[-1]
    for written, one in dated[:-1]:
        if written.end > newest.start:
            raise InputError(
                f"{one.place} and {latest.place} are of one person and cannot be ordered by when they were written; "
                "nothing was changed. Give the time, or leave out the one that does not count"
            )
    return latest


def checked_person(place: str, person: object) -> str:
    """The name of a person, or an error that names the place."""
    if not isinstance(person, str) or not person.strip() or not person.isprintable() or len(person) > _LONGEST_ID:
        raise InputError(f"{place}: the person is {person!r}; an id is 1 to {_LONGEST_ID} printable characters")
    return person
