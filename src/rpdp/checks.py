"""Argument checks. Their messages name the argument, its value and what is allowed."""

from __future__ import annotations

import math
import numbers
import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

from rpdp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

_FINGERPRINT = re.compile("[0-9a-f]{64}")


def require_count(name: str, value: object, *, least: int = 1, most: int | None = None) -> int:
    """Return the value as an integer; it must be a whole number between `least` and `most`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise InputError(f"{name}={value!r} must be a whole number")
    number = int(value)
    if number < least or (most is not None and number > most):
        limits = f"at least {least:,}" if most is None else f"between {least:,} and {most:,}"
        raise InputError(f"{name}={number} must be {limits}")
    return number


def require_number(name: str, value: object) -> float:
    """Return the value as a float; it must be a finite number."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InputError(f"{name}={value!r} must be a number")
    number = float(value)
    if not math.isfinite(number):
        raise InputError(f"{name}={number} must be finite")
    return number


def require_positive(name: str, value: object) -> float:
    """Return the value as a float; it must be finite and above 0."""
    number = require_number(name, value)
    if number <= 0:
        raise InputError(f"{name}={number} must be positive")
    return number


def require_least(name: str, value: object, least: float) -> float:
    """Return the value as a float; it must be finite and at least `least`."""
    number = require_number(name, value)
    if number < least:
        raise InputError(f"{name}={number} must be at least {least:g}")
    return number


def require_fraction(name: str, value: object) -> float:
    """Return the value as a float; it must be above 0 and at most 1."""
    number = require_number(name, value)
    if not 0 < number <= 1:
        raise InputError(f"{name}={number} must be above 0 and at most 1")
    return number


def require_choice(name: str, value: object, choices: Sequence[str]) -> str:
    """Return the value; it must be one of `choices`. For a misspelled one, the message suggests the closest."""
    if isinstance(value, str) and value in choices:
        return value
    close = get_close_matches(value, choices, n=1, cutoff=0.5) if isinstance(value, str) else []
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise InputError(f"{name}={value!r} must be one of {', '.join(choices)}{hint}")


def require_delta(name: str, value: object) -> float:
    """Return the value as a float; it must lie strictly between 0 and 1."""
    number = require_number(name, value)
    if not 0 < number < 1:
        raise InputError(f"{name}={number} must lie strictly between 0 and 1")
    return number


def require_fingerprint(name: str, value: object) -> str:
    """Refuse anything that cannot be the fingerprint of a plan, such as its first letters."""
    if not isinstance(value, str) or not _FINGERPRINT.fullmatch(value):
        raise InputError(
            f"{name}={value!r} must be the fingerprint of a plan: 64 digits from 0 to f, as plan.json states it"
        )
    return value
