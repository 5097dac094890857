"""Declaring and reading the settings of a section: each key is declared once with its check; others are errors.

A section is a frozen dataclass whose fields are made by `setting`. Its checks are those of `rpdp.checks` and the ones
below. A check takes the full name of the key and its value, and returns the value to keep.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, field, fields
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, TypeVar

from rpdp.checks import require_choice
from rpdp.errors import InputError

Check = Callable[[str, object], Any]
Section = TypeVar("Section")

_MOST_LISTED = 24
"""How many known names a message lists."""

_NAME = re.compile(r"\w[\w.-]{0,99}")


def setting(check: Check, default: Any = MISSING, *, meaning: str = "") -> Any:
    """Declare a key of a section. Without a default it is required, and `meaning` explains it in the error message."""
    return field(default=default, metadata={"check": check, "meaning": meaning})


def read_section(section: type[Section], name: str, values: object) -> Section:
    """Read a section from the values in the file."""
    if not isinstance(values, Mapping):
        raise InputError(f"{name}={values!r} must be a section of settings, written [{name}]")
    known = {one.name: one for one in fields(section) if one.init}  # type: ignore[arg-type]
    for key in values:
        if key not in known:
            raise InputError(f"{name}.{key} is not a setting{nearest(key, list(known), f'{name}.')}")
    for key, one in known.items():
        if key not in values and one.default is MISSING:
            raise InputError(f"{name}.{key} is missing: {one.metadata['meaning']}")
    return section(**{key: known[key].metadata["check"](f"{name}.{key}", value) for key, value in values.items()})


def nearest(given: str, known: list[str], prefix: str = "") -> str:
    """Return the end of a message about an unknown name: the closest known name, and all known names."""
    folded = {each.casefold(): each for each in reversed(known)}
    close = get_close_matches(given.casefold(), folded, n=1, cutoff=0.5)
    hint = f"; did you mean {prefix}{folded[close[0]]}?" if close else ""
    more = f" and {len(known) - _MOST_LISTED} more" if len(known) > _MOST_LISTED else ""
    return f"{hint} (known: {', '.join(known[:_MOST_LISTED])}{more})"


def text(name: str, value: object) -> str:
    """Check a text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{name}={value!r} must be a text that is not empty")
    return value


def plain_name(name: str, value: object) -> str:
    """Check a name that can be the name of a directory."""
    if not _NAME.fullmatch(text(name, value)):
        raise InputError(
            f"{name}={value!r} must be the name of a directory: use only letters, digits, '.', '-' and '_'"
        )
    return str(value)


def flag(name: str, value: object) -> bool:
    """Check a truth value."""
    if not isinstance(value, bool):
        raise InputError(f"{name}={value!r} must be true or false")
    return value


def one_of(*choices: str) -> Check:
    """Return a check for one of these texts."""

    def check(name: str, value: object) -> str:
        return require_choice(name, value, choices)

    return check


def list_of(check: Check) -> Check:
    """Return a check for a list with at least one entry and no duplicates."""

    def checked(name: str, value: object) -> tuple[Any, ...]:
        if not isinstance(value, list) or not value:
            raise InputError(f"{name}={value!r} must be a list with at least one entry")
        entries = tuple(check(name, entry) for entry in value)
        if len(set(entries)) != len(entries):
            raise InputError(f"{name}={value!r} must not name anything twice")
        return entries

    return checked


def table_of(check: Check) -> Check:
    """Return a check for a table with at least one key."""

    def checked(name: str, value: object) -> Mapping[str, Any]:
        if not isinstance(value, Mapping) or not value:
            raise InputError(f"{name}={value!r} must be a table such as {{a = 1}}")
        return MappingProxyType({key: check(f"{name}.{key}", entry) for key, entry in value.items()})

    return checked


def either(*checks: tuple[type | tuple[type, ...], Check], otherwise: str) -> Check:
    """Return a check that depends on the type of the value."""

    def checked(name: str, value: object) -> Any:
        for kind, check in checks:
            if isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool):
                return check(name, value)
        raise InputError(f"{name}={value!r} must be {otherwise}")

    return checked
