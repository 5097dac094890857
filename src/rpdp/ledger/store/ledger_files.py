"""The files of a ledger: the database and the files beside it."""

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
    | `ledger.db.head` | the latest state, to detect a rollback | no |
    | `ledger.db.inbox/` | steward actions that are not booked yet | no |
    | `ledger.db.lock` | which process is writing (the lock itself is on `ledger.db`) | no |
    | `ledger.db.agent` | what the agent that has it open says of itself, for `rpdp silo status` | no |
    | `ledger.db.console` | the last results of `rpdp console`: when the ledger was verified, this build audited | no |
    | `ledger.db.policy.toml` | the steward's limits for every run on this ledger, if stated there | no |
    """

    database: Path

    def __post_init__(self) -> None:
        """Follow a link to the database: whatever link a ledger is opened by, its files are those beside it."""
        if self.database.is_symlink():
            object.__setattr__(self, "database", self.database.resolve())

    @property
    def key(self) -> Path:
        """The key of the record hashes."""
        return self._beside("key")

    @property
    def rollback_notes(self) -> Path:
        """The notes of the latest state, to detect a rollback."""
        return self._beside("head")

    @property
    def inbox(self) -> Path:
        """The directory of steward actions that are not booked yet."""
        return self._beside("inbox")

    @property
    def lock(self) -> Path:
        """The note of who is writing."""
        return self._beside("lock")

    @property
    def agent(self) -> Path:
        """What the agent that has the ledger open says of itself."""
        return self._beside("agent")

    @property
    def console(self) -> Path:
        """The last results of the steward's console."""
        return self._beside("console")

    @property
    def limits(self) -> Path:
        """The steward's limits for runs on this ledger."""
        return self._beside("policy.toml")

    @property
    def log(self) -> Path:
        """The log of SQLite: commits that are not in the database yet."""
        return self.database.with_name(f"{self.database.name}-wal")

    @property
    def unfinished(self) -> Path:
        """The ledger while it is being created."""
        return self._beside("creating")

    def _beside(self, ending: str) -> Path:
        return self.database.with_name(f"{self.database.name}.{ending}")
