"""What asks for a steward's attention, in sentences: what `rpdp silo status` says, and what only the accounts tell."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rpdp.federation.handshake import duration
from rpdp.ledger.inspection.use_over_time import group_name

if TYPE_CHECKING:
    from rpdp.deployment.agent.agent_status import SiloStatus
    from rpdp.ledger import Ledger
    from rpdp.ledger.inspection.use_over_time import UseOverTime

DAY = 86400.0
OVERDUE = 30 * DAY
"""Seconds after which a ledger should be verified again."""

_SOON = 3600.0


def verification_age(found: dict[str, Any], now: float) -> float:
    """How many seconds ago a ledger was verified."""
    return max(0.0, now - _seconds(found["at"]))


def attention(status: SiloStatus, use: UseOverTime, ledger: Ledger, results: dict[str, Any]) -> list[str]:
    """Everything that a steward should look at."""
    return [
        *([] if status.is_answering else ["no agent answers: the silo takes no part in any run"]),
        *status.attention,
        *_exhausted(use),
        *_ending_holds(status),
        *_old_head(ledger, status.now),
        *_unverified(results.get("verify"), status.now),
    ]


def _exhausted(use: UseOverTime) -> list[str]:
    found = []
    for number, (records, exhausted, off) in enumerate(zip(use.in_group, use.exhausted, use.off, strict=True)):
        able = records - off
        if able and exhausted == able:
            found.append(f"the group {group_name(number)} is used up: nothing is left of any of its {able:,} records")
    return found


def _ending_holds(status: SiloStatus) -> list[str]:
    found = []
    for hold in status.holds:
        left = None if hold.expires is None else _seconds(hold.expires) - status.now
        if hold.has_expired:
            found.append(f"the hold of run {hold.run} has ended; the next writer of the ledger returns what it held")
        elif left is not None and left < _SOON:
            found.append(f"the hold of run {hold.run} ends in {duration(max(left, 0.0))}, unless its first round comes")
    return found


def _old_head(ledger: Ledger, now: float) -> list[str]:
    """Public events of more than a day ago that no server has acknowledged: going back would go unnoticed there."""
    kept = ledger.acknowledged
    query = "SELECT payload FROM event WHERE public_count > ? AND kind <> 'succeed' ORDER BY public_count LIMIT 1"
    with ledger.reading():
        count = ledger.chain.public_count
        rows = ledger.database.rows(query, (0 if kept is None else kept.count,))
    if not rows:
        return []
    at = json.loads(rows[0][0]).get("at")
    if at is None or now - _seconds(at) < DAY:
        return []
    behind = count - (0 if kept is None else kept.count)
    age = duration(now - _seconds(at))
    return [
        f"no server has acknowledged the last {behind:,} public events, the first of them of {age} ago: see "
        "rpdp ledger head --acknowledge"
    ]


def _unverified(found: dict[str, Any] | None, now: float) -> list[str]:
    if found is None:
        return ["this ledger was never verified here: see Verify"]
    age = verification_age(found, now)
    if not found["good"]:
        return [f"the verification of {found['at'][:10]} found {len(found['findings']):,} discrepancies: see Verify"]
    return [f"this ledger was last verified {duration(age)} ago: see Verify"] if age > OVERDUE else []


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
