"""Booking what waits in the inbox at once, unless a run holds the ledger: then that run books it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def book_now(ledger: Path) -> bool:
    """Book all actions that wait, and return whether that was possible. They are in force in any case."""
    from rpdp.ledger.ledger import Ledger
    from rpdp.ledger.store.writer_lock import LedgerInUseError

    try:
        Ledger.open(ledger).close()
    except LedgerInUseError:
        return False
    return True
