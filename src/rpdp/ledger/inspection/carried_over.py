"""What a record of a successor began with, in plain language."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpdp.ledger.store.chain import SUCCEED
from rpdp.ledger.store.fixed_point import EPSILON_SHIFT

if TYPE_CHECKING:
    from rpdp.ledger.inspection.account_chunks import Accounts
    from rpdp.ledger.ledger_base import LedgerBase
    from rpdp.ledger.store.record_store import Chunk


def carried_over(ledger: LedgerBase, chunk: Chunk, row: int, accounts: Accounts) -> tuple[str, ...]:
    """Say what was booked of a record in the ledger that was lost; nothing unless this one succeeds another."""
    return tuple(
        f"This ledger succeeds ledger {event.facts['predecessor']['ledger'][:12]}…, which was lost "
        f"({event.facts['reason']}). {_share(ledger, chunk, row, accounts)} of the record's lifetime budget is booked "
        f"for that: what the last export showed, and {since_the_export(event.facts['runs_since'])}."
        for event in ledger.chain.events(SUCCEED)
        if chunk.segment < event.seq
    )


def _share(ledger: LedgerBase, chunk: Chunk, row: int, accounts: Accounts) -> str:
    budget = float(accounts.lifetime()[0][row])
    begun = float(np.ldexp(float(ledger.records.carried(chunk)[0][row]), -EPSILON_SHIFT))
    return f"{begun / budget:.1%}" if budget > 0.0 else "All"


def since_the_export(runs: int | None) -> str:
    """Say what is booked for the time between the last export and the loss."""
    if runs is None:
        return "all that may have been spent since"
    return "nothing since" if runs == 0 else f"all that up to {runs} more runs may have spent since"
