"""The inbox of steward actions: durable files in a directory, which work even while a run is writing the ledger.

An action is in force as soon as its file exists. The writer books it in the chain with its next charge, and removes the
file when it opens or closes the ledger. It does not remove it during a run: workers that were forked earlier read only
the inbox, and would miss the action.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from rpdp.errors import InputError, PrivacyRefusal
from rpdp.ledger.stewardship.actions import Action
from rpdp.ledger.store import crash_points
from rpdp.ledger.store.record_keys import sync_directory, write_durably

if TYPE_CHECKING:
    from collections.abc import Container

    from rpdp.ledger.stewardship.steward_keys import StewardPublicKey

_ENDING = ".action"


class Inbox:
    """The directory of actions beside a ledger. A writer needs it; a copy of a ledger has none."""

    def __init__(self, path: Path, ledger: str, steward: StewardPublicKey | None, *, needed: bool) -> None:
        self._needed = needed
        self._steward = steward
        self._path = path
        self._ledger = ledger
        self._known: dict[str, Action] = {}

    def names(self) -> tuple[str, ...]:
        """Return the names of the actions in the order in which they were submitted. Called before every local step."""
        try:
            found = os.listdir(self._path)  # noqa: PTH208  # takes half the time of iterdir
        except FileNotFoundError:
            if not self._needed:
                return ()
            raise PrivacyRefusal(
                f"{self._path} is missing, so a withdrawal could not take effect; create the directory again to go on"
            ) from None
        return tuple(sorted(name.removesuffix(_ENDING) for name in found if name.endswith(_ENDING)))

    def pending(self, booked: Container[str] = ()) -> list[Action]:
        """Return the actions that are not booked yet."""
        return [self._read(name) for name in self.names() if name not in booked]

    def submit(self, action: Action) -> None:
        """Add an action. It is on disk, and in force, when this returns."""
        crash_points.reached("inbox: begun")
        write_durably(self._path / f"{action.name}{_ENDING}", action.to_bytes(), mode=0o600)
        crash_points.reached("inbox: in place")

    def clear(self, booked: Container[str]) -> None:
        """Remove the actions that are booked."""
        gone = [name for name in self.names() if name in booked]
        for name in gone:
            (self._path / f"{name}{_ENDING}").unlink()
            self._known.pop(name, None)
        if gone:
            sync_directory(self._path)
            crash_points.reached("actions: removed")

    def _read(self, name: str) -> Action:
        if name not in self._known:
            path = self._path / f"{name}{_ENDING}"
            try:
                action = Action.from_bytes(path.read_bytes())
            except (OSError, InputError) as error:
                raise PrivacyRefusal(
                    f"{path}: this steward action cannot be read ({error}). It may be a withdrawal, so nothing is "
                    "released until you submit the action again and remove this file"
                ) from None
            if action.name != name or action.ledger != self._ledger:
                raise PrivacyRefusal(
                    f"{path}: this action has another name or belongs to another ledger; nothing is released until "
                    "you remove it"
                )
            action.require_signature(self._steward)
            self._known[name] = action
        return self._known[name]
