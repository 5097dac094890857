"""Removing the updates of finished runs: an action of the steward, recorded in the chain as a private event.

An update stays in the outbox so that a repeated announcement of its round gets the same bytes. Once the run is over it
only takes space: a whole model for every joined round. Only the update is removed. Its release stays in the chain, with
the hash of the bytes, and in the public head. If its round is announced again, the silo sits it out and never trains it
again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rpdp.errors import InputError
from rpdp.ledger.store import crash_points
from rpdp.ledger.store.run_book import now

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rpdp.ledger.store.chain import Chain, Event
    from rpdp.ledger.store.database import Database
    from rpdp.ledger.store.run_book import RunBook

KIND = "prune"


@dataclass(frozen=True)
class Updates:
    """The updates of one run that are, or were, in the outbox."""

    run: str
    count: int
    bytes: int


def updates_kept(database: Database) -> list[Updates]:
    """Return the updates in the outbox, by run."""
    found = "SELECT run, count(*), total(length(outbox.payload)) FROM outbox JOIN event USING(seq)"
    query = f"{found} GROUP BY run ORDER BY run"
    return [Updates(run, count, int(size)) for run, count, size in database.rows(query)]


def prune(database: Database, chain: Chain, runs: RunBook, run: str | None, reason: str, actor: str) -> list[Updates]:
    """Remove the updates of a run, or of every run that was fully announced. The caller opens the transaction."""
    status = {one.run: one for one in runs.status()}
    if run is not None and run not in status:
        raise InputError(f"run {run!r} is not in this ledger (its runs: {', '.join(status) or 'none'})")
    over = {one.run for one in status.values() if one.announced >= one.rounds} if run is None else {run}
    gone = [one for one in updates_kept(database) if one.run in over]
    for one in gone:
        facts = {
            "at": now(),
            "run": one.run,
            "updates": one.count,
            "bytes": one.bytes,
            "reason": reason,
            "actor": actor,
        }
        chain.append(KIND, facts)
        database.rows(
            "DELETE FROM outbox WHERE seq IN (SELECT seq FROM event WHERE run = ? AND run <> '' AND kind = 'release')",
            (one.run,),
        )
        crash_points.reached("prune: written")
    return gone


def replay_prunings(events: Iterable[Event]) -> tuple[set[int], list[str]]:
    """Replay releases and removals in order; return the releases whose updates are gone, and all discrepancies."""
    kept: dict[str, dict[int, int]] = {}
    gone: set[int] = set()
    problems = []
    for event in events:
        facts = event.facts
        if event.kind == "release":
            kept.setdefault(event.run, {})[event.seq] = facts["bytes"]
        elif event.kind == KIND:
            removed = kept.pop(facts["run"], {})
            gone.update(removed)
            if (len(removed), sum(removed.values())) != (facts["updates"], facts["bytes"]):
                problems.append(f"event {event.seq} does not state the updates of run {facts['run']!r} that it removed")
    return gone, problems
