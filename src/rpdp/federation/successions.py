"""The server's consent to the successor of a silo's lost ledger: an act by somebody, with a reason, kept beside heads.

Until then the server goes on with the head of the lost ledger, which the successor refuses like any other ledger would:
nothing is ever replaced because a silo comes back with another ledger.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rpdp.errors import InputError, PrivacyRefusal
from rpdp.federation.heads import changed_heads

if TYPE_CHECKING:
    from rpdp.ledger.store.chain import PublicHead
    from rpdp.ledger.succession import Succession


def successions_file(heads: str | Path) -> Path:
    """Return the file in which accepted successors are listed, one line of JSON each."""
    return Path(f"{heads}.successions")


def accept_successor(heads: str | Path, silo: str, succession: Succession, reason: str) -> bool:
    """Put the head of the successor in the place of the lost ledger's; return False if it is there already.

    Refused unless the successor was made from the head that this server keeps of the silo, or from a later one: what
    was charged in between would be forgotten.
    """
    if not Path(heads).is_file():
        raise InputError(f"{heads} does not exist; give the file in which this server keeps the heads of ledgers")
    why = _checked(reason)
    with changed_heads(heads) as known:
        if silo not in known:
            raise InputError(f"{heads} has no head of silo {silo!r}, so there is nothing to succeed; check the name")
        if known[silo].ledger == succession.successor.ledger:
            return False
        _require_latest(known[silo], succession.predecessor, silo)
        _note(successions_file(heads), silo, succession, why)
        known[silo] = succession.successor
    return True


def _checked(reason: str) -> str:
    if not reason.strip() or not reason.isprintable():
        raise InputError(f"reason={reason[:40]!r} must be one line: say why this server accepts the successor")
    return reason.strip()


def _require_latest(known: PublicHead, lost: PublicHead, silo: str) -> None:
    """Refuse a statement about another ledger, or one that was made from less than this server knows."""
    if known.ledger != lost.ledger:
        raise PrivacyRefusal(
            f"silo {silo} is known here with ledger {known.ledger[:12]}…, but the statement is about the loss of "
            f"ledger {lost.ledger[:12]}…; nothing was changed"
        )
    if known.count > lost.count or (known.count == lost.count and known.head != lost.head):
        raise PrivacyRefusal(
            f"the successor was made from public event {lost.count:,} of the lost ledger, but this server knows "
            f"{known.count:,} or another history: charges would be forgotten. Nothing was changed; make the successor "
            "again, with this heads.json"
        )


def _note(path: Path, silo: str, succession: Succession, reason: str) -> None:
    """Append the act, on disk before it takes effect."""
    at = datetime.now(UTC).isoformat("T", "seconds")
    line = json.dumps({"at": at, "silo": silo, "reason": reason, **asdict(succession)})
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())
