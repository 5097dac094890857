"""One process's end: the ledger that it has open, and the commands on it. Runs in forked processes only."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import apsw
import numpy as np

from rpdp import BudgetTable
from rpdp.errors import RpdpError
from rpdp.ledger import Ledger, PublicHead, StewardKey
from rpdp.ledger.store import crash_points
from tests.ledger import small
from tests.ledger.machine.model import DELTA, ROUNDS
from tests.ledger.machine.processes import ERROR, INTERRUPTED, OK, REFUSED

if TYPE_CHECKING:
    from tests.ledger.machine.processes import Trouble

PLAN = small.public(ROUNDS, delta=DELTA)
UNLIMITED = 100.0
"""What the silo's own table allows: never less than the ledger."""


class Interrupted(KeyboardInterrupt):
    """The exception that strikes at a labelled point."""


class Clock:
    """The wall clock of this process: every way to read it is off by the same time, for good."""

    def __init__(self) -> None:
        self.offset = 0.0
        real_time, real_ns = time.time, time.time_ns
        clock = self

        class Stepped(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> Stepped:
                true = datetime.now(tz) + timedelta(seconds=clock.offset)
                return cls.fromisoformat(true.isoformat())

        setattr(time, "time", lambda: real_time() + clock.offset)  # noqa: B010
        setattr(time, "time_ns", lambda: real_ns() + int(clock.offset * 1e9))  # noqa: B010
        self._stepped = Stepped

    def cover(self) -> None:
        """Replace the clock in every module of the product that is loaded by now."""
        for name, module in list(sys.modules.items()):
            if name.startswith("rpdp.") and getattr(module, "datetime", None) is datetime:
                setattr(module, "datetime", self._stepped)  # noqa: B010


class Session:
    """A process: at most one ledger open for writing."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ledger: Ledger | None = None
        self._bound = ""

    def run(self, command: str, arguments: tuple[Any, ...], clock: float, trouble: Trouble | None) -> tuple[str, Any]:
        """Run a command; return how it ended, and its result or message."""
        self._clock.offset = clock
        setattr(crash_points, "reached", _struck_by(trouble))  # noqa: B010
        try:
            return OK, getattr(self, f"do_{command}")(*arguments)
        except Interrupted:
            return INTERRUPTED, None
        except RpdpError as error:
            return REFUSED, f"{type(error).__name__}: {error}"
        except Exception:
            return ERROR, traceback.format_exc()

    @property
    def _open(self) -> Ledger:
        assert self._ledger is not None
        return self._ledger

    def do_create(self, directory: str, budgets: dict[str, float], subjects: dict[str, str]) -> None:
        place = Path(directory)
        key = StewardKey()
        key.write(place / "steward.key")
        people = [subjects.get(one, one) for one in budgets]
        table = BudgetTable(list(budgets), list(budgets.values()), subjects=people)
        Ledger.create(
            place / "ledger.db",
            table,
            kind="production",
            lifetime_delta=small.LIFETIME_DELTA,
            account="sums",
            steward=key.public,
        ).close()

    def do_open(self, path: str, acknowledged: tuple[str, int, str] | None) -> None:
        head = None if acknowledged is None else PublicHead(*acknowledged)
        self._bound = ""
        self._ledger = Ledger.open(path, acknowledged=head)

    def do_close(self) -> None:
        ledger, self._ledger = self._open, None
        ledger.close()

    def do_left(self, ids: list[str]) -> tuple[dict[str, float], dict[str, float]]:
        left = self._open.left(_table(ids), small.LIFETIME_DELTA)
        assert left.delta is not None
        return dict(zip(ids, left.epsilon.tolist(), strict=True)), dict(zip(ids, left.delta.tolist(), strict=True))

    def do_reserve(self, run: str, costs: dict[str, float], lasts: float | None = None) -> None:
        """Reserve a plan; without a charge its hold ends after this many seconds."""
        cost = np.array(list(costs.values()))
        plan = small.by_hand(PLAN, _table(list(costs)).ids, cost, np.where(cost > 0.0, 0.5, 0.0))
        self._open.reserve(run, plan, None if lasts is None else time.time() + lasts)
        self._bound = run

    def do_charge(self, run: str, ids: list[str], number: int, coin: bool) -> tuple[bool, bool, set[str]]:
        """As after a restart: the run is resumed first, if this process has not gone on with it before."""
        if run != self._bound:
            self._open.resume(run, _table(ids).ids)
            self._bound = run
        charge = self._open.charge(run, number, lambda: coin)
        off = {ids[position] for position in self._open.switched_off(run)}
        return charge.joined, charge.is_new, off

    def do_cancel(self, run: str, by: Literal["server", "steward"]) -> None:
        self._open.cancel(run, by=by)

    def do_store(self, run: str, number: int, payload: bytes) -> None:
        self._open.store(run, number, payload)

    def do_stored(self, run: str, number: int) -> bytes | None:
        return self._open.stored(run, number)

    def do_prune(self, run: str | None) -> list[str]:
        return [updates.run for updates in self._open.prune(run)]

    def do_add(self, budgets: dict[str, float]) -> None:
        table = BudgetTable(list(budgets), list(budgets.values()), subjects=list(budgets))
        self._open.add(table)
        self._bound = ""

    def do_head(self) -> tuple[str, int, str]:
        head = self._open.public_head()
        return head.ledger, head.count, head.head

    def do_acknowledge(self, head: tuple[str, int, str]) -> None:
        self._open.acknowledge(PublicHead(*head))

    def do_act(self, path: str, kind: str, record: str, epsilon: float) -> None:
        """A steward's action: through the open ledger if there is one, as any reader otherwise."""
        ledger = Ledger.read(path) if self._ledger is None else self._ledger
        try:
            key = StewardKey.read(Path(path).parent / "steward.key")
            if kind == "withdraw":
                ledger.withdraw([record])
            elif kind == "reconsent":
                ledger.reconsent([record], key=key, reason="a new form")
            elif kind == "lower":
                ledger.lower_budgets([record], epsilon)
            else:
                ledger.raise_budgets([record], epsilon, key=key, reason="a new form")
        finally:
            if self._ledger is None:
                ledger.close()

    def do_events(self, path: str) -> list[tuple[Any, ...]] | str:
        """The events in the file, read by SQL alone; a text if SQLite cannot read it."""
        columns = "seq, kind, run, round, joined, payload, head, public_count, public_head"
        try:
            connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
            try:
                return connection.execute(f"SELECT {columns} FROM event ORDER BY seq").fetchall()  # noqa: S608
            finally:
                connection.close()
        except apsw.Error as error:
            return f"{type(error).__name__}: {error}"

    def do_inspect(self, path: str, ids: list[str]) -> tuple[dict[str, tuple[float, int, float, int, bool]], list[str]]:
        """The accounts of all records as a reader sees them, and what `verify` finds."""
        with Ledger.read(path) as ledger:
            found = ledger.balances(_table(ids).ids)
            columns = (found.epsilon, found.booked, found.delta, found.booked_delta, found.withdrawn)
            accounts = dict(zip(ids, zip(*(column.tolist() for column in columns), strict=True), strict=True))
            return accounts, [f"{one.check}: {one.problem}" for one in ledger.verify().findings]


def _table(ids: list[str]) -> BudgetTable:
    return BudgetTable(ids, [UNLIMITED] * len(ids))


def _struck_by(trouble: Trouble | None) -> Any:
    def reached(label: str) -> None:
        if trouble is None or label != trouble.label:
            return
        if trouble.is_crash:
            os.kill(os.getpid(), signal.SIGKILL)
        raise Interrupted

    return reached
