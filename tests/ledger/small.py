"""A small ledger that tests put together: a few records, a plan with real prices, rounds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import numpy as np

from rpdp import BudgetTable, PublicPlan, Schedule, SiloPlan
from rpdp.ledger import Ledger, StewardPublicKey
from rpdp.ledger.store.chain import Event, canonical, head_after
from rpdp.ledger.store.rollback import RollbackNotes
from rpdp.ledger.store.schema import LATER_TABLES
from rpdp.planning import Allowances, assign_allowed

if TYPE_CHECKING:
    import pyarrow as pa

LIFETIME_DELTA = 1e-2
DELTA = 1e-3


def heads() -> bool:
    return True


def tails() -> bool:
    return False


def budgets(count: int = 8, epsilon: float = 2.0) -> BudgetTable:
    """Records r0 … with ε and twice as much in turn."""
    return BudgetTable([f"r{number}" for number in range(count)], epsilon * (1.0 + np.arange(count) % 2))


def make(directory: Path, table: BudgetTable | None = None, *, steward: StewardPublicKey | None = None) -> Ledger:
    return Ledger.create(
        directory / "ledger.db",
        budgets() if table is None else table,
        kind="simulation",
        lifetime_delta=LIFETIME_DELTA,
        steward=steward,
    )


def public(rounds: int = 4, **changes: Any) -> PublicPlan:
    """Rényi prices: the fastest."""
    settings: dict[str, Any] = {"participation": 1.0}
    schedule = {name: changes.pop(name) for name in ("participations", "max_participations") if name in changes}
    if "participations" in schedule:
        settings = {}
    return PublicPlan(
        Schedule(rounds, 3, **settings, **schedule),
        **{
            "noise_multiplier": 2.0,
            "delta": DELTA,
            "clip_norm": 1.0,
            "normaliser": 10.0,
            "weights": 1.0,
            "accountant": "rdp",
            **changes,
        },
    )


def part(left: Allowances, share: float) -> Allowances:
    """A part of what is left, at the δ of the plan."""
    return replace(left, amount=left.amount * share, common_delta=None)


def plan(ledger: Ledger, table: BudgetTable, share: float = 0.25, **changes: Any) -> SiloPlan:
    """A certified plan for a part of what is left."""
    return assign_allowed(public(**changes), table.ids, part(ledger.left(table, LIFETIME_DELTA), share))


def by_hand(public_plan: PublicPlan, ids: pa.ChunkedArray, cost: Any, q: Any = 0.5) -> SiloPlan:
    """A plan that costs what it is told to."""
    count = len(ids)
    costs = np.broadcast_to(np.asarray(cost, dtype=np.float64), (count,)).copy()
    chances = np.broadcast_to(np.asarray(q, dtype=np.float64), (count,)).copy()
    return SiloPlan(
        public=public_plan,
        ids=ids,
        budget=costs.copy(),
        q=chances,
        cost=costs,
        active_rounds=np.full(count, public_plan.schedule.rounds, dtype=np.int32),
        status=np.zeros(count, dtype=np.uint8),
        estimator="by hand",
        facts={},
    )


def make_older(path: Path, file_format: int) -> None:
    """Take away the tables of later formats, and the number of today's."""
    connection = apsw.Connection(str(path))
    for since, tables in LATER_TABLES.items():
        for table in tables if since > file_format else ():
            connection.execute(f"DROP TABLE {table}")
    connection.execute(f"PRAGMA user_version={file_format}")
    connection.close()


def as_release_0_1(directory: Path, table: BudgetTable, join: list[int] | None, file_format: int = 1) -> None:
    """A ledger with one hold as release 0.1 wrote it: format 1, rounds drawn at admission, no expiry."""
    path = directory / "ledger.db"
    with make(directory, table) as ledger:
        changes = {} if join is None else {"participations": len(join)}
        ledger.reserve("run", plan(ledger, table, **changes), None)
        (event,) = ledger.chain.events("admit")
        created = next(ledger.chain.events("create"))
    make_older(path, file_format)
    with Ledger.read(path) as reader:
        members = reader.runs.members.digest(event.seq)
    kept = {name: value for name, value in event.facts.items() if name not in ("expires", "share")}
    payload = canonical(kept | {"join": join, "members": members})
    old = Event(event.seq, event.kind, event.run, 0, 0, payload, b"", None, None)
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE event SET payload = ?, head = ? WHERE seq = 2", (payload, head_after(created.head, old)))
    connection.close()
    with Ledger.read(path) as reader:
        reader.files.rollback_notes.unlink()
        notes = RollbackNotes(reader.files.rollback_notes, reader.id)
        notes.note(reader.chain)
        notes.close()
        assert reader.database.format == file_format
        assert reader.verify().findings == ()


def admitted(directory: Path, table: BudgetTable | None = None, **changes: Any) -> Ledger:
    """A ledger with one run, admitted and not begun."""
    given = budgets() if table is None else table
    ledger = make(directory, given)
    ledger.reserve("run", plan(ledger, given, **changes), None)
    return ledger
