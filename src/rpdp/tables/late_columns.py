"""Columns that may be known only after the decision that a model is for: a proposal; the holder of a table decides.

A model that is trained on what happens later (the day of discharge, a complication, the outcome under another name)
looks better than it is, and cannot be used. No rule finds all such columns, and none is sure. Nothing is left out here.

| what | seen from | said |
|---|---|---|
| a name like DISCHARGED, DIED, OUTCOME_2, or the target's | names (public) | in the schema, and to the holder |
| a date that is never before another date | rows | to the holder alone |
| where it is filled, or has some value, the target is almost always the same | rows | to the holder alone |
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

_FEWEST_ROWS = 20
"""As few rows with one value of the target are hardly chance: below 1 in a million at most, by `_COMMON`."""
_ALWAYS = 0.99
"""What was known before hardly ever tells an outcome so well."""
_COMMON = 0.5
"""Where the target has one value more often than this, it says little that a column goes with it."""
_MOST_CLASSES, _MOST_VALUES, _BINS = 10, 50, 20


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
    return _late_date(name, texts) or _tells_the_target(texts[name], texts[target], target)


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


def _tells_the_target(found: list[str], targets: list[str], target: str) -> str | None:
    known = Counter(each for each in targets if each)
    if not 1 < len(known) <= _MOST_CLASSES:
        return None
    rare = {value for value, count in known.items() if count <= _COMMON * known.total()}
    for group, rows in _groups(found).items():
        values = Counter(targets[row] for row in rows if targets[row])
        value, count = values.most_common(1)[0] if values else ("", 0)
        if values.total() >= _FEWEST_ROWS and value in rare and count >= _ALWAYS * values.total():
            return f"goes with {target} = {value} almost always where it is {group}"
    return None


def _groups(found: list[str]) -> dict[str, list[int]]:
    """Return rows by what a column holds there: something, nothing, one of few values, or a part of its numbers."""
    groups: dict[str, list[int]] = {}
    for row, each in enumerate(found):
        groups.setdefault("filled" if each else "missing", []).append(row)
    filled = groups.get("filled", [])
    if len({found[row] for row in filled}) <= _MOST_VALUES:
        for row in filled:
            groups.setdefault(f"“{found[row]}”", []).append(row)
        return groups
    try:
        ordered = sorted(filled, key=lambda row: float(found[row]))
    except ValueError:
        return groups
    size = max(_FEWEST_ROWS, -(-len(ordered) // _BINS))
    parts = [ordered[start : start + size] for start in range(0, len(ordered), size)]
    return groups | {f"from {found[part[0]]} to {found[part[-1]]}": part for part in parts}
