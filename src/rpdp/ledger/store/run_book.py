"""The runs of a ledger: held once, then charged round by round and released through the outbox, or cancelled.

The caller of a method that writes opens the transaction; the result holds once that is committed.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from rpdp.errors import InputError, PlanError, PrivacyRefusal, Reason
from rpdp.ledger.account import Charge, RunStatus, joins_round, rounds_drawn
from rpdp.ledger.record_accounts import RecordAccounts
from rpdp.ledger.store import crash_points
from rpdp.ledger.store.chain import SUCCEED
from rpdp.ledger.store.holds import (
    Cancellation,
    expiry_stamp,
    has_passed,
    held_runs,
    refuse_cancelled,
    refuse_charged,
    return_booking,
    stamp,
)
from rpdp.ledger.store.sampling_classes import MemberStore, add_booking, classes_of, spread
from rpdp.ledger.store.schema import DAMAGED
from rpdp.planning import PublicPlan, SiloPlan, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from rpdp.ledger.account import Canceller, RunState
    from rpdp.ledger.balances import Balances
    from rpdp.ledger.progress_callback import Progress
    from rpdp.ledger.record_accounts import BookedFor
    from rpdp.ledger.store.chain import Chain, Event
    from rpdp.ledger.store.database import Database
    from rpdp.ledger.store.record_store import RecordStore
    from rpdp.ledger.store.sampling_classes import Classes
    from rpdp.planning import Allowance, Allowances


@dataclass(frozen=True)
class Admission:
    """A run as it was admitted.

    `rounds_to_join` is set in ledgers of release 0.1 only, where "exactly k" rounds were drawn at admission. `expires`
    is None for a hold that does not expire, as in those ledgers. `share` is the largest share of a lifetime budget that
    the run could take; None in ledgers of older formats, where it was all that was left.
    """

    seq: int
    run: str
    public: PublicPlan
    silo_plan: str
    estimator: str
    rounds_to_join: tuple[int, ...] | None
    classes: int
    drawn: int
    at: str
    expires: str | None
    share: float | None = None

    @classmethod
    def of(cls, event: Event) -> Admission:
        """Read an admission from its event."""
        facts = event.facts
        join = facts.get("join")
        return cls(
            event.seq,
            event.run,
            PublicPlan.from_json(json.dumps(facts["public_plan"])),
            facts["silo_plan"],
            facts["estimator"],
            None if join is None else tuple(join),
            facts["classes"],
            facts["drawn"],
            facts["at"],
            facts.get("expires"),
            facts.get("share"),
        )


@dataclass(frozen=True, eq=False)
class ReservedPlan(SiloPlan):
    """A silo plan as the ledger keeps it: probabilities, costs and rounds. `budget` is what was left at admission.

    It has the fingerprint of the plan that was admitted, so that a run is recognised after a restart.
    """

    admitted_as: str

    __repr__ = SiloPlan.__repr__

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the plan that was admitted."""
        return self.admitted_as

    def write(self, path: str | Path) -> None:
        """Write the plan as an ordinary silo plan, whose fingerprint is that of the file's contents."""
        SiloPlan(**{one.name: getattr(self, one.name) for one in fields(SiloPlan)}).write(path)


@dataclass
class _Progress:
    """The state of a run that a charge needs; its size does not depend on the number of records."""

    admission: Admission
    announced: int
    joined: int
    rounds_to_join: tuple[int, ...] | None


