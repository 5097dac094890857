"""Removing the updates of runs that are over: a steward's action, in the chain as a private event.

An update stays in the outbox so that its round, asked again, gets the same bytes. When nobody will ask any more it only
takes space: a model for every joined round. What is removed is the update alone. Its release stays in the chain, with
the hash of the bytes, and in the public head; a round that is asked again is sat out, and never trained again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rpdp.errors import InputError
from rpdp.ledger.store import crash_points as points
from rpdp.ledger.store.run_book import now

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rpdp.ledger.store.chain import Chain, Event
    from rpdp.ledger.store.database import Database
    from rpdp.ledger.store.run_book import RunBook

KIND = "prune"


@dataclass(frozen=True)
class Updates:
    """Updates of one run that are in the outbox, or were."""

    run: str
    count: int
    bytes: int


def updates_kept(database: Database) -> list[Updates]:
    """The runs that have updates in the outbox."""
    found = "SELECT run, count(*), total(length(outbox.payload)) FROM outbox JOIN event USING(seq)"
    query = f"{found} GROUP BY run ORDER BY run"
    return [Updates(run, count, int(size)) for run, count, size in database.rows(query)]


def prune(database: Database, chain: Chain, runs: RunBook, run: str | None, reason: str) -> list[Updates]:
    """Remove the updates of a run, or of all runs whose rounds were all announced; in a transaction of the caller."""
    status = {one.run: one for one in runs.status()}
    if run is not None and run not in status:
        raise InputError(f"run {run!r} is not in this ledger (there are: {', '.join(status) or 'none'})")
    over = {one.run for one in status.values() if one.announced >= one.rounds} if run is None else {run}
    gone = [one for one in updates_kept(database) if one.run in over]
    for one in gone:
        facts = {"at": now(), "run": one.run, "updates": one.count, "bytes": one.bytes, "reason": reason}
        chain.append(KIND, facts)
        database.rows(
            "DELETE FROM outbox WHERE seq IN (SELECT seq FROM event WHERE run = ? AND run <> '' AND kind = 'release')",
            (one.run,),
        )
        points.reached("prune: written")
    return gone


def replay_prunings(events: Iterable[Event]) -> tuple[set[int], list[str]]:
    """The releases whose updates are gone, from releases and removals in their order; and what is wrong with those."""
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
                problems.append(f"event {event.seq} removed other updates of run {facts['run']!r} than there were")
    return gone, problems
