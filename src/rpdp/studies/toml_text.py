"""The text of a TOML file from its values: study files that one file describes several of, such as trials of tuning.

Comments and the layout of the file that the values came from are lost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from typing import Any

from rpdp.errors import InputError


def toml_text(values: Mapping[str, Any]) -> str:
    """Return a TOML file with these sections, and everything below a section written in its lines.

    >>> print(toml_text({"run": {"id": "spring", "seeds": [1, 2]}}), end="")
    [run]
    id = "spring"
    seeds = [1, 2]
    """
    plain = [f"{_key(name)} = {_value(each)}\n" for name, each in values.items() if not isinstance(each, Mapping)]
    sections = [
        f"[{_key(name)}]\n" + "".join(f"{_key(key)} = {_value(one)}\n" for key, one in each.items())
        for name, each in values.items()
        if isinstance(each, Mapping)
    ]
    return "".join(plain) + "\n".join(sections)


def _key(name: str) -> str:
    bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if bare else json.dumps(name)


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_value(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, str | bool):
        return json.dumps(value)  # JSON texts are TOML texts
    if isinstance(value, date):  # and times of a day
        return value.isoformat()
    if isinstance(value, int | float):
        return repr(value)
    raise InputError(f"{value!r} cannot stand in a study file that is written again")
