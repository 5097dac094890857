"""All that stewards did, for a page and for a spreadsheet."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rpdp.ledger.stewardship.actions import KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rpdp.ledger import Ledger

_KINDS = (*KINDS, "add", "enrol")


@dataclass(frozen=True)
class ListedAction:
    """An action as it stands in the chain, or in the inbox."""

    at: str
    kind: str
    records: int
    actor: str
    reason: str
    is_booked: bool


def listed_actions(ledger: Ledger) -> list[ListedAction]:
    """All steward actions, booked and waiting, the latest first."""
    with ledger.reading():
        booked = [(event.kind, event.facts) for event in ledger.chain.events(*_KINDS)]
        waiting = ledger.pending()
    found = [
        ListedAction(
            facts.get("at", ""),
            kind,
            int(facts.get("records", facts.get("count", 0))),
            facts.get("actor") or "",
            facts.get("reason") or "",
            is_booked=True,
        )
        for kind, facts in booked
    ]
    found += [
        ListedAction(one.at, one.kind, len(one.hashes), one.actor or "", one.reason, is_booked=False) for one in waiting
    ]
    return found[::-1]


def as_csv(actions: Sequence[ListedAction]) -> str:
    """The same as a table for a spreadsheet."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["time", "action", "records", "actor", "reason", "booked"])
    for one in actions:
        row = (one.at, one.kind, str(one.records), one.actor, one.reason, "yes" if one.is_booked else "no")
        writer.writerow([spreadsheet_cell(cell) for cell in row])
    return text.getvalue()


def spreadsheet_cell(cell: str) -> str:
    """A cell that no spreadsheet takes for a formula."""
    is_formula = cell.lstrip().startswith(("=", "+", "-", "@")) or cell.startswith(("\t", "\r", "\n"))
    return f"'{cell}" if is_formula else cell
