"""A lock for one writer at a time, on the database file itself. It ends with the process that holds it.

A lock on a file beside the database protects nothing once somebody removes that file: the next process locks a new one.
The database cannot be removed that way, because whoever opens another file under its name has another ledger, and the
writer of the first one notices (`require_in_place`).

The file `ledger.db.lock` says who is writing, for the message to everybody else. It is locked as well, because release
0.1 looks only there.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import socket
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rpdp.checks import require_least
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.private_files import OWNER_ONLY, hand_over

LOG = logging.getLogger("rpdp.ledger")
_LOOK_SECONDS = 0.02
"""How often a process that waits looks whether the lock is free."""

Inode = tuple[int, int]


class LedgerInUseError(PrivacyRefusal):
    """Another process is writing the ledger; try again later."""


@dataclass
class _OpenFile:
    """A database file that this process has open: how often, and our own descriptor of it if it was ever locked."""

    users: int = 0
    descriptor: int | None = None
    is_locked: bool = False


_open: dict[Inode, _OpenFile] = {}
_guard = threading.Lock()


class DatabaseFile:
    """A database file for as long as a ledger has it open, as a reader or as the writer.

    Closing any descriptor of a file drops all POSIX locks of the process on it, including those of SQLite. A descriptor
    that was opened for our own lock is therefore kept until the last ledger of this process on that file is closed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._process = os.getpid()
        self._inode = _inode_of(path)
        with _guard:
            _open.setdefault(self._inode, _OpenFile()).users += 1

    def lock(self) -> bool:
        """Take the lock of the writer at once; return whether it was free, here and in other processes."""
        with _guard:
            file = _open[self._inode]
            if file.is_locked:
                return False
            if file.descriptor is None:
                file.descriptor = self._opened()
            try:
                fcntl.flock(file.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            file.is_locked = True
            return True

    def _opened(self) -> int:
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise InputError(
                f"{self._path} cannot be opened for writing ({error.strerror}); check that this user may write the "
                "file and its directory"
            ) from None
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) != self._inode:
            os.close(descriptor)
            raise InputError(f"{self._path} was replaced while it was being opened; try again")
        try:
            _require_one_name(self._path, status.st_nlink)
        except PrivacyRefusal:
            os.close(descriptor)
            raise
        return descriptor

    def unlock(self) -> None:
        """Release the lock. A forked child shares it with its parent, and so must not end it."""
        with _guard:
            file = _open[self._inode]
            if file.descriptor is not None and os.getpid() == self._process:
                fcntl.flock(file.descriptor, fcntl.LOCK_UN)
            file.is_locked = False

    def close(self) -> None:
        """Count this ledger out, after SQLite has closed the file."""
        with _guard:
            file = _open[self._inode]
            file.users -= 1
            if file.users == 0:
                del _open[self._inode]
                if file.descriptor is not None:
                    os.close(file.descriptor)

    def require_in_place(self) -> None:
        """Refuse to go on if another file has the name of the database now: charges would be lost with the old one."""
        try:
            now = _inode_of(self._path)
        except InputError:
            now = None
        if now != self._inode:
            raise PrivacyRefusal(
                f"{self._path} was moved, removed or replaced while it was open, so what is booked now would be lost. "
                "Nothing was released; put the file back that was there, then open the ledger again"
            )


def _require_one_name(path: Path, names: int) -> None:
    """Refuse a file with a second name: SQLite's log, the notes, the inbox and the limits go by the name."""
    if names > 1:
        raise PrivacyRefusal(
            f"{path} has {names} names (hard links). Under another one it has another log, so charges could be lost, "
            f"and other limits. Nothing was changed; find them with `find / -xdev -samefile {path}`, and remove all "
            "but the one that the key and the inbox lie beside"
        )


class WriterLock:
    """The right to write a ledger, held until `release` or the end of the process.

    Args:
        file: The database.
        note: Where to note who is writing.
        name: The ledger as messages call it.
        wait: For how many seconds to wait while another process writes; then it is refused.
    """

    def __init__(self, file: DatabaseFile, note: Path, name: Path, wait: float = 0.0) -> None:
        require_least("wait", wait, least=0.0)
        self._file = file
        try:
            self._note = os.open(note, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, OWNER_ONLY)
            hand_over(self._note, name.stat())
        except OSError as error:
            raise InputError(
                f"{note} cannot be written ({error.strerror}), so nobody could see who is writing the ledger; check "
                "that this user may write the file and its directory"
            ) from None
        try:
            self._take(name, wait)
        except BaseException:
            os.close(self._note)
            raise
        self._describe()

    def _take(self, name: Path, wait: float) -> None:
        until, has_told = time.monotonic() + wait, False
        while not (self._file.lock() and self._lock_note()):
            holder = _holder(self._note)
            if time.monotonic() >= until:
                waited = f"It was not free within {wait:g} s" if wait else "Wait until it has finished (--wait SECONDS)"
                raise LedgerInUseError(
                    f"{name} is being written by {holder}. Only one process may write at a time. {waited}. Meanwhile "
                    "the ledger can be read (show, explain, verify, export), and steward actions take effect: they "
                    "wait in the inbox"
                )
            if not has_told:
                LOG.warning("%s is being written by %s; waiting for it, %g s at most", name, holder, wait)
                has_told = True
            time.sleep(_LOOK_SECONDS)
        if has_told:
            self._require_same_file()

    def _require_same_file(self) -> None:
        """Refuse the lock of a file that was replaced while this process waited for it."""
        try:
            self._file.require_in_place()
        except BaseException:
            self._file.unlock()
            raise

    def _lock_note(self) -> bool:
        try:
            fcntl.flock(self._note, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.unlock()
            return False
        return True

    def _describe(self) -> None:
        details = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": datetime.now(UTC).isoformat("T", "seconds"),
        }
        try:
            os.ftruncate(self._note, 0)
            os.pwrite(self._note, json.dumps(details).encode(), 0)
        except OSError:
            return  # on a full disk others read "another process"; the lock holds all the same

    def release(self) -> None:
        """Release the lock, so that another process can write."""
        os.close(self._note)
        self._file.unlock()


def _inode_of(path: Path) -> Inode:
    try:
        status = path.stat()
    except OSError:
        raise InputError(f"there is no ledger {path}; create one with `rpdp ledger create`") from None
    return status.st_dev, status.st_ino


def _holder(file: int) -> str:
    try:
        details = json.loads(os.pread(file, 4096, 0))
        return f"process {details['pid']} on {details['host']} since {details['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
