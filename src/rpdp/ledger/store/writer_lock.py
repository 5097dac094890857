"""A lock for one writer at a time. It ends with the process that holds it, and names that process."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path

from rpdp.errors import PrivacyRefusal


class LedgerInUseError(PrivacyRefusal):
    """Another process is writing the ledger; try again later."""


class WriterLock:
    """The right to write a ledger: taken at once or refused, held until `release` or the end of the process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = _holder(self._file)
            os.close(self._file)
            raise LedgerInUseError(
                f"{path.with_suffix('')} is being written by {holder}. Only one process may write at a time: wait "
                "until it has finished. Meanwhile the ledger can be read (show, explain, verify, export), and steward "
                "actions take effect: they wait in the inbox"
            ) from None
        details = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": datetime.now(UTC).isoformat("T", "seconds"),
        }
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, json.dumps(details).encode(), 0)

    def release(self) -> None:
        """Release the lock, so that another process can write."""
        os.close(self._file)


def _holder(file: int) -> str:
    try:
        details = json.loads(os.pread(file, 4096, 0))
        return f"process {details['pid']} on {details['host']} since {details['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
