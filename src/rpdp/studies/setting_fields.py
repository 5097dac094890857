"""How a section of a study file is read: every key is declared once, with its check; anything else is an error.

A section is a frozen dataclass whose fields are made by `setting`. Checks are those of `rpdp.checks` and the few below:
they take the full name of the key and its value, and return the value to keep.
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

_NAME = re.compile(r"\w[\w.-]{0,99}")


def setting(check: Check, default: Any = MISSING, *, meaning: str = "") -> Any:
    """A key of a section; without a default it must be given, and `meaning` tells what it is."""
    return field(default=default, metadata={"check": check, "meaning": meaning})


def read_section(section: type[Section], name: str, values: object) -> Section:
    """A section from what the file says."""
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
    """The end of a message about an unknown name: the one that was probably meant, and all there are."""
    close = get_close_matches(given, known, n=1, cutoff=0.5)
    hint = f"; did you mean {prefix}{close[0]}?" if close else ""
    return f"{hint} (there are {', '.join(known)})"


def text(name: str, value: object) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{name}={value!r} must be a text")
    return value


def plain_name(name: str, value: object) -> str:
    """A name that can be that of a directory."""
    if not _NAME.fullmatch(text(name, value)):
        raise InputError(f"{name}={value!r} must be the name of a directory: letters, digits, '.', '-' and '_'")
    return str(value)


def flag(name: str, value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise InputError(f"{name}={value!r} must be true or false")
    return value


def one_of(*choices: str) -> Check:
    """One of these texts."""

    def check(name: str, value: object) -> str:
        return require_choice(name, value, choices)

    return check


def list_of(check: Check) -> Check:
    """A list with at least one entry, and none of them twice."""

    def checked(name: str, value: object) -> tuple[Any, ...]:
        if not isinstance(value, list) or not value:
            raise InputError(f"{name}={value!r} must be a list with at least one entry")
        entries = tuple(check(name, entry) for entry in value)
        if len(set(entries)) != len(entries):
            raise InputError(f"{name}={value!r} must not name anything twice")
        return entries

    return checked


def table_of(check: Check) -> Check:
    """A table with at least one key."""

    def checked(name: str, value: object) -> Mapping[str, Any]:
        if not isinstance(value, Mapping) or not value:
            raise InputError(f"{name}={value!r} must be a table such as {{a = 1}}")
        return MappingProxyType({key: check(f"{name}.{key}", entry) for key, entry in value.items()})

    return checked


def either(*checks: tuple[type | tuple[type, ...], Check], otherwise: str) -> Check:
    """The check that goes with the type of the value."""

    def checked(name: str, value: object) -> Any:
        for kind, check in checks:
            if isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool):
                return check(name, value)
        raise InputError(f"{name}={value!r} must be {otherwise}")

    return checked
