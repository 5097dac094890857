"""The runs of a ledger: reserved once, charged round by round, released through the outbox.

Every method that writes works inside a transaction of the caller; what it says holds when that is committed.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from rpdp.errors import InputError, PlanError, PrivacyRefusal
from rpdp.ledger.account import Charge, RunStatus, joins_round
from rpdp.ledger.store import crash_points as points
from rpdp.ledger.store.sampling_classes import MemberStore, classes_of, spread
from rpdp.ledger.store.units import DELTA_SHIFT, DELTA_TOLERANCE, rounded_up
from rpdp.planning import PublicPlan, SiloPlan, Status

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from rpdp.budgets import RecordBudgets
    from rpdp.ledger.progress_callback import Progress
    from rpdp.ledger.standing import Standing
    from rpdp.ledger.store.chain import Chain, Event
    from rpdp.ledger.store.database import Database
    from rpdp.ledger.store.record_store import RecordStore
    from rpdp.ledger.store.sampling_classes import Classes


@dataclass(frozen=True)
class Admission:
    """A run as it was admitted."""

    seq: int
    run: str
    public: PublicPlan
    silo_plan: str
    estimator: str
    rounds_to_join: tuple[int, ...] | None
    classes: int
    drawn: int
    at: str

    @classmethod
    def of(cls, event: Event) -> Admission:
        """From its event."""
        facts = event.facts
        join = facts["join"]
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
        )


@dataclass(frozen=True, eq=False)
class ReservedPlan(SiloPlan):
    """A silo plan as the ledger keeps it: probabilities, costs and rounds; `budget` is what was left at admission.

    It goes by the fingerprint of the plan that was admitted, so that a run knows itself again after a restart.
    """

    admitted_as: str

    __repr__ = SiloPlan.__repr__

    @property
    def fingerprint(self) -> str:
        """Of the plan that was admitted."""
        return self.admitted_as

    def write(self, path: str | Path) -> None:
        """As a plan of its own: a file goes by the fingerprint of what is in it."""
        SiloPlan(**{one.name: getattr(self, one.name) for one in fields(SiloPlan)}).write(path)


@dataclass
class _Progress:
    """How far a run is, as far as a charge needs to know: the same size whatever the number of records."""

    admission: Admission
    announced: int
    joined: int


class RunBook:
    """All runs of one ledger."""

    def __init__(self, database: Database, chain: Chain, store: RecordStore) -> None:
        self._database = database
        self._chain = chain
        self._store = store
        self.members = MemberStore(database)
        self._progress: dict[str, _Progress] = {}

    def forget(self) -> None:
        """A transaction was undone: what is known of runs is read again."""
        self._progress.clear()

    def admissions(self) -> list[Admission]:
        """All runs in the order of their admission."""
        return [Admission.of(event) for event in self._chain.events("admit")]

    def admission(self, run: str) -> Admission:
        """One run."""
        return self._of(run).admission

    def reserve(
        self, run: str, plan: SiloPlan, join: tuple[int, ...] | None, standing: Standing, progress: Progress
    ) -> None:
        """Book a plan for all of its records."""
        if self._database.rows("SELECT 1 FROM event WHERE run = ? AND run <> '' AND kind = 'admit'", (run,)):
            raise PrivacyRefusal(f"run {run!r} was admitted before; a run is reserved once")
        if not run:
            raise InputError("a run needs a name")
        _require_join(plan.public, join)
        standing.require(plan)
        seq = self._chain.seq + 1
        classes, index = classes_of(plan)
        self.members.write_classes(seq, classes)
        delta = rounded_up(np.full(1, plan.public.delta), DELTA_SHIFT)[0]
        booked = classes.booked
        for chunk in self._store.chunks:
            here = spread(standing.places[chunk.rows], index)
            if here.any():
                self.members.write(seq, chunk, here.astype(classes.index_type))
                epsilon_before, delta_before = self._store.totals(chunk)
                self._store.write_totals(
                    chunk, epsilon_before + booked[here], delta_before + np.where(here > 0, delta, 0)
                )
            progress("booking", chunk.rows.stop, len(self._store))
        facts = {
            "at": now(),
            "public_plan": json.loads(plan.public.to_json()),
            "silo_plan": plan.fingerprint,
            "estimator": plan.estimator,
            "join": None if join is None else list(join),
            "classes": len(classes),
            "drawn": int((plan.q > 0.0).sum()),
            "members": self.members.digest(seq),
            "totals": self._store.totals_digest(),
        }
        assert self._chain.append("admit", facts, run=run) == seq
        points.reached("reserve: booked")

    def charge(self, run: str, number: int, coin: Callable[[], bool]) -> Charge:
        """Charge a round, once, with its coin."""
        progress = self._of(run)
        self._require_planned(progress, number)
        if number <= progress.announced:
            return Charge(number, self._has_joined(run, number), is_new=False)
        admission = progress.admission
        schedule, to_join = admission.public.schedule, admission.rounds_to_join
        joined = joins_round(schedule, number, progress.joined, to_join, coin)
        points.reached("charge: coin drawn")
        facts = {"at": now(), "missed": number - progress.announced - 1}
        self._chain.append("charge", facts, run=run, number=number, joined=joined)
        points.reached("charge: marked")
        progress.announced = number
        progress.joined += joined
        return Charge(number, joined, is_new=True)

    def answered(self, run: str, number: int) -> Charge | None:
        """The answer to a round that was charged before; None if it was not, and may be."""
        progress = self._of(run)
        self._require_planned(progress, number)
        if number > progress.announced:
            return None
        return Charge(number, self._has_joined(run, number), is_new=False)

    def store(self, run: str, number: int, payload: bytes) -> None:
        """Put a finished update into the outbox."""
        self._of(run)
        if not self._has_joined(run, number) or self._has_released(run, number):
            raise PrivacyRefusal(f"round {number} of run {run!r} was not joined, or its update is there already")
        facts = {"at": now(), "sha256": hashlib.sha256(payload).hexdigest(), "bytes": len(payload)}
        seq = self._chain.append("release", facts, run=run, number=number)
        self._database.rows("INSERT INTO outbox VALUES(?, ?)", (seq, payload))
        points.reached("store: written")

    def stored(self, run: str, number: int) -> bytes | None:
        """The update of a round, if it was finished and not removed since."""
        self._of(run)
        query = (
            "SELECT outbox.payload FROM event JOIN outbox USING(seq) "
            "WHERE run = ? AND run <> '' AND kind = 'release' AND round = ?"
        )
        for (payload,) in self._database.rows(query, (run, number)):
            return bytes(payload)
        return None

    def status(self) -> tuple[RunStatus, ...]:
        """Where every run stands."""
        return tuple(self.status_of(admission) for admission in self.admissions())

    def status_of(self, admission: Admission) -> RunStatus:
        """Where one run stands."""
        query = "SELECT round FROM event WHERE run = ? AND run <> '' AND kind = ? AND joined >= ? ORDER BY round"
        rounds = {
            (kind, least): tuple(number for (number,) in self._database.rows(query, (admission.run, kind, least)))
            for kind, least in (("charge", 0), ("charge", 1), ("release", 0))
        }
        announced = max(rounds["charge", 0], default=0)
        return RunStatus(
            admission.run,
            admission.silo_plan,
            admission.public.schedule.rounds,
            announced,
            rounds["charge", 1],
            rounds["release", 0],
        )

    def plan(self, run: str, ids: pa.ChunkedArray, places: NDArray[np.int32], left: RecordBudgets) -> SiloPlan:
        """The silo plan that was reserved, in the order of these ids: to go on with a run after a restart.

        `left` is what these records had left when it was made.
        """
        admission = self._of(run).admission
        classes = self.members.classes(admission.seq, admission.classes)
        index = np.zeros(len(ids) + 1, dtype=np.int64)  # records that are not in the table go to the spare place
        for chunk in self._store.chunks:
            here = self.members.index(admission.seq, chunk, classes)
            if here is not None:
                index[places[chunk.rows]] = here
        index = index[:-1]
        if int((index > 0).sum()) != admission.drawn:
            raise PlanError(
                f"run {run!r} was admitted with {admission.drawn:,} records that can be drawn; only "
                f"{int((index > 0).sum()):,} of them are in this table. Go on with the table it was admitted with"
            )
        return _plan_of(admission, ids, classes, index, left)

    def _of(self, run: str) -> _Progress:
        if run not in self._progress:
            found = list(self._chain.events("admit", run=run))
            if not found:
                raise PrivacyRefusal(f"run {run!r} was never admitted; there is nothing reserved for it")
            query = "SELECT max(round), total(joined) FROM event WHERE run = ? AND run <> '' AND kind = 'charge'"
            announced, joined = self._database.rows(query, (run,))[0]
            self._progress[run] = _Progress(Admission.of(found[0]), announced or 0, int(joined))
        return self._progress[run]

    def _require_planned(self, progress: _Progress, number: int) -> None:
        rounds = progress.admission.public.schedule.rounds
        if not 1 <= number <= rounds:
            raise PrivacyRefusal(
                f"round {number} of run {progress.admission.run!r} is not one of the {rounds} that were admitted"
            )

    def _has_joined(self, run: str, number: int) -> bool:
        """What the coin of a round said; rounds that were never announced were not joined."""
        query = "SELECT joined FROM event WHERE run = ? AND run <> '' AND kind = 'charge' AND round = ?"
        return any(joined for (joined,) in self._database.rows(query, (run, number)))

    def _has_released(self, run: str, number: int) -> bool:
        """Whether a round was released, also if its update was removed since."""
        query = "SELECT 1 FROM event WHERE run = ? AND run <> '' AND kind = 'release' AND round = ?"
        return bool(self._database.rows(query, (run, number)))


def now() -> str:
    """The time for an event."""
    return datetime.now(UTC).isoformat("T", "seconds")


def _require_join(public: PublicPlan, join: tuple[int, ...] | None) -> None:
    wanted = public.schedule.participations
    if (wanted is None) != (join is None):
        raise PlanError(f"rounds_to_join={join} does not go with {public.schedule.describe()}")
    if join is not None and (len(set(join)) != wanted or not set(join) <= set(range(1, public.schedule.rounds + 1))):
        raise PlanError(f"rounds_to_join={join} are not {wanted} different rounds of {public.schedule.rounds}")


def _plan_of(
    admission: Admission, ids: pa.ChunkedArray, classes: Classes, index: NDArray[np.int64], left: RecordBudgets
) -> SiloPlan:
    assert left.delta is not None
    q, cost = classes.q[index], classes.cost[index]
    status = np.full(len(ids), Status.SAMPLED, dtype=np.uint8)
    status[q >= 1.0] = Status.ALWAYS
    status[q <= 0.0] = Status.BUDGET_TOO_SMALL
    status[(q <= 0.0) & (left.delta < admission.public.delta * (1.0 - DELTA_TOLERANCE))] = Status.DELTA_TOO_SMALL
    return ReservedPlan(
        public=admission.public,
        ids=ids,
        budget=np.maximum(left.epsilon, cost),  # a table with lower budgets than at admission takes nothing back
        q=q,
        cost=cost,
        active_rounds=classes.active[index],
        status=status,
        estimator=admission.estimator,
        facts={},
        admitted_as=admission.silo_plan,
    )
