"""Balances at the time a run was admitted. Its plan was made from them, and its reports show them as budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpdp.ledger.balances import Balances
from rpdp.ledger.store.fixed_point import DELTA_SHIFT, rounded_up
from rpdp.ledger.store.roster import ABSENT

if TYPE_CHECKING:
    from rpdp.ledger.ledger_base import LedgerBase
    from rpdp.ledger.store.run_book import Admission


def balances_before(ledger: LedgerBase, admission: Admission, now: Balances) -> Balances:
    """Return the balances before an admission: without its own booking and everything booked or returned later."""
    earlier = Balances(ledger.records, now.roster, now.places, ledger.booked_actions(before=admission.seq))
    for run in ledger.runs.admissions():
        cancelled = ledger.runs.cancellation(run.run)
        counts_now, counted_then = cancelled is None, run.seq < admission.seq
        if cancelled is not None and cancelled.seq < admission.seq:
            counted_then = False
        if counts_now != counted_then:
            _book_again(ledger, run, earlier, 1 if counted_then else -1)
    return earlier


def _book_again(ledger: LedgerBase, run: Admission, balances: Balances, sign: int) -> None:
    """Add the booking of a run to balances, or subtract it."""
    classes = ledger.runs.members.classes(run.seq, run.classes)
    booked, delta = classes.booked, rounded_up(np.full(1, run.public.delta), DELTA_SHIFT)[0]
    for chunk in ledger.records.chunks:
        index = ledger.runs.members.index(run.seq, chunk, classes)
        if index is not None:
            here = balances.places[chunk.rows] != ABSENT
            place, index = balances.places[chunk.rows][here], index[here]
            balances.booked_epsilon[place] += sign * booked[index]
            balances.booked_delta[place] += sign * np.where(index > 0, delta, 0)
