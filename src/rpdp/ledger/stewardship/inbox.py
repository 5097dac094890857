"""The inbox of steward actions: durable files in a directory, which work even while a run is writing the ledger.

An action is in force as soon as its file exists. The writer books it in the chain with its next charge, and removes the
file when it opens or closes the ledger. It does not remove it during a run: workers that were forked earlier read only
the inbox, and would miss the action.

A file is named `NUMBER-ACTION.action`. The number counts the actions in the inbox as they arrive, so that their order
depends on no clock. (In release 0.1 it was a time, and part of the action's name. A count that goes on from there keeps
the order.)

The inbox is asked before every local step. As long as the directory has not changed, the answer costs one `stat`,
however many actions wait in it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rpdp.errors import InputError, PrivacyRefusal, Reason, RpdpError
from rpdp.ledger.stewardship.actions import Action
from rpdp.ledger.stewardship.directory_watch import DirectoryWatch
from rpdp.ledger.store import crash_points
from rpdp.private_files import OWNER_ONLY, read_regular, sync_directory, write_durably

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

    from rpdp.ledger.stewardship.steward_keys import StewardPublicKey

_ENDING = ".action"
_BROKEN = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


class Inbox:
    """The directory of actions beside a ledger. A writer needs it; a copy of a ledger has none."""

    def __init__(self, path: Path, ledger: str, steward: StewardPublicKey | None, *, needed: bool) -> None:
        self._needed = needed
        self._steward = steward
        self._path = path
        self._ledger = ledger
        self._known: dict[str, Action] = {}
        self._lock = threading.RLock()
        self._held: int | None = None
        self._found: list[str] = []
        self._listed: tuple[str, ...] = ()
        self._listing = DirectoryWatch(path, self._list)
        self._answered: tuple[tuple[str, ...], int] | None = None
        self._pending: list[Action] = []

    def files(self) -> tuple[str, ...]:
        """Return the files of actions, without their ending, in the order of arrival. Called before every step."""
        try:
            return self._listing.latest()
        except FileNotFoundError:
            if not self._needed:
                return ()
            raise PrivacyRefusal(
                f"{self._path} is missing, so a withdrawal could not take effect; create the directory again to go on",
                Reason.STORAGE,
            ) from None
        except OSError as error:
            raise PrivacyRefusal(
                f"{self._path} cannot be read ({error.strerror}), so a withdrawal could not take effect; run this as "
                "the user whom the ledger belongs to",
                Reason.STORAGE,
            ) from None

    def _list(self) -> tuple[str, ...]:
        found = os.listdir(self._path)  # noqa: PTH208  # takes half the time of iterdir
        if found != self._found:  # sorting takes ten times as long as listing
            names = [name.removesuffix(_ENDING) for name in found if name.endswith(_ENDING)]
            self._found, self._listed = found, tuple(sorted(names, key=_place))
        return self._listed

    def pending(self, booked: AbstractSet[str] = frozenset()) -> list[Action]:
        """Return the actions that are not booked yet, in the order of arrival; the same list while nothing changes."""
        files = self.files()
        asked = (files, len(booked))  # actions are booked once and for ever: the count tells whether there are more
        if self._answered is None or self._answered[0] is not files or self._answered != asked:
            self._pending = [self._read(file) for file in files if not _is_booked(file, booked)]
            self._answered = asked
        return self._pending

    def submit(self, action: Action) -> None:
        """Add an action after all others. It is on disk, in force and readable for the writer when this returns."""
        crash_points.reached("inbox: begun")
        try:
            with self._counting() as (number, owner):
                file = self._path / f"{number:020d}-{action.name}{_ENDING}"
                write_durably(file, action.to_bytes(), OWNER_ONLY, owner=owner)
        except OSError as error:
            raise self._not_submitted(error) from None
        crash_points.reached("inbox: in place")

    @contextmanager
    def _counting(self) -> Iterator[tuple[int, os.stat_result]]:
        """Hold the inbox; give the next number and the inbox's owner, who must be able to read the action.

        What was booked and removed came before everything in the inbox, so its numbers need not be known.
        """
        with self.turn() as directory:  # two stewards at once: one after the other, with two numbers
            before = os.fstat(directory)
            if os.geteuid() not in (0, before.st_uid):
                raise InputError(
                    f"{self._path} belongs to user {before.st_uid}, who could not read an action of user "
                    f"{os.geteuid()}; nothing was changed. Run this as that user, or as root"
                )
            yield 1 + max((_number(file) for file in self.files()), default=0), before
            if os.fstat(directory).st_mtime_ns <= before.st_mtime_ns:  # the clock stepped back: make the change visible
                os.utime(directory, ns=(before.st_atime_ns, before.st_mtime_ns + 1))

    @contextmanager
    def turn(self) -> Iterator[int]:
        """Hold the inbox: whoever else submits an action, or adds records, waits. It may be held again inside.

        What an action says of a person must still hold when it is submitted: no record may be added in between.
        """
        with self._lock:
            if self._held is not None:
                yield self._held
                return
            try:
                directory = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError as error:
                raise self._not_submitted(error) from None
            try:
                fcntl.flock(directory, fcntl.LOCK_EX)
                self._held = directory
                yield directory
            finally:
                self._held = None
                os.close(directory)

    def _not_submitted(self, error: OSError) -> RpdpError:
        said = f"{self._path}: the action could not be written ({error.strerror or error}) and is not in force; "
        if error.errno in _BROKEN:
            return PrivacyRefusal(f"{said}free some space or check the disk, and submit it again")
        return InputError(f"{said}run this as the user whom the ledger belongs to, where the directory can be written")

    def clear(self, booked: AbstractSet[str]) -> None:
        """Remove the actions that are booked. A file that cannot be removed stays; it is not heard again."""
        gone = [file for file in self.files() if _is_booked(file, booked)]
        for file in gone:
            try:
                (self._path / f"{file}{_ENDING}").unlink(missing_ok=True)
            except OSError:
                continue
            self._known.pop(file, None)
        if gone:
            sync_directory(self._path)
            crash_points.reached("actions: removed")

    def _read(self, file: str) -> Action:
        if file not in self._known:
            path = self._path / f"{file}{_ENDING}"
            try:
                action = Action.from_bytes(read_regular(path))
            except (OSError, InputError) as error:
                raise PrivacyRefusal(
                    f"{path}: this steward action cannot be read ({error}). It may be a withdrawal, so nothing is "
                    "released until you submit the action again and remove this file",
                    Reason.STORAGE,
                ) from None
            if action.name not in _names(file) or action.ledger != self._ledger:
                raise PrivacyRefusal(
                    f"{path}: this action has another name or belongs to another ledger; nothing is released until "
                    "you remove it"
                )
            action.require_signature(self._steward)
            self._known[file] = action
        return self._known[file]


def _names(file: str) -> tuple[str, ...]:
    """Return the names that the action in a file may have: after its number, or, in release 0.1, with it."""
    name = file.partition("-")[2]
    return (name, file) if name else (file,)


def _is_booked(file: str, booked: AbstractSet[str]) -> bool:
    return any(name in booked for name in _names(file))


def _number(file: str) -> int:
    number = file.partition("-")[0]
    return int(number) if number.isascii() and number.isdigit() else 0


def _place(file: str) -> tuple[int, str]:
    return _number(file), file
