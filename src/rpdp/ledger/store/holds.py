"""Holds: what a run reserved before its first round, how a hold ends, and how it is given back exactly.

A reservation is first *held*: the accounts count it as taken. The first charged round *commits* it, for good. A run of
which no round was ever charged has drawn no coin and released nothing, so it may be *cancelled*, by the server, by the
steward or by its expiry, and everything is returned (privacy.md, rule 10 and section 8). A cancelled run never returns.

Expiry compares the silo's own wall clock, but no order rests on it. A hold counts as free only once its end is booked
as an event. A clock that ran fast has then given back a hold that was never charged; a clock that steps back does not
revive it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rpdp.errors import PrivacyRefusal, Reason
from rpdp.ledger.store.schema import DAMAGED

if TYPE_CHECKING:
    from rpdp.ledger.account import Canceller, RunState
    from rpdp.ledger.store.chain import Event
    from rpdp.ledger.store.database import Database
    from rpdp.ledger.store.record_store import RecordStore
    from rpdp.ledger.store.run_book import Admission
    from rpdp.ledger.store.sampling_classes import MemberStore


@dataclass(frozen=True)
class Cancellation:
    """The end of a hold.

    Attributes:
        seq: Its event.
        run: The run.
        by: The server, the steward, or the expiry of the hold.
        reason: The public reason that the steward gave; "" if there is none.
        at: When it was booked.
        actor: The steward, as the silo knows them; never public.
    """

    seq: int
    run: str
    by: Canceller
    reason: str
    at: str
    actor: str | None = None

    @classmethod
    def of(cls, event: Event) -> Cancellation:
        """Read a cancellation from its event."""
        facts = event.facts
        return cls(event.seq, event.run, facts["by"], facts["reason"], facts["at"], facts.get("actor"))

    @property
    def state(self) -> RunState:
        """The state of the run that it ended."""
        return "expired" if self.by == "expiry" else "cancelled"

    @property
    def is_covered(self) -> bool:
        """Whether the promise covers it. A steward may have looked at who sits out, so it needs a public reason."""
        return self.by != "steward" or bool(self.reason)


def stamp(moment: float) -> str:
    """Return a moment of the wall clock as events state it."""
    return datetime.fromtimestamp(moment, UTC).isoformat("T", "seconds")


def expiry_stamp(expires: float | None) -> str | None:
    """Return the expiry of a hold as its event states it, in whole seconds; None if the hold does not expire."""
    return None if expires is None else stamp(math.ceil(expires))


def has_passed(expires: str | None, moment: float) -> bool:
    """Whether a hold that expires then has expired at this moment of the silo's clock."""
    return expires is not None and datetime.fromisoformat(expires).timestamp() <= moment


def refuse_cancelled(run: str, state: RunState) -> PrivacyRefusal:
    """Return the refusal of anything that is asked of a run whose hold has ended."""
    return PrivacyRefusal(
        f"run {run!r} was {'cancelled' if state == 'cancelled' else 'held and has expired'} before its first round; "
        "nothing is reserved for it, and its id never returns. Give a new run a new id",
        Reason.CANCELLED,
    )


def refuse_charged(run: str, announced: int) -> PrivacyRefusal:
    """Return the refusal to cancel a run that has begun."""
    return PrivacyRefusal(
        f"run {run!r} cannot be cancelled: {announced} of its rounds are charged, and from the first charged round on "
        "what a run reserved is spent",
        Reason.CHARGED,
    )


def uncovered_note(silo: str, run: str) -> str:
    """Return what a report says about a run that a steward cancelled without a public reason."""
    return (
        f"not covered: the steward of silo {silo} cancelled run {run!r} before its first round, without a public "
        "reason; what that choice reveals about records is outside the promise"
    )


def held_runs(database: Database) -> list[str]:
    """Return the runs that are held: admitted, never charged and not cancelled."""
    query = (
        "SELECT run FROM event AS admitted WHERE kind = 'admit' AND NOT EXISTS(SELECT 1 FROM event WHERE event.run = "
        "admitted.run AND event.run <> '' AND event.kind IN ('charge', 'cancel')) ORDER BY seq"
    )
    return [run for (run,) in database.rows(query)]


def return_booking(store: RecordStore, members: MemberStore, admission: Admission) -> None:
    """Subtract from every total exactly what a hold added to it, in whole units. The caller opens the transaction."""
    classes = members.of(admission)
    booked, delta = classes.booked, classes.booked_delta
    for chunk in store.chunks:
        index = members.index(admission.seq, chunk, classes)
        if index is None:
            continue
        epsilon_before, delta_before = store.totals(chunk)
        epsilon = epsilon_before - booked[index]
        deltas = delta_before - delta[index]
        if (epsilon < 0).any() or (deltas < 0).any():
            raise PrivacyRefusal(
                f"the ledger is damaged: less is booked in chunk {chunk.key} than run {admission.run!r} holds; "
                f"{DAMAGED}"
            )
        store.write_totals(chunk, epsilon, deltas)
