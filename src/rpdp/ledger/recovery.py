"""A successor of a lost ledger, in which everything that may have been spent is booked.

It is made from the last export, the budget file, and the heads that servers keep. Nobody knows what was booked after
the export, so the worst is taken (privacy.md, rules 9 and 10: what may have been released counts as spent):

| what | is booked as |
|---|---|
| what the export shows as booked, held runs included | exactly that, in units |
| each run that the policy allowed since: `max_runs`, less those that had begun | `max_share_per_run` of ε and δ, or ρ |
| if these limits are not stated, or come to a whole budget | the whole lifetime budget |
| a record that is not in the export | its whole lifetime budget |
| a sum account that may have been enrolled as a Rényi account before one of these runs | its whole lifetime budget |

A Rényi account has no δ for each run: what a share of B shows and the rest of the sums together exceed (ε, δ).
A record never has more booked than its lifetime budget or what the export shows, because the lost ledger allowed no
more. Budgets in force are the smaller of export and file; what may have been spent is computed from the larger. The
order of a Rényi account stays. Who had withdrawn stays withdrawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rpdp.checks import require_count, require_fraction
from rpdp.display import counts_repr
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.ledger.last_export import LastExport
from rpdp.ledger.progress_callback import silent
from rpdp.ledger.record_accounts import lifetime_budgets
from rpdp.ledger.stewardship.actors import checked_actor, checked_reason
from rpdp.ledger.store.chain import PublicHead
from rpdp.ledger.store.creation import Inheritance, NewLedger, create_files
from rpdp.ledger.store.fixed_point import DELTA_SHIFT, DELTA_TOLERANCE, EPSILON_SHIFT, rounded_up
from rpdp.ledger.store.record_keys import RecordKey
from rpdp.ledger.store.record_store import NewRecords
from rpdp.ledger.store.roster import ABSENT, Roster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rpdp.budgets import BudgetTable
    from rpdp.ledger.progress_callback import Progress
    from rpdp.ledger.store.fixed_point import FloatArray, UnitArray
    from rpdp.ledger.store.roster import Hashes


@dataclass(frozen=True)
class LostLimits:
    """What the silo's policy allowed at most between the export and the loss; without it, everything.

    Attributes:
        max_runs: The largest number of runs in all.
        max_share_per_run: The largest share of a lifetime budget that one run could take.
    """

    max_runs: int
    max_share_per_run: float

    def __post_init__(self) -> None:
        require_count("max_runs", self.max_runs, least=0)
        require_fraction("max_share_per_run", self.max_share_per_run)


def recover(
    path: str | Path,
    budgets: BudgetTable,
    *,
    export: str | Path,
    key: str | Path,
    heads: Sequence[PublicHead],
    limits: LostLimits | None,
    reason: str,
    actor: str | None = None,
    progress: Progress = silent,
) -> None:
    """Create the successor of a lost ledger. It is complete or absent when this returns or raises.

    Args:
        path: The file to create; it must not exist.
        budgets: The records and the budgets that they allow, as in force when the ledger was lost.
        export: The last export of the lost ledger, as JSON with hashes.
        key: The key of the lost ledger's record ids.
        heads: The heads of the lost ledger that servers keep; at least one.
        limits: What may have happened since the export; None books everything.
        reason: What happened to the ledger; kept in the successor, like the actor.
        actor: Who makes the successor; by default the user of this process.
        progress: Called as the work advances.
    """
    last = LastExport.read(export)
    record_key = RecordKey.read(Path(key))
    if record_key.check != last.key_check:
        raise InputError(f"{key} is not the key of ledger {last.ledger[:12]}…, of which {export} is an export")
    predecessor = _latest_head(last, heads)
    people = _people(last, record_key, budgets)
    since = None if limits is None else max(limits.max_runs - last.committed, 0)
    share = None if limits is None else limits.max_share_per_run
    booked, booked_delta = _may_be_spent(last, people, since, share)
    facts: dict[str, Any] = {
        "actor": checked_actor(actor),
        "reason": checked_reason("recover", reason, is_needed=True),
        "export": {"sha256": last.sha256, "events": len(last.events)},
        "runs": last.runs,
        "runs_since": since,
        "share": share,
    }
    inheritance = Inheritance(predecessor, facts, booked, booked_delta, people.withdrawn)
    new = NewLedger(last.kind, last.terms, last.steward, lambda _: people.records, record_key, inheritance)
    create_files(Path(path), new, progress)


def _latest_head(last: LastExport, heads: Sequence[PublicHead]) -> PublicHead:
    """Return the latest head of the lost ledger that anybody knows; refused if they contradict each other."""
    if not heads:
        raise PrivacyRefusal("no server's head is given, so an export that is too old could not be told; give heads")
    for head in heads:
        last.require_history(head)
    if len({(head.count, head.head) for head in heads}) > len({head.count for head in heads}):
        raise PrivacyRefusal("two servers keep different heads of the same public event: one is of another history")
    own = PublicHead(last.ledger, len(last.public_heads) - 1, last.public_heads[-1].hex())
    return max([own, *heads], key=lambda head: head.count)


@dataclass(frozen=True, eq=False)
class _People:
    """The records of the successor: those of the export in its order, then those that are in the budget file alone.

    `most` holds the largest ε and δ that the lost ledger may have known of each.
    """

    records: NewRecords
    most: tuple[FloatArray, FloatArray]
    withdrawn: NDArray[np.bool_]

    __repr__ = counts_repr


def _people(last: LastExport, key: RecordKey, budgets: BudgetTable) -> _People:
    allowed = last.terms.per_record(budgets)
    assert allowed.delta is not None
    hashes = key.records(budgets.ids)
    place = Roster(last.hashes).find(hashes)
    known, fresh = place[place != ABSENT], place == ABSENT
    least, most = (last.epsilon.copy(), last.delta.copy()), (last.epsilon.copy(), last.delta.copy())
    for column, stated in enumerate((allowed.epsilon, allowed.delta)):
        here = stated[~fresh]
        least[column][known] = np.minimum(least[column][known], here)
        most[column][known] = np.maximum(most[column][known], here)
    order = np.append(last.order, last.terms.orders(allowed)[fresh])
    subjects = None if budgets.subjects is None else key.subjects(budgets.subjects)
    records = NewRecords(
        np.concatenate([last.hashes, hashes[fresh]]),
        np.append(least[0], allowed.epsilon[fresh]),
        np.append(least[1], allowed.delta[fresh]),
        order,
        _subjects(last, hashes[fresh], None if subjects is None else subjects[fresh]),
    )
    widest = np.append(most[0], allowed.epsilon[fresh]), np.append(most[1], allowed.delta[fresh])
    return _People(records, widest, np.append(last.withdrawn, np.zeros(int(fresh.sum()), dtype=bool)))


def _subjects(last: LastExport, fresh: Hashes, of_fresh: Hashes | None) -> Hashes | None:
    """Return whose records they are; a record without a subject is a person of its own, named by its own hash."""
    if last.subjects is None and of_fresh is None:
        return None
    named = last.hashes if last.subjects is None else last.subjects
    return np.concatenate([named, fresh if of_fresh is None else of_fresh])


def _may_be_spent(
    last: LastExport, people: _People, since: int | None, share: float | None
) -> tuple[UnitArray, UnitArray]:
    """Return the most that may be booked of each record, in units of ε or ρ, and of δ."""
    fresh = len(people.records.hashes) - len(last)
    is_whole = np.append(_may_be_renyi_by_now(last) & (since != 0), np.ones(fresh, dtype=bool))
    whole, whole_delta = lifetime_budgets(*people.most, people.records.order, last.terms)
    found = []
    for amount, shown, shift in (
        (whole, last.booked, EPSILON_SHIFT),
        (np.minimum(whole_delta * (1.0 + 2.0 * DELTA_TOLERANCE), 1.0), last.booked_delta, DELTA_SHIFT),
    ):
        begun = np.append(shown, np.zeros(fresh, dtype=np.int64))
        room = np.maximum(rounded_up(amount, shift) - begun, 0)
        if since is not None and share is not None and since * share < 1.0:
            later = since * (rounded_up(share * amount, shift) + 1)
            room = np.where(is_whole, room, np.minimum(room, later))
        found.append(begun + room)
    return found[0], found[1]


def _may_be_renyi_by_now(last: LastExport) -> NDArray[np.bool_]:
    """Which sum accounts of the export can have been enrolled anew since: whose bookings, if any, could be returned."""
    may_be_free = np.full(len(last), last.holds > 0) | ((last.booked == 0) & (last.booked_delta == 0))
    # Where a person may have accounts in several silos nothing is ever enrolled anew.
    found: NDArray[np.bool_] = may_be_free & (last.order == 0) & (last.terms.silos_per_person == 1)
    return found
