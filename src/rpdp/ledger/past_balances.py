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
    """Return the balances before an admission, without its own booking and everything booked later."""
    earlier = Balances(ledger.records, now.roster, now.places, ledger.booked_actions(before=admission.seq))
    for later in ledger.runs.admissions():
        if later.seq < admission.seq:
            continue
        classes = ledger.runs.members.classes(later.seq, later.classes)
        booked, delta = classes.booked, rounded_up(np.full(1, later.public.delta), DELTA_SHIFT)[0]
        for chunk in ledger.records.chunks:
            index = ledger.runs.members.index(later.seq, chunk, classes)
            if index is not None:
                here = now.places[chunk.rows] != ABSENT
                place, index = now.places[chunk.rows][here], index[here]
                earlier.booked_epsilon[place] -= booked[index]
                earlier.booked_delta[place] -= np.where(index > 0, delta, 0)
    return earlier
