"""Rollback detection: a small file beside a ledger notes its latest state, so an older ledger is recognised.

A restored backup would forget charges. After every commit the head of the chain is noted here, without waiting for the
disk: first in one slot, then the same in a second one. Damage to one slot leaves the latest note, a torn write leaves
it or the one before, and a note is never ahead of what is committed. A file without an intact slot says nothing: it
counts as lost. The head acknowledged by the server is kept here as well.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rpdp.errors import PrivacyRefusal, Reason
from rpdp.ledger.store.chain import ROLLED_BACK, PublicHead, canonical
from rpdp.private_files import OWNER_ONLY, hand_over, read_regular, write_durably

if TYPE_CHECKING:
    from rpdp.ledger.store.chain import Chain
    from rpdp.ledger.store.database import Database

_SLOT = 512
_SLOTS = 2


class RollbackNotes:
    """The notes of one ledger."""

    def __init__(self, path: Path, ledger: str) -> None:
        self._path = path
        self._ledger = ledger
        self._file: int | None = None
        self._acknowledged: PublicHead | None = None

    def create(self, chain: Chain) -> None:
        """Note the first state of a new ledger, on disk when this returns."""
        write_durably(self._path, self._slot(chain, None) * _SLOTS, OWNER_ONLY)

    def note(self, chain: Chain, acknowledged: PublicHead | None = None) -> None:
        """Note the current head of the chain. With an acknowledged head, wait until the note is on disk."""
        kept = self.acknowledged()
        if acknowledged is not None and (kept is None or acknowledged.count > kept.count):
            kept = self._acknowledged = acknowledged
        slot = self._slot(chain, kept)
        try:
            if self._file is None:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                self._file = os.open(self._path, flags, OWNER_ONLY)
                hand_over(self._file, self._path.with_suffix("").stat())  # as the ledger
            for number in range(_SLOTS):  # one after the other: at any moment one of them is intact
                os.pwrite(self._file, slot, _SLOT * number)
            if acknowledged is not None:
                os.fsync(self._file)
        except OSError as error:
            raise PrivacyRefusal(
                f"{self._path} cannot be written ({error}); nothing was released. Check the disk and the permissions",
                Reason.STORAGE,
            ) from None

    def _slot(self, chain: Chain, acknowledged: PublicHead | None) -> bytes:
        pair = None if acknowledged is None else [acknowledged.count, acknowledged.head]
        text = canonical({"ledger": self._ledger, "seq": chain.seq, "head": chain.head.hex(), "acknowledged": pair})
        return f"{_check_of(text)} {text}".encode().ljust(_SLOT - 1) + b"\n"

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

    @property
    def exists(self) -> bool:
        """Whether there is a file of notes, intact or not."""
        return os.path.lexists(self._path)

    def notes(self) -> list[dict[str, Any]]:
        """Return the notes of all intact slots. None at all means that the notes are lost."""
        notes = []
        try:
            content = read_regular(self._path, _SLOT * _SLOTS)
        except OSError:
            content = b""
        for start in range(0, len(content), _SLOT):
            check, _, text = content[start : start + _SLOT].decode("ascii", "replace").strip().partition(" ")
            if text and _check_of(text) == check:
                notes.append(json.loads(text))
        return notes


def _check_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
