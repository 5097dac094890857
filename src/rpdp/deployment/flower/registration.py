"""Which silos a SuperLink knows: brings it in line with the keys in the server's directory.

| in `server/deploy.toml` and `server/keys` | at the SuperLink | done |
|---|---|---|
| a silo with a key | not known | registered |
| a silo with another key than before | the old key | the old one is removed, the new one registered |
| not there any more | registered | removed |
| a silo with a key | removed | refused: a key that was removed never returns |

The SuperLink lists nodes by number only, so their numbers and keys are kept in `nodes.json`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rpdp.deployment.files.certificates import replace_file
from rpdp.errors import InputError, RpdpError

if TYPE_CHECKING:
    from pathlib import Path

    from rpdp.deployment.files.layout import Layout
    from rpdp.deployment.flower.control import Control

_IN_USE = "already in use"
"""Part of the SuperLink's message about a key that it has seen before."""
_GONE = "unregistered"


@dataclass(frozen=True)
class Registered:
    """How silos stand at a SuperLink.

    Attributes:
        states: By silo: `new`, `new key`, `registered` (has not connected yet), `online` or `offline`; `known` if its
            key was registered by somebody else.
        removed: Silos that are no longer part of the federation.
    """

    states: dict[str, str] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Node:
    """A registered node: its number at the SuperLink, and the hash of its key."""

    number: int
    key: str


def register_silos(control: Control, layout: Layout) -> Registered:
    """Register new silos and keys, remove those that are no longer there, and say how every silo stands."""
    keys = {name: _key(layout.server / "keys" / f"{name}.pub") for name in layout.silos}
    file = control.home / "nodes.json"
    known, found = _read(file), Registered()
    states = control.nodes()
    for name in [name for name in known if name not in keys]:
        _remove(control, known, name, states)
        found.removed.append(name)
        _write(file, known)
    for name, key in keys.items():
        before = known.get(name)
        if before is not None and before.key == key:
            if states.get(before.number, _GONE) == _GONE:
                raise InputError(
                    f"silo {name} was removed from the SuperLink, and a key that was removed never returns. Make it a "
                    f"new one with `rpdp deploy rotate-key {name}`; or the SuperLink's database was lost: then delete "
                    f"{file} and register again"
                )
            found.states[name] = states[before.number]
            continue
        if before is not None:
            _remove(control, known, name, states)
            _write(file, known)
        try:
            known[name] = _Node(control.register(layout.server / "keys" / f"{name}.pub", name), key)
        except RpdpError as error:
            if _IN_USE not in str(error):
                raise
            found.states[name] = "known"
            continue
        found.states[name] = "new" if before is None else "new key"
        _write(file, known)
    return found


def _remove(control: Control, known: dict[str, _Node], name: str, states: dict[int, str]) -> None:
    number = known.pop(name).number
    if states.get(number, _GONE) != _GONE:
        control.unregister(number)


def _key(path: Path) -> str:
    try:
        words = path.read_bytes().split()[:2]  # without the comment
    except OSError as error:
        raise InputError(f"{path}: the public key of a silo cannot be read: {error.strerror}") from None
    return hashlib.sha256(b" ".join(words)).hexdigest()


def _read(path: Path) -> dict[str, _Node]:
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): _Node(int(one["node"]), str(one["key"])) for name, one in found.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{path}: damaged: {error}") from None


def _write(path: Path, known: dict[str, _Node]) -> None:
    told = {name: {"node": str(one.number), "key": one.key} for name, one in known.items()}
    replace_file(path, (json.dumps(told, indent=1) + "\n").encode(), 0o600)
