"""Balances at the time a run was admitted. Its plan was made from them, and its reports show them as budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpdp.ledger.balances import Balances
from rpdp.ledger.store.sampling_classes import add_booking

if TYPE_CHECKING:
    from rpdp.ledger.ledger_base import LedgerBase


def balances_before(ledger: LedgerBase, seq: int, now: Balances) -> Balances:
    """Return the balances before an event, such as an admission: without everything booked or returned from it on."""
    earlier = Balances(
        ledger.records,
        now.roster,
        now.places,
        ledger.booked_actions(before=seq),
        ledger.terms,
    )
    for run in ledger.runs.admissions():
        cancelled = ledger.runs.cancellation(run.run)
        counts_now, counted_then = cancelled is None, run.seq < seq
        if cancelled is not None and cancelled.seq < seq:
            counted_then = False
        if counts_now != counted_then:
            sign = 1 if counted_then else -1
            add_booking(
                ledger.records,
                ledger.runs.members,
                run,
                earlier.places,
                earlier.booked,
                earlier.booked_delta,
                sign,
            )
    return earlier
