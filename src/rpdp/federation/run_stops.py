"""Pausing a run and giving it up: a word in the server's directory of the run, which its server reads between rounds.

| word | what the server does | afterwards |
|---|---|---|
| `pause` | ends after the round in progress | the same run id continues it: the word is removed then |
| `give-up` | the same, and cancels the run at every silo that holds it | the run id is never continued |

A round is never broken off: a silo that was charged for it has sent its update. What was charged stays charged.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Literal

from rpdp.errors import InputError, RpdpError

StopWord = Literal["", "pause", "give-up"]
PAUSE: StopWord = "pause"
GIVE_UP: StopWord = "give-up"
LOCK = ".lock"
"""In the directory of a run: whoever has locked it is its server."""

_NAME = "stop"


class StoppedRunError(RpdpError):
    """A run was paused or given up, as its operator asked."""


def ask_to_stop(directory: Path, word: StopWord) -> None:
    """Ask the server of a run to stop, now or when it is started again."""
    if stop_word(directory) != GIVE_UP:
        (directory / _NAME).write_text(word + "\n", encoding="ascii")


def stop_word(directory: Path) -> StopWord:
    """What was asked; "" for nothing."""
    try:
        said = (directory / _NAME).read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return ""
    for word in (PAUSE, GIVE_UP):
        if said == word:
            return word
    raise InputError(f"{directory / _NAME}: {said!r} must be {PAUSE} or {GIVE_UP}")


def go_on(directory: Path) -> None:
    """Let a paused run be continued; refused for one that was given up."""
    if stop_word(directory) == GIVE_UP:
        raise InputError(f"run {directory.name} was given up, and its id never returns; use a new run id")
    (directory / _NAME).unlink(missing_ok=True)


def never() -> StopWord:
    """Nobody asks."""
    return ""


def is_running(directory: Path) -> bool:
    """Whether a server process is at work on the run now."""
    try:
        lock = os.open(directory / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
