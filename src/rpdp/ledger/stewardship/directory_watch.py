"""What was read from a directory, read again only if the directory may have changed: one `stat` if it has not.

This is how a withdrawal can be in force at every local step and cost next to nothing. The inbox of a ledger lists its
files with it; a process that trains asks the agent with it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_Value = TypeVar("_Value")

_SETTLED_NS = 2_500_000_000
"""Above the coarsest time stamp of any file system (2 s). A directory that changed this recently may change again
without a new time stamp."""


class DirectoryWatch(Generic[_Value]):
    """A value that depends on the files of a directory.

    Guarantee: `latest` returns what `read` would return now, as long as whoever adds a file to the directory leaves it
    a new time stamp once the last one has settled.

    | the directory | `latest` |
    |---|---|
    | is as it was at the last reading, and had settled then | returns what was read |
    | has changed | reads |
    | changed in the last 2.5 s, or in the future of this clock | reads, every time |
    | is missing or cannot be looked at | reads, every time: `read` decides what that means |

    If `read` raises, nothing is remembered.

    Args:
        path: The directory.
        read: Reads the value.
    """

    def __init__(self, path: Path, read: Callable[[], _Value]) -> None:
        self._path = path
        self._read = read
        self._read_at: tuple[int, ...] | None = None
        self._value: _Value

    def latest(self) -> _Value:
        """Return the value, read anew if the directory may have changed since it was read."""
        # Looked at before it is read: what arrives while it is read is a change for the next look.
        state = self._settled_state()
        if state is None or state != self._read_at:
            self._read_at = None
            self._value = self._read()
            self._read_at = state
        return self._value

    def _settled_state(self) -> tuple[int, ...] | None:
        """Return what the next change will change; None if it may not."""
        try:
            status = self._path.stat()
        except OSError:
            return None
        if time.time_ns() - status.st_mtime_ns <= _SETTLED_NS:
            return None
        return (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size)
