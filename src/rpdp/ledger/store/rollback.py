"""Rollback detection: a small file beside a ledger notes its latest state, so an older ledger is recognised.

A restored backup would forget charges. After every commit the head of the chain is noted here, in two slots in turn,
without waiting for the disk. A lost or torn note leaves an older one, which only weakens the check, and a note is never
ahead of what is committed. The head acknowledged by the server is kept here as well.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rpdp.errors import PrivacyRefusal
from rpdp.ledger.store.chain import ROLLED_BACK, PublicHead, canonical

if TYPE_CHECKING:
    from rpdp.ledger.store.chain import Chain
    from rpdp.ledger.store.database import Database

_SLOT = 512


class RollbackNotes:
    """The notes of one ledger."""

    def __init__(self, path: Path, ledger: str) -> None:
        self._path = path
        self._ledger = ledger
        self._file: int | None = None
        self._turn = 0
        self._acknowledged: PublicHead | None = None

    @property
    def exists(self) -> bool:
        """Whether there are any notes to compare with."""
        return self._path.exists()

    def note(self, chain: Chain, acknowledged: PublicHead | None = None) -> None:
        """Note the current head of the chain. With an acknowledged head, wait until the note is on disk."""
        kept = self.acknowledged()
        if acknowledged is not None and (kept is None or acknowledged.count > kept.count):
            kept = self._acknowledged = acknowledged
        pair = None if kept is None else [kept.count, kept.head]
        text = canonical({"ledger": self._ledger, "seq": chain.seq, "head": chain.head.hex(), "acknowledged": pair})
        slot = f"{_check_of(text)} {text}".encode().ljust(_SLOT - 1) + b"\n"
        try:
            if self._file is None:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.pwrite(self._file, slot, _SLOT * self._turn)
            if acknowledged is not None:
                os.fsync(self._file)
        except OSError as error:
            raise PrivacyRefusal(
                f"{self._path} cannot be written ({error}); nothing was released. Check the disk and the permissions"
            ) from None
        self._turn = 1 - self._turn

    def acknowledged(self) -> PublicHead | None:
        """Return the latest head that a server has acknowledged."""
        if self._acknowledged is None:
            kept = [note["acknowledged"] for note in self.notes() if note["acknowledged"] is not None]
            if kept:
                count, head = max(kept)
                self._acknowledged = PublicHead(self._ledger, int(count), str(head))
        return self._acknowledged

    def require(self, chain: Chain, database: Database, notes: list[dict[str, Any]] | None = None) -> None:
        """Refuse a chain that is older than the notes, or has a different history.

        While another process writes, read `notes` before the chain: later notes are about later events.
        """
        for note in self.notes() if notes is None else notes:
            seq, head = note["seq"], note["head"]
            if note["ledger"] != self._ledger:
                raise PrivacyRefusal(
                    f"{self._path} belongs to ledger {note['ledger'][:12]}…, not to this one; {ROLLED_BACK}"
                )
            if seq > chain.seq:
                raise PrivacyRefusal(
                    f"this ledger was rolled back: it ends with event {chain.seq:,}, but had {seq:,} events. A "
                    f"restored backup would forget charges; {ROLLED_BACK}"
                )
            found = database.rows("SELECT head FROM event WHERE seq = ?", (seq,))
            if not found or bytes(found[0][0]).hex() != head:
                raise PrivacyRefusal(
                    f"this ledger's history differs from the one noted at event {seq:,}; {ROLLED_BACK}"
                )
        acknowledged = self.acknowledged() if notes is None else None
        if acknowledged is not None:
            chain.require(acknowledged, self._ledger)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def notes(self) -> list[dict[str, Any]]:
        """Return the notes of all intact slots."""
        notes = []
        content = self._path.read_bytes() if self._path.exists() else b""
        for start in range(0, len(content), _SLOT):
            check, _, text = content[start : start + _SLOT].decode("ascii", "replace").strip().partition(" ")
            if text and _check_of(text) == check:
                notes.append(json.loads(text))
        return notes


def _check_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
