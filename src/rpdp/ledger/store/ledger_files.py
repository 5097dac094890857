"""The files of a ledger: the database, and what lies beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class LedgerFiles:
    """Names derived from the path of the ledger.

    | file | what it is | leaves the silo |
    |---|---|---|
    | `ledger.db` | the ledger (and `-wal`, `-shm` while it is open) | a copy, for an auditor |
    | `ledger.db.key` | the key of the record hashes | never |
    | `ledger.db.head` | the newest state, to notice a rollback | no |
    | `ledger.db.inbox/` | steward actions on their way in | no |
    | `ledger.db.lock` | who is writing | no |
    """

    database: Path

    @property
    def key(self) -> Path:
        """The key of the record hashes."""
        return self._beside("key")

    @property
    def rollback_notes(self) -> Path:
        """The newest state."""
        return self._beside("head")

    @property
    def inbox(self) -> Path:
        """Steward actions."""
        return self._beside("inbox")

    @property
    def lock(self) -> Path:
        """Who is writing."""
        return self._beside("lock")

    @property
    def unfinished(self) -> Path:
        """A ledger that is being created."""
        return self._beside("creating")

    def _beside(self, ending: str) -> Path:
        return self.database.with_name(f"{self.database.name}.{ending}")
