"""Steward actions on their way into a ledger: durable files in a directory, read while a run holds the writer.

An action counts from the moment its file is there. The writer books it into the chain with its next transaction, and
clears it away when it opens or closes the ledger: not during a run, because workers that were forked before would
never hear of it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from rpdp.errors import InputError, PrivacyRefusal
from rpdp.ledger.stewardship.actions import Action
from rpdp.ledger.store import crash_points as points
from rpdp.ledger.store.record_keys import sync_directory, write_durably

if TYPE_CHECKING:
    from collections.abc import Container

    from rpdp.ledger.stewardship.steward_keys import StewardPublicKey

_ENDING = ".action"


class Inbox:
    """The directory beside a ledger. A writer needs it; a copy of a ledger has none."""

    def __init__(self, path: Path, ledger: str, steward: StewardPublicKey | None, *, needed: bool) -> None:
        self._needed = needed
        self._steward = steward
        self._path = path
        self._ledger = ledger
        self._known: dict[str, Action] = {}

    def names(self) -> tuple[str, ...]:
        """The actions that lie here, in the order in which they were given. Cheap: asked before every local step."""
        try:
            found = os.listdir(self._path)  # noqa: PTH208  # half the price of iterdir
        except FileNotFoundError:
            if not self._needed:
                return ()
            raise PrivacyRefusal(
                f"{self._path} is gone: a withdrawal could not be heard; make the directory again to go on"
            ) from None
        return tuple(sorted(name.removesuffix(_ENDING) for name in found if name.endswith(_ENDING)))

    def pending(self, booked: Container[str] = ()) -> list[Action]:
        """The actions that lie here and are not booked yet."""
        return [self._read(name) for name in self.names() if name not in booked]

    def submit(self, action: Action) -> None:
        """Put an action here; it is on the disk, and in force, when this returns."""
        points.reached("inbox: begun")
        write_durably(self._path / f"{action.name}{_ENDING}", action.to_bytes(), mode=0o600)
        points.reached("inbox: in place")

    def clear(self, booked: Container[str]) -> None:
        """Remove what is booked."""
        gone = [name for name in self.names() if name in booked]
        for name in gone:
            (self._path / f"{name}{_ENDING}").unlink()
            self._known.pop(name, None)
        if gone:
            sync_directory(self._path)
            points.reached("actions: removed")

    def _read(self, name: str) -> Action:
        if name not in self._known:
            path = self._path / f"{name}{_ENDING}"
            try:
                action = Action.from_bytes(path.read_bytes())
            except (OSError, InputError) as error:
                raise PrivacyRefusal(
                    f"{path}: a steward action that cannot be read ({error}); it may be a withdrawal, so nothing is "
                    "released until it is given again and this file removed"
                ) from None
            if action.name != name or action.ledger != self._ledger:
                raise PrivacyRefusal(
                    f"{path}: an action of another name or ledger; remove it, nothing is released before"
                )
            action.require_signature(self._steward)
            self._known[name] = action
        return self._known[name]
