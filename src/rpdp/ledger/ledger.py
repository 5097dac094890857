"""The durable account of a silo's records: one file, one writer, many readers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from rpdp.budgets import RecordBudgets
from rpdp.errors import BudgetError, InputError
from rpdp.ledger.account import Account, AccountStatus, Charge
from rpdp.ledger.past_standing import standing_before
from rpdp.ledger.progress_callback import silent
from rpdp.ledger.standing import Standing
from rpdp.ledger.stewardship.pruning import prune
from rpdp.ledger.stewardship.steward_actions import StewardActions
from rpdp.ledger.store import crash_points as points
from rpdp.ledger.store.creation import create_files, new_records
from rpdp.ledger.store.roster import ABSENT, Roster
from rpdp.ledger.store.run_book import now

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from numpy.typing import NDArray

    from rpdp.budgets import BudgetTable
    from rpdp.ledger.progress_callback import Progress
    from rpdp.ledger.stewardship.actions import Action
    from rpdp.ledger.stewardship.pruning import Updates
    from rpdp.ledger.stewardship.steward_keys import StewardPublicKey
    from rpdp.ledger.store.chain import PublicHead
    from rpdp.ledger.store.creation import Kind
    from rpdp.planning import SiloPlan


class Ledger(StewardActions, Account):
    """The `Account` that a hospital can answer for.

    Guarantee: when `reserve`, `charge` or `store` returns, what it did is on the disk; when it raises, nothing was
    done, or it is found done when the ledger is opened again. A round's coin is drawn once and committed with its
    charge. The reservations of a record never add up to more than the budget that was in force when they were made.

    Positions (`switched_off`) are those of the run last reserved or resumed; before any, of the table last looked at.

    >>> import tempfile, rpdp
    >>> path = tempfile.mkdtemp() + "/ledger.db"
    >>> budgets = rpdp.BudgetTable(["a", "b"], [1.0, 5.0])
    >>> with Ledger.create(path, budgets, kind="simulation", lifetime_delta=1e-3) as ledger:
    ...     ledger.left(budgets, 1e-3).epsilon
    array([1., 5.])
    """

    _standing: Standing | None = None
    _is_bound = False
    """Whether `_standing` is that of a run, which no look at another table may replace."""

    def _begin_writing(self) -> None:
        self._book_pending()
        self.inbox.clear(self._action_book.booked)

    @classmethod
    def create(
        cls,
        path: str | Path,
        budgets: BudgetTable,
        *,
        kind: Kind,
        lifetime_delta: float,
        steward: StewardPublicKey | None = None,
        progress: Progress = silent,
    ) -> Self:
        """Make a ledger and open it as its writer.

        Args:
            path: Where; nothing may be there.
            budgets: The records and their lifetime budgets.
            kind: "production" or "simulation", for ever.
            lifetime_delta: δ for records without one of their own, over all runs.
            steward: Whose signature can raise budgets; without it nobody can, ever.
            progress: Told how far the work is.
        """
        create_files(Path(path), budgets, kind=kind, lifetime_delta=lifetime_delta, steward=steward, progress=progress)
        ledger = cls(path, writable=True)
        ledger.standing(budgets.ids)
        return ledger

    @classmethod
    def open(cls, path: str | Path, *, acknowledged: PublicHead | None = None, vfs: str | None = None) -> Self:
        """Open as the writer. Refused at once while another process is; refused if the file was rolled back.

        Args:
            path: The ledger.
            acknowledged: The newest head that the server has; a ledger older than it is refused.
            vfs: Another file layer of SQLite, for fault injection.
        """
        return cls(path, writable=True, acknowledged=acknowledged, vfs=vfs)

    @classmethod
    def read(cls, path: str | Path, *, key: str | Path | None = None) -> Self:
        """Open for reading, also while another process writes. `key` says where the key is, for a copy elsewhere."""
        return cls(path, writable=False, key=key)

    def close(self) -> None:
        """Clear the inbox of what is booked, give the file back."""
        with self._turn:
            try:
                if self.is_writer:
                    self.inbox.clear(self._action_book.booked)
            finally:
                super().close()

    # The account of a silo

    def left(self, budgets: BudgetTable, lifetime_delta: float) -> RecordBudgets:
        """What is left of the smaller of each record's budget in force here and its budget in the table."""
        with self._turn:
            if self.is_writer:
                self._book_pending()
            return self.standing(budgets.ids).left(budgets.per_record(lifetime_delta))

    def reserve(
        self, run: str, plan: SiloPlan, rounds_to_join: tuple[int, ...] | None, progress: Progress = silent
    ) -> None:
        """Book the whole plan, in one transaction.

        Steward actions that arrive between `left` and here are booked after it: they hold from the first step on, and
        admission does not depend on them.
        """
        with self._turn:
            standing = self._bound(plan.ids)
            with self._writing():
                points.reached("reserve: begun")
                self.runs.reserve(run, plan, rounds_to_join, standing, progress)
            points.reached("reserve: committed")
            standing.book(plan)
            self._noted()
            self.database.shorten_log()

    def charge(self, run: str, number: int, coin: Callable[[], bool]) -> Charge:
        """Charge a round, with its coin, in one transaction; asked again, the same answer."""
        with self._turn:
            answered = self.runs.answered(run, number)
            if answered is not None:
                return answered
            pending = self.pending()
            with self._writing():
                points.reached("charge: begun")
                self._action_book.book(pending)
                charge = self.runs.charge(run, number, coin)
            points.reached("charge: committed")
            self._booked(pending)
            self._noted()
            points.reached("charge: head noted")
            return charge

    def store(self, run: str, number: int, payload: bytes) -> None:
        """Put a finished update into the outbox, in one transaction."""
        with self._turn:
            with self._writing():
                points.reached("store: begun")
                self.runs.store(run, number, payload)
            points.reached("store: committed")
            self._noted()

    def stored(self, run: str, number: int) -> bytes | None:
        """The update of a round, if it was finished."""
        with self._turn:
            return self.runs.stored(run, number)

    def switched_off(self) -> NDArray[np.int64]:
        """Positions of records that must not be drawn any more; hears of steward actions at once."""
        if self._standing is None:
            raise InputError("positions are those of a table: call left() with the silo's budgets first")
        return self._standing.off(self.pending())

    def status(self) -> AccountStatus:
        """All runs."""
        with self.reading():
            return AccountStatus(self.is_simulation, len(self.records), self.runs.status())

    def resume(self, run: str, ids: pa.ChunkedArray, allowed: RecordBudgets | None = None) -> SiloPlan:
        """The silo plan that was reserved for a run, in the order of these ids, to go on with it after a restart."""
        with self._turn:
            now_in_force = self._bound(ids)
            before = standing_before(self, self.runs.admission(run), now_in_force)
            left = before.left(allowed or RecordBudgets(before.epsilon, before.delta))
            return self.runs.plan(run, ids, now_in_force.places, left)

    def _bound(self, ids: pa.ChunkedArray) -> Standing:
        """The standing of the records of a run, which positions refer to from now on."""
        self._is_bound = False
        standing = self.standing(ids)
        self._is_bound = self.is_writer
        return standing

    def standing(self, ids: pa.ChunkedArray) -> Standing:
        """Where the records of a table stand; all of them must be known."""
        if self.is_writer and self._standing is not None and self._standing.roster.is_of(ids):
            return self._standing
        roster = Roster(self.key.records(ids), ids)
        with self.reading():
            places = self.records.places(roster)
            if int((places != ABSENT).sum()) != len(roster):
                raise BudgetError(_unknown(ids, places, len(self.records)))
            actions = self.booked_actions() if self.is_writer else self.actions()
            made = Standing(self.records, roster, places, actions)
        if not self._is_bound:
            self._standing = made
        return made

    # Server and stewards

    def acknowledge(self, head: PublicHead) -> None:
        """Keep a head that the server has acknowledged: from now on, an older ledger is refused."""
        with self._turn:
            self._require_writer()
            self.chain.require(head, self.id)
            self._noted(head)

    def add(self, budgets: BudgetTable, progress: Progress = silent) -> int:
        """Bring new records into the ledger; how many. None of them, nor their subjects, may be known already."""
        with self._turn:
            new = new_records(self.key, budgets, self.lifetime_delta, progress)
            self._require_unknown(budgets, Roster(new.hashes), None if new.subjects is None else Roster(new.subjects))
            with self._writing():
                facts = self.records.write(self.chain.seq + 1, new, progress)
                self.chain.append("add", {"at": now(), "records": facts})
            self.records.reload()
            if self._standing is not None:
                self._standing.extend(len(budgets))
            self._noted()
            self.database.shorten_log()
        return len(budgets)

    def prune(self, run: str | None = None, *, reason: str = "") -> list[Updates]:
        """Remove the updates of a run, or of all runs whose rounds were all announced, in one transaction.

        Releases stay in the chain; a round that is asked again is sat out.
        """
        with self._turn:
            with self._writing():
                points.reached("prune: begun")
                gone = prune(self.database, self.chain, self.runs, run, reason)
            points.reached("prune: committed")
            if gone:
                self._noted()
                self.database.shrink()
        return gone

    # Inside

    def _require_unknown(self, budgets: BudgetTable, roster: Roster, people: Roster | None) -> None:
        for chunk in self.records.chunks:
            known = roster.find(self.records.hashes(chunk))
            known = known[known != ABSENT]
            if known.size:
                raise BudgetError(
                    f"record {budgets.ids[int(known[0])].as_py()!r} is in the ledger already; leave it out, its "
                    "account stays. Its budget changes with `rpdp ledger lower` and `raise`"
                )
            held = self.records.subjects(chunk)
            if people is not None and held is not None and (people.find(held) != ABSENT).any():
                raise BudgetError(
                    "a subject of these records has records in the ledger already, over which its budget is split; "
                    "more records would stretch it. Lower the budgets of the old ones, and name a new subject"
                )

    def _book_pending(self) -> None:
        """Book what lies in the inbox."""
        pending = self.pending()
        if pending:
            with self._writing():
                self._action_book.book(pending)
                points.reached("actions: booked")
            self._booked(pending)
            self._noted()

    def _booked(self, actions: list[Action]) -> None:
        """Actions are committed: they count from here on as booked."""
        self._action_book.done(actions)
        if self._standing is not None and actions:
            self._standing.apply(actions)


def _unknown(ids: pa.ChunkedArray, places: NDArray[np.int32], records: int) -> str:
    known = np.zeros(len(ids), dtype=bool)
    known[places[places != ABSENT]] = True
    missing = np.flatnonzero(~known)
    first = ids[int(missing[0])].as_py()
    return (
        f"{missing.size:,} of {len(ids):,} records are not in the ledger of {records:,}, {first!r} first; add them "
        "with `rpdp ledger add`"
    )
