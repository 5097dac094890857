"""Columns that may be known only after the decision that a model is for: a proposal; the holder of a table decides.

A model that is trained on what happens later (the day of discharge, a complication, the outcome under another name)
looks better than it is, and cannot be used. No rule finds all such columns, and none is sure. Nothing is left out here.

| what | seen from | said |
|---|---|---|
| a name like DISCHARGED, DIED, OUTCOME_2, or the target's | names (public) | in the schema, and to the holder |
| a date that is never before another date | rows | to the holder alone |
| filled in almost only where the target has one value | rows | to the holder alone |
"""

from __future__ import annotations

import re
from collections import Counter
from datetime import date
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_LATE_PARTS = (
    "outcome", "discharg", "surviv", "deceas", "death", "mortal", "autops", "readmi", "relaps", "recurr", "complic",
    "postop", "followup", "terminat", "cancel",
)  # fmt: skip
_LATE_WORDS = {"died", "dead", "dod", "los", "fu", "end", "ended", "closed", "final", "after", "later"}
_EARLIER_WORDS = {"prior", "previous", "previously", "history", "hx", "before", "family", "baseline"}
_BIRTH = re.compile("birth|born|dob", re.IGNORECASE)

_FEWEST_ROWS = 10
_MOSTLY = 0.95
_COMMON = 0.8
"""Where the target has one value this often, a column that is filled for it says nothing."""
_MOST_VALUES = 10


def late_by_name(name: str, target: str) -> str | None:
    """Say why a column's name sounds like something that is known late; None if it does not."""
    words = {each.casefold() for each in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)}
    if words & _EARLIER_WORDS:
        return None
    plain, own = (re.sub(r"[^a-z0-9]", "", each.casefold()) for each in (name, target))
    if len(own) > 3 and own in plain:
        return f"is named like the target {target}"
    if words & _LATE_WORDS or any(part in plain for part in _LATE_PARTS):
        return "has a name of something that happens later"
    return None


def late_by_rows(name: str, texts: Mapping[str, list[str]], target: str) -> str | None:
    """Say why a column's values look as if they were known late; None if they do not. An empty text is missing."""
    return _late_date(name, texts) or _filled_for_one_value(texts[name], texts[target], target)


def late_columns(texts: Mapping[str, list[str]], target: str, features: Iterable[str]) -> dict[str, str]:
    """Return the features that may be known only after the decision, and why. It tells of rows: for their holder."""
    found = {name: late_by_name(name, target) or late_by_rows(name, texts, target) for name in features}
    return {name: reason for name, reason in found.items() if reason is not None}


def _late_date(name: str, texts: Mapping[str, list[str]]) -> str | None:
    own = _days(texts[name])
    if own is None:
        return None
    for other, found in texts.items():
        earlier = None if other == name or _BIRTH.search(other) else _days(found)
        if earlier is None:
            continue
        both = [(a, b) for a, b in zip(earlier, own, strict=True) if a is not None and b is not None]
        later = sum(a < b for a, b in both)
        if len(both) >= _FEWEST_ROWS and all(a <= b for a, b in both) and later >= len(both) / 2:
            return f"is never before {other}"
    return None


def _days(found: list[str]) -> list[date | None] | None:
    """Return the day of each row; None unless all that are not missing are dates."""
    try:
        days = [date.fromisoformat(each[:10]) if each else None for each in found]
    except ValueError:
        return None
    return days if any(days) else None


def _filled_for_one_value(found: list[str], targets: list[str], target: str) -> str | None:
    known = Counter(each for each in targets if each)
    filled = Counter(value for each, value in zip(found, targets, strict=True) if each and value)
    if not 1 < len(known) <= _MOST_VALUES or filled.total() < _FEWEST_ROWS:
        return None
    value, count = filled.most_common(1)[0]
    if count < _MOSTLY * filled.total() or known[value] > _COMMON * known.total():
        return None
    return f"is filled in almost only where {target} = {value}"