class RunBook:
    """All runs of one ledger."""

    def __init__(self, database: Database, chain: Chain, store: RecordStore) -> None:
        self._database = database
        self._chain = chain
        self._store = store
        self.members = MemberStore(database)
        self._progress: dict[str, _Progress] = {}

    def forget(self) -> None:
        """Forget the cached state of runs after a transaction was rolled back."""
        self._progress.clear()

    def admissions(self) -> list[Admission]:
        """Return all runs in order of admission."""
        return [Admission.of(event) for event in self._chain.events("admit")]

    def booked(self) -> list[Admission]:
        """Return the runs whose reservations count, in order of admission: all but those that were cancelled."""
        return [admission for admission in self.admissions() if self.cancellation(admission.run) is None]

    def admission(self, run: str) -> Admission:
        """Return the admission of one run; refused if the run was cancelled."""
        return self._of(run).admission

    def reserve(
        self,
        run: str,
        plan: SiloPlan,
        expires: float | None,
        allowance: Allowance,
        balances: Balances,
        progress: Progress,
    ) -> None:
        """Hold a plan for all of its records, within the run's allowance of each."""
        cancelled = self.cancellation(run)
        if cancelled is not None:
            raise refuse_cancelled(run, cancelled.state)
        if self._database.rows("SELECT 1 FROM event WHERE run = ? AND run <> '' AND kind = 'admit'", (run,)):
            raise PrivacyRefusal(
                f"run {run!r} was admitted before; a run is reserved only once. Give a new run a new id"
            )
        if not run:
            raise InputError("run='' is empty: a run needs a name")
        if any(run in event.facts["runs"] for event in self._chain.events(SUCCEED)):
            raise PrivacyRefusal(
                f"run {run!r} was admitted in the ledger that was lost; its coins and updates are lost with it, so it "
                "never continues. Give a new run a new id",
                Reason.CANCELLED,
            )
        self._require_own_totals()
        balances.require(plan, allowance, self.booked_for(allowance, balances))
        seq = self._chain.seq + 1
        classes, index = classes_of(plan)
        self.members.write_classes(seq, classes)
        booked, booked_delta = classes.booked, classes.booked_delta
        for chunk in self._store.chunks:
            here = spread(balances.places[chunk.rows], index)
            if here.any():
                self.members.write(seq, chunk, here.astype(classes.index_type))
                before, delta_before = self._store.totals(chunk)
                self._store.write_totals(chunk, before + booked[here], delta_before + booked_delta[here])
            progress("booking", chunk.rows.stop, len(self._store))
        facts = {
            "at": now(),
            "public_plan": json.loads(plan.public.to_json()),
            "silo_plan": plan.fingerprint,
            "estimator": plan.estimator,
            "expires": expiry_stamp(expires),
            "share": allowance.share,
            "classes": len(classes),
            "drawn": int((plan.q > 0.0).sum()),
            "members": self.members.digest(seq),
            "totals": self._store.totals_digest(),
        }
        self._chain.append("admit", facts, run=run)
        crash_points.reached("reserve: booked")

    def booked_for(self, allowance: Allowance, balances: Balances, without: Collection[str] = ()) -> BookedFor:
        """Return what runs for the purposes that have reserved shares have booked, in the order of these balances."""
        found = {}
        for purpose in allowance.kept_for_others:
            amount, delta = np.zeros(len(balances), dtype=np.int64), np.zeros(len(balances), dtype=np.int64)
            for admission in self.booked():
                if admission.public.purpose == purpose and admission.run not in without:
                    add_booking(self._store, self.members, admission, balances.places, amount, delta)
            found[purpose] = amount, delta
        return found

    def accounts_without(self, runs: Collection[str], balances: Balances) -> RecordAccounts:
        """Return a copy of these accounts as if some runs had booked nothing. Nothing may be booked from it."""
        copy = RecordAccounts(balances.epsilon, balances.delta, balances.order, terms=balances.terms)
        copy.withdrawn = balances.withdrawn
        copy.booked, copy.booked_delta = balances.booked.copy(), balances.booked_delta.copy()
        for run in runs:
            admission = self.admission(run)
            add_booking(self._store, self.members, admission, balances.places, copy.booked, copy.booked_delta, sign=-1)
        return copy

    def charge(
        self,
        run: str,
        number: int,
        coin: Callable[[], bool],
        rounds_to_join: Callable[[], tuple[int, ...]] | None,
        moment: float,
    ) -> Charge:
        """Charge a round together with its coin, once. The first charge commits the run, unless its hold has expired.

        `moment` is the silo's clock.
        """
        progress = self._now(run)
        self._require_planned(progress, number)
        # Rounds up to the last announced one are over, including those that were missed: no second coin for them.
        if number <= progress.announced:
            return Charge(number, self._has_joined(run, number), is_new=False)
        schedule = progress.admission.public.schedule
        facts: dict[str, object] = {"at": stamp(moment), "missed": number - progress.announced - 1}
        if progress.announced == 0:
            # Checked again here, inside the transaction: what is charged must still be held.
            if has_passed(progress.admission.expires, moment):
                raise refuse_cancelled(run, "expired")
            if progress.rounds_to_join is None:
                progress.rounds_to_join = rounds_drawn(schedule, rounds_to_join)
            if progress.rounds_to_join != progress.admission.rounds_to_join:
                facts["join"] = progress.rounds_to_join
        joined = joins_round(schedule, number, progress.joined, progress.rounds_to_join, coin)
        crash_points.reached("charge: coin drawn")
        self._chain.append("charge", facts, run=run, number=number, joined=joined)
        crash_points.reached("charge: marked")
        progress.announced = number
        progress.joined += joined
        return Charge(number, joined, is_new=True)

    def cancellation(self, run: str) -> Cancellation | None:
        """Return how a run was cancelled; None if it was not."""
        return next((Cancellation.of(event) for event in self._chain.events("cancel", run=run)), None)

    def cancel(self, run: str, by: Canceller, reason: str, moment: float, actor: str | None = None) -> None:
        """Cancel a run that is held and return all of it. `actor` is the steward, if it was one."""
        progress = self._now(run)
        if progress.announced:
            raise refuse_charged(run, progress.announced)
        self._require_own_totals()
        return_booking(self._store, self.members, progress.admission)
        facts = {
            "at": stamp(moment),
            "by": by,
            "reason": reason,
            "totals": self._store.totals_digest(),
            **({} if actor is None else {"actor": actor}),
        }
        self._chain.append("cancel", facts, run=run)
        del self._progress[run]
        crash_points.reached("cancel: booked")

    def _require_own_totals(self) -> None:
        """Refuse totals that are not those of the last event that changed them.

        While a ledger is open, a copy may be put back over its file: the events are in memory, the totals are not.
        """
        query = "SELECT payload FROM event WHERE kind IN ('admit', 'cancel', 'succeed') ORDER BY seq DESC LIMIT 1"
        for (payload,) in self._database.rows(query):
            if json.loads(payload)["totals"] != self._store.totals_digest():
                raise PrivacyRefusal(
                    "the totals are not those of the last reservation or cancellation: the file was changed while it "
                    f"was open; {DAMAGED}"
                )

    def held(self) -> list[Admission]:
        """Return the runs that are held."""
        return [self._of(run).admission for run in held_runs(self._database)]

    def expired(self, moment: float) -> list[str]:
        """Return the held runs whose expiry has passed."""
        return [admission.run for admission in self.held() if has_passed(admission.expires, moment)]

    def answered(self, run: str, number: int) -> Charge | None:
        """Return the answer to a round that was charged before; None if it can still be charged."""
        progress = self._of(run)
        self._require_planned(progress, number)
        if number > progress.announced:
            return None
        return Charge(number, self._has_joined(run, number), is_new=False)

    def store(self, run: str, number: int, payload: bytes) -> None:
        """Put a finished update into the outbox."""
        self._of(run)
        if not self._has_joined(run, number) or self._has_released(run, number):
            raise PrivacyRefusal(f"round {number} of run {run!r} was not joined, or its update is already stored")
        facts = {"at": now(), "sha256": hashlib.sha256(payload).hexdigest(), "bytes": len(payload)}
        seq = self._chain.append("release", facts, run=run, number=number)
        self._database.rows("INSERT INTO outbox VALUES(?, ?)", (seq, payload))
        crash_points.reached("store: written")

    def stored(self, run: str, number: int) -> bytes | None:
        """Return the update of a round if it was finished and not removed since."""
        self._of(run)
        query = (
            "SELECT outbox.payload FROM event JOIN outbox USING(seq) "
            "WHERE run = ? AND run <> '' AND kind = 'release' AND round = ?"
        )
        for (payload,) in self._database.rows(query, (run, number)):
            return bytes(payload)
        return None

    def status(self) -> tuple[RunStatus, ...]:
        """Return the status of every run."""
        return tuple(self.status_of(admission) for admission in self.admissions())

    def status_of(self, admission: Admission) -> RunStatus:
        """Return the status of one run."""
        query = "SELECT round FROM event WHERE run = ? AND run <> '' AND kind = ? AND joined >= ? ORDER BY round"
        rounds = {
            (kind, least): tuple(number for (number,) in self._database.rows(query, (admission.run, kind, least)))
            for kind, least in (("charge", 0), ("charge", 1), ("release", 0))
        }
        announced = max(rounds["charge", 0], default=0)
        cancelled = self.cancellation(admission.run)
        state: RunState = "committed" if announced else "held"
        return RunStatus(
            admission.run,
            admission.silo_plan,
            admission.public.schedule.rounds,
            announced,
            rounds["charge", 1],
            rounds["release", 0],
            state if cancelled is None else cancelled.state,
            admission.expires,
        )

    def plan(self, run: str, ids: pa.ChunkedArray, places: NDArray[np.int32], allowed: Allowances) -> SiloPlan:
        """Return the silo plan reserved for a run, in the order of these ids, to continue the run after a restart.

        `allowed` is what these records had left when the plan was made.
        """
        admission = self._of(run).admission
        classes = self.members.of(admission)
        # Records that are not in the table have place −1 and so land in the spare last element.
        index = np.zeros(len(ids) + 1, dtype=np.int64)
        for chunk in self._store.chunks:
            here = self.members.index(admission.seq, chunk, classes)
            if here is not None:
                index[places[chunk.rows]] = here
        index = index[:-1]
        if int((index > 0).sum()) != admission.drawn:
            raise PlanError(
                f"run {run!r} was admitted with {admission.drawn:,} records that can be drawn, but only "
                f"{int((index > 0).sum()):,} of them are in this table. Use the table that it was admitted with"
            )
        return _plan_of(admission, ids, classes, index, allowed)

    def _of(self, run: str) -> _Progress:
        if run not in self._progress:
            found = list(self._chain.events("admit", run=run))
            if not found:
                raise PrivacyRefusal(f"run {run!r} was never admitted; nothing is reserved for it", Reason.RUN)
            cancelled = self.cancellation(run)
            if cancelled is not None:
                raise refuse_cancelled(run, cancelled.state)
            query = "SELECT max(round), total(joined) FROM event WHERE run = ? AND run <> '' AND kind = 'charge'"
            announced, joined = self._database.rows(query, (run,))[0]
            admission = Admission.of(found[0])
            to_join = admission.rounds_to_join or self._drawn_rounds(run)
            self._progress[run] = _Progress(admission, announced or 0, int(joined), to_join)
        return self._progress[run]

    def _now(self, run: str) -> _Progress:
        """Read how far a run is; if it may still be held, from the file: that is decided inside the transaction."""
        if run in self._progress and self._progress[run].announced == 0:
            del self._progress[run]
        return self._of(run)

    def _drawn_rounds(self, run: str) -> tuple[int, ...] | None:
        """Return the rounds that were drawn with the first charge; None if each round has its own coin, or none yet."""
        query = "SELECT payload FROM event WHERE run = ? AND run <> '' AND kind = 'charge' ORDER BY round LIMIT 1"
        for (payload,) in self._database.rows(query, (run,)):
            drawn = json.loads(payload).get("join")
            return None if drawn is None else tuple(drawn)
        return None

    def _require_planned(self, progress: _Progress, number: int) -> None:
        rounds = progress.admission.public.schedule.rounds
        if not 1 <= number <= rounds:
            raise PrivacyRefusal(
                f"round {number} of run {progress.admission.run!r} is not one of the {rounds} that were admitted"
            )

    def _has_joined(self, run: str, number: int) -> bool:
        """Return the outcome of a round's coin. A round that was never announced was not joined."""
        query = "SELECT joined FROM event WHERE run = ? AND run <> '' AND kind = 'charge' AND round = ?"
        return any(joined for (joined,) in self._database.rows(query, (run, number)))

    def _has_released(self, run: str, number: int) -> bool:
        """Return whether a round was released, even if its update was removed since."""
        query = "SELECT 1 FROM event WHERE run = ? AND run <> '' AND kind = 'release' AND round = ?"
        return bool(self._database.rows(query, (run, number)))


def now() -> str:
    """Return the current time as events state it."""
    return datetime.now(UTC).isoformat("T", "seconds")


def _plan_of(
    admission: Admission, ids: pa.ChunkedArray, classes: Classes, index: NDArray[np.int64], allowed: Allowances
) -> SiloPlan:
    q, cost = classes.q[index], classes.cost[index]
    status = np.full(len(ids), Status.SAMPLED, dtype=np.uint8)
    status[q >= 1.0] = Status.ALWAYS
    status[q <= 0.0] = Status.BUDGET_TOO_SMALL
    status[(q <= 0.0) & (allowed.order == 0) & (allowed.delta <= 0.0)] = Status.DELTA_TOO_SMALL
    return ReservedPlan(
        public=admission.public,
        ids=ids,
        epsilon=allowed.lifetime,
        budget=np.maximum(allowed.amount, cost),  # lower budgets in today's table do not undo what was reserved
        q=q,
        cost=cost,
        delta=classes.delta[index],
        order=allowed.order,
        active_rounds=classes.active[index],
        status=status,
        estimator=admission.estimator,
        facts={},
        admitted_as=admission.silo_plan,
    )
