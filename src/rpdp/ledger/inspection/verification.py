"""Verifying a ledger: everything is recomputed from the raw events, and every discrepancy is listed.

There are seven checks, none of which relies on the result of another:

1. *file*: SQLite's own integrity check; tables and indexes are exactly those of a ledger.
2. *chain*: every head, public and private, from the first event on; the latest state noted beside the ledger.
3. *bulk*: an event states the hash of every row outside the chain; no row is left over, and none is missing except
   updates that a later event removed.
4. *rounds* (`replay`): rounds are in order, coins follow the plan, and only joined rounds were released; a run is
   committed by its first charge or cancelled without any.
5. *accounts* (`replay`): the budget in force and the sum of all bookings of every record, from segments, memberships
   and steward actions; no reservation exceeds the budget in force at that moment; the totals equal these sums exactly.
6. *persons* (`sharing_replay`): records that were added to a known person got no more than was left of the person.
7. *prices* (`repricing`): what each run booked for each sampling probability, computed again by the accountants from
   the public settings of its plan, and compared with what an attacker can prove.

Any changed byte that changes what a ledger says is found. A change that is not found (in free pages, in the unused part
of a page) has no effect on anything that is read.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rpdp.errors import RpdpError
from rpdp.ledger.inspection.replay import replay_accounts, replay_rounds
from rpdp.ledger.inspection.repricing import reprice
from rpdp.ledger.inspection.sharing_replay import replay_sharing
from rpdp.ledger.stewardship.actions import KINDS as ACTION_KINDS
from rpdp.ledger.stewardship.pruning import KIND as PRUNE
from rpdp.ledger.stewardship.pruning import replay_prunings
from rpdp.ledger.store.chain import GENESIS, PUBLIC_KINDS, SUCCEED, head_after, kinds_for, public_head_after
from rpdp.ledger.store.database import expected_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rpdp.ledger.ledger_base import LedgerBase
    from rpdp.ledger.progress_callback import Progress
    from rpdp.ledger.store.chain import Event


@dataclass(frozen=True)
class Discrepancy:
    """One thing that a check found wrong."""

    check: str
    problem: str


@dataclass(frozen=True)
class Verification:
    """What was checked, and everything that was found wrong."""

    events: int
    records: int
    runs: int
    findings: tuple[Discrepancy, ...]

    @property
    def is_good(self) -> bool:
        """Whether nothing was found."""
        return not self.findings


def verify(ledger: LedgerBase, notes: list[dict[str, Any]], progress: Progress) -> Verification:
    """Run all checks. A check that cannot finish is a finding, too.

    `notes` are the notes of the latest state, which must have been read before the events.
    """
    checks: dict[str, Callable[[], Iterator[str]]] = {
        **_contents(ledger, notes, progress),
        "rounds": lambda: replay_rounds(ledger),
        "accounts": lambda: replay_accounts(ledger, progress),
        "persons": lambda: replay_sharing(ledger),
        "prices": lambda: reprice(ledger, progress),
    }
    findings = _all_collected(checks)
    runs = sum(1 for _ in ledger.database.each("SELECT 1 FROM event WHERE kind = 'admit'"))
    return Verification(ledger.chain.seq, len(ledger.records), runs, tuple(findings))


def check_contents(ledger: LedgerBase, progress: Progress) -> list[Discrepancy]:
    """Check that every row is the one that the chain states, without computing any account or price again."""
    return _all_collected(_contents(ledger, None, progress))


def _contents(
    ledger: LedgerBase, notes: list[dict[str, Any]] | None, progress: Progress
) -> dict[str, Callable[[], Iterator[str]]]:
    return {
        "file": lambda: _file(ledger),
        "chain": lambda: _chain(ledger, notes, progress),
        "bulk": lambda: _bulk(ledger, progress),
    }


def _all_collected(checks: dict[str, Callable[[], Iterator[str]]]) -> list[Discrepancy]:
    return [finding for name, check in checks.items() for finding in _collected(name, check)]


def _collected(name: str, check: Callable[[], Iterator[str]]) -> list[Discrepancy]:
    found = []
    try:
        found += [Discrepancy(name, problem) for problem in check()]
    except RpdpError as error:
        found.append(Discrepancy(name, str(error)))
    except Exception as error:  # a damaged file can make anything fail, and each failure is a finding
        found.append(Discrepancy(name, f"the check failed: {type(error).__name__}: {error}"))
    return found


def _file(ledger: LedgerBase) -> Iterator[str]:
    for (line,) in ledger.database.rows("PRAGMA integrity_check"):
        if line != "ok":
            yield str(line)
    different = ledger.database.schema() ^ expected_schema(ledger.database.format)
    if different:
        names = sorted({name.decode("utf-8", "replace") for _, name, _, _ in different})
        yield f"tables or indexes are not those of a ledger: {', '.join(names)}"


def _chain(ledger: LedgerBase, notes: list[dict[str, Any]] | None, progress: Progress) -> Iterator[str]:
    head, public_head, public_count = GENESIS, GENESIS, 0
    for expected, event in enumerate(ledger.chain.events(), start=1):
        if event.seq != expected or event.kind not in kinds_for(event.run):
            yield f"event {event.seq} ({event.kind}) is in the place of event {expected}"
            return
        if (event.kind == "create") != (event.seq == 1):
            yield f"event {event.seq} is of kind {event.kind}, but exactly the first event must be of kind create"
        if event.kind == SUCCEED and event.seq != 2:
            yield f"event {event.seq} succeeds another ledger, but only the second event of a new ledger can"
        head = head_after(head, event)
        if event.head != head:
            yield f"event {event.seq} ({event.kind}) was changed: its head differs from the computed one"
            return
        if event.kind in PUBLIC_KINDS:
            public_count, public_head = public_count + 1, public_head_after(public_head, event)
        stated = (event.public_count, event.public_head)
        if stated != ((public_count, public_head) if event.kind in PUBLIC_KINDS else (None, None)):
            yield f"event {event.seq} ({event.kind}): its public head differs from the computed one"
            return
        progress("checking events", event.seq, ledger.chain.seq)
    if notes is not None:
        ledger.require_newest(notes)


def _bulk(ledger: LedgerBase, progress: Progress) -> Iterator[str]:
    named: set[tuple[str, int]] = set()
    totals = None
    pruned, problems = replay_prunings(ledger.chain.events("release", PRUNE))
    yield from problems
    for event in ledger.chain.events():
        if event.seq in pruned:
            continue
        for table in _TABLES_OF.get(event.kind, ("change",)):
            named.add((table, event.seq))
        problem = _bulk_of(ledger, event)
        if problem is not None:
            yield problem
        if event.kind in ("admit", "cancel", SUCCEED):
            totals = event.facts["totals"]
        progress("checking contents", event.seq, ledger.chain.seq)
    if totals is not None and ledger.records.totals_digest() != totals:
        yield "the totals are not those of the last reservation or cancellation"
    yield from _left_over(ledger, named, has_totals=totals is not None)


_TABLES_OF = {
    "create": ("segment", "enrolment"),
    "add": ("segment", "enrolment"),
    "enrol": ("enrolment",),
    SUCCEED: ("carried",),
    "admit": ("class", "class_account", "member"),
    "charge": (),
    "cancel": (),
    "release": ("outbox",),
    "prune": (),
}
"""The tables that hold the rows of each kind of event; those of steward actions are in `change`."""


def _bulk_of(ledger: LedgerBase, event: Event) -> str | None:
    """Return the problem if the rows of an event do not match the hash that it states."""
    facts = event.facts
    if event.kind in ("create", "add"):
        records = facts["records"]
        same = ledger.records.digest(event.seq) == records["sha256"]
        same &= _has_orders(ledger, event.seq, records.get("orders"))
        return None if same else f"the records of event {event.seq} are not those that it added"
    if event.kind == "enrol":
        same = _has_orders(ledger, event.seq, facts["orders"])
        return None if same else f"the accounts of event {event.seq} are not those that it enrolled"
    if event.kind == SUCCEED:
        same = ledger.records.carried_digest(event.seq) == facts["carried"]
        return None if same else "what the records began with is not what was carried over from the lost ledger"
    if event.kind == "admit":
        same = ledger.runs.members.digest(event.seq) == facts["members"]
        return None if same else f"the members of run {event.run!r} are not those that were admitted"
    if event.kind == "release":
        same = _hash_in(ledger, "outbox", "payload", event.seq) == facts["sha256"]
        return None if same else f"the update of round {event.round} of run {event.run!r} is not the released one"
    if event.kind in ACTION_KINDS:
        same = _hash_in(ledger, "change", "body", event.seq) == facts["sha256"]
        return None if same else f"the steward action of event {event.seq} is not the one that was booked"
    return None


def _has_orders(ledger: LedgerBase, seq: int, stated: str | None) -> bool:
    """Return whether the orders of an event are those that it states; an event that states none has none."""
    if not ledger.database.has("enrolment"):
        return stated is None
    rows = ledger.database.rows("SELECT 1 FROM enrolment WHERE seq = ? LIMIT 1", (seq,))
    return ledger.records.orders_digest(seq) == stated if rows else stated is None


def _hash_in(ledger: LedgerBase, table: str, column: str, seq: int) -> str | None:
    for (blob,) in ledger.database.each(f"SELECT {column} FROM {table} WHERE seq = ?", (seq,)):  # noqa: S608
        return hashlib.sha256(blob).hexdigest()
    return None


def _left_over(ledger: LedgerBase, named: set[tuple[str, int]], *, has_totals: bool) -> Iterator[str]:
    for table in ("segment", "enrolment", "carried", "class", "class_account", "member", "change", "outbox"):
        if not ledger.database.has(table):
            continue
        for (seq,) in ledger.database.rows(f"SELECT DISTINCT seq FROM {table}"):  # noqa: S608
            if (table, seq) not in named:
                yield f"table {table} has rows for event {seq}, which does not state them"
    actions = {event.seq: event.facts["action"] for event in ledger.chain.events(*ACTION_KINDS)}
    if dict(ledger.database.rows("SELECT seq, action FROM change")) != actions:
        yield "the names of steward actions differ from those in the chain"
    if not has_totals and ledger.database.rows("SELECT 1 FROM total LIMIT 1"):
        yield "there are totals, but no run was admitted"
