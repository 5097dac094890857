"""One writer at a time: a lock that dies with its holder, and says who holds it."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path

from rpdp.errors import PrivacyRefusal


class LedgerInUseError(PrivacyRefusal):
    """Another process is writing; try again later."""


class WriterLock:
    """The right to write a ledger. Taken at once or refused; given back by `release`, or by the end of the process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = _holder(self._file)
            os.close(self._file)
            raise LedgerInUseError(
                f"{path.with_suffix('')} is being written by {holder}. One writer at a time: wait until it is done, or "
                "read it meanwhile (show, explain, verify and export do). Steward actions go through: they wait in "
                "the inbox"
            ) from None
        details = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": datetime.now(UTC).isoformat("T", "seconds"),
        }
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, json.dumps(details).encode(), 0)

    def release(self) -> None:
        """Let others write."""
        os.close(self._file)


def _holder(file: int) -> str:
    try:
        details = json.loads(os.pread(file, 4096, 0))
        return f"process {details['pid']} on {details['host']} since {details['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
