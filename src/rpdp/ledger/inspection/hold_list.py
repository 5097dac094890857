"""The holds of a ledger: runs whose budgets are taken although no round was charged yet."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rpdp.ledger.store.holds import has_passed

if TYPE_CHECKING:
    from rpdp.ledger.ledger_base import LedgerBase


@dataclass(frozen=True)
class Hold:
    """A run that is held.

    Attributes:
        run: The id of the run.
        plan: The fingerprint of the public plan.
        admitted: Since when.
        expires: Until when, if it is not committed or cancelled before; None if it does not expire.
        has_expired: Whether that time has passed. What is held is free once the next writer has booked it.
        records: For how many records it holds budgets.
    """

    run: str
    plan: str
    admitted: str
    expires: str | None
    has_expired: bool
    records: int


def holds_of(ledger: LedgerBase) -> list[Hold]:
    """Return all holds in order of admission."""
    moment = time.time()
    return [
        Hold(one.run, one.public.fingerprint, one.at, one.expires, has_passed(one.expires, moment), one.drawn)
        for one in ledger.runs.held()
    ]
