"""The durable account of a silo's records: one file, one writer, many readers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from rpdp.errors import InputError, PrivacyRefusal, Reason
from rpdp.ledger.account import AccountStatus, Charge
from rpdp.ledger.account_terms import AccountTerms
from rpdp.ledger.past_balances import balances_before
from rpdp.ledger.progress_callback import silent
from rpdp.ledger.silo_accounts import SiloAccounts
from rpdp.ledger.stewardship.bookings import StewardBookings
from rpdp.ledger.stewardship.sharing import stated_parts
from rpdp.ledger.store import crash_points
from rpdp.ledger.store.creation import NewLedger, create_files, new_records
from rpdp.planning import WHOLE, Allowance

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from rpdp.budgets import AccountKind, BudgetTable, RecordBudgets
    from rpdp.ledger.balances import Balances
    from rpdp.ledger.progress_callback import Progress
    from rpdp.ledger.record_accounts import BookedFor
    from rpdp.ledger.stewardship.steward_keys import StewardPublicKey
    from rpdp.ledger.store.chain import PublicHead
    from rpdp.ledger.store.creation import Kind
    from rpdp.planning import Allowances, SiloPlan


class Ledger(StewardBookings):
    """A durable `Account`: every answer survives a crash.

    Guarantee: when `reserve`, `charge` or `store` returns, its effect is on disk. When it raises, either nothing was
    done, or the effect is there when the ledger is opened again. A round's coin is drawn once and committed with its
    charge. The reservations of a record never add up to more than the budget that was in force when they were made.

    Positions (`switched_off`) refer to the table of the run last reserved or resumed; before that, to the table last
    passed to `create` or `left`.

    >>> import tempfile, rpdp
    >>> path = tempfile.mkdtemp() + "/ledger.db"
    >>> budgets = rpdp.BudgetTable(["a", "b"], [1.0, 5.0])
    >>> with Ledger.create(path, budgets, kind="simulation", lifetime_delta=1e-3) as ledger:
    ...     ledger.left(budgets, 1e-3).epsilon
    array([1., 5.])
    """

    def _begin_writing(self) -> None:
        self._require_own_format()
        self._book_pending()
        self.expire()
        self.inbox.clear(self._action_book.booked)

    @classmethod
    def create(
        cls,
        path: str | Path,
        budgets: BudgetTable,
        *,
        kind: Kind,
        lifetime_delta: float,
        account: AccountKind | None = None,
        silos_per_person: int = 1,
        steward: StewardPublicKey | None = None,
        progress: Progress = silent,
    ) -> Self:
        """Create a ledger and open it as its writer.

        Args:
            path: The file to create; it must not exist.
            budgets: The records and their lifetime budgets.
            kind: "production" or "simulation". It cannot be changed later.
            lifetime_delta: The δ over all runs for records without a δ of their own.
            account: The kind of account that records get, for life: "renyi" (the default in production) or "sums" (the
                default for simulations, which price one run by itself most closely).
            silos_per_person: In how many silos of the federation a person may ever have an account.
            steward: The public key of the steward who may raise budgets. Without it, budgets can never be raised.
            progress: Called as the work advances.
        """
        chosen: AccountKind = account or ("renyi" if kind == "production" else "sums")
        terms = AccountTerms(chosen, lifetime_delta, silos_per_person)
        new = NewLedger(kind, terms, steward, lambda key: new_records(key, budgets, terms, progress))
        create_files(Path(path), new, progress)
        ledger = cls(path, writable=True)
        ledger.balances(budgets.ids)
        return ledger

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        acknowledged: PublicHead | None = None,
        wait: float = 0.0,
        vfs: str | None = None,
    ) -> Self:
        """Open as the writer. Refused while another process is writing, or if the file was rolled back.

        Args:
            path: The ledger.
            acknowledged: The latest head that the server has; a ledger older than it is refused.
            wait: For how many seconds to wait while another process is writing.
            vfs: The name of another SQLite file layer, for fault injection in tests.
        """
        return cls(path, writable=True, acknowledged=acknowledged, wait=wait, vfs=vfs)

    @classmethod
    def read(cls, path: str | Path, *, key: str | Path | None = None) -> Self:
        """Open for reading, even while another process writes. `key` is the path of the key if it is elsewhere."""
        return cls(path, writable=False, key=key)

    def close(self) -> None:
        """Remove booked actions from the inbox and close the file."""
        with self._turn:
            try:
                if self.is_writer:
                    self.inbox.clear(self._action_book.booked)
            finally:
                super().close()

    # The account of a silo

    def left(self, budgets: BudgetTable, lifetime_delta: float, allowance: Allowance = WHOLE) -> Allowances:
        """Return what a run may take of the smaller of each record's budget in force and its budget in the table."""
        with self._turn:
            return self.silo_accounts(budgets, lifetime_delta).allowances(allowance)

    def silo_accounts(
        self, budgets: BudgetTable, lifetime_delta: float, *, without: Collection[str] = ()
    ) -> SiloAccounts:
        """Return the accounts of a silo's table as they are now; or, to look at, as if some held runs did not exist."""
        with self._turn:
            if self.is_writer:
                self._book_pending()
                self.expire()
            balances = self.balances(budgets.ids)
            self._require_joint_delta(lifetime_delta)
            terms = replace(self.terms, lifetime_delta=lifetime_delta)
            return SiloAccounts(
                self.runs.accounts_without(without, balances) if without else balances,
                stated_parts(balances, budgets, terms),
                min(terms.own_delta, self.terms.own_delta),
                lambda allowance: self._booked_for(allowance, balances, without),
            )

    def _booked_for(self, allowance: Allowance, balances: Balances, without: Collection[str]) -> BookedFor:
        with self._turn, self.reading():
            return self.runs.booked_for(allowance, balances, without)

    def reserve(
        self,
        run: str,
        plan: SiloPlan,
        expires: float | None,
        allowance: Allowance = WHOLE,
        progress: Progress = silent,
    ) -> None:
        """Hold the whole plan in one transaction, within the allowance.

        Steward actions that arrive after `left` are booked after the reservation. They apply from the first local step
        on, and admission does not depend on them.
        """
        with self._turn:
            self.expire()
            balances = self._bind(plan.ids)
            with self._writing():
                crash_points.reached("reserve: begun")
                # The balances may be as old as the plan. The check rests on what the file holds now.
                self._read_balances(balances)
                self.runs.reserve(run, plan, expires, allowance, balances, progress)
            crash_points.reached("reserve: committed")
            balances.book(plan)  # only after the commit: a failed transaction must not change the balances
            balances.follow(run, ())
            self._note_head()
            self.database.shorten_log()

    def charge(
        self,
        run: str,
        number: int,
        coin: Callable[[], bool],
        rounds_to_join: Callable[[], tuple[int, ...]] | None = None,
    ) -> Charge:
        """Charge a round together with its coin in one transaction. A repeated call returns the same answer."""
        with self._turn:
            answered = self.runs.answered(run, number)
            if answered is not None:
                return answered
            self.expire()
            pending = self.pending()
            # Coin and charge are committed together: after a crash either both are known or neither, so no outcome is
            # ever replaced by a second coin. Pending steward actions are booked along with them.
            with self._writing():
                crash_points.reached("charge: begun")
                self._action_book.book(pending)
                charge = self.runs.charge(run, number, coin, rounds_to_join, self.clock())
            crash_points.reached("charge: committed")
            self._after_booking(pending)
            self._note_head()
            crash_points.reached("charge: head noted")
            return charge

    def store(self, run: str, number: int, payload: bytes) -> None:
        """Put a finished update into the outbox in one transaction."""
        with self._turn:
            with self._writing():
                crash_points.reached("store: begun")
                self.runs.store(run, number, payload)
            crash_points.reached("store: committed")
            self._note_head()

    def stored(self, run: str, number: int) -> bytes | None:
        """Return the update of a round if it was finished and not removed since."""
        with self._turn:
            return self.runs.stored(run, number)

    def switched_off(self, run: str | None = None) -> NDArray[np.int64]:
        """Return the positions of records that must no longer be drawn, including pending steward actions."""
        if self._balances is None:
            raise InputError("positions refer to a budget table: call left() with the silo's budgets first")
        balances = self._current(self._balances)
        if run is not None and run not in balances.followed:
            self._follow(balances, self.runs.admission(run).run)
        return balances.switched_off(self.pending(), run)

    @property
    def inbox_directory(self) -> Path:
        """The inbox: while a round is trained, withdrawals and lowered budgets come through it alone."""
        return self.files.inbox.absolute()

    @property
    def ledger_file(self) -> Path:
        """The database, by its own name."""
        return self.files.database

    def status(self) -> AccountStatus:
        """Return the status of all runs."""
        with self.reading():
            return AccountStatus(self.is_simulation, len(self.records), self.runs.status())

    def resume(self, run: str, ids: pa.ChunkedArray, stated: RecordBudgets | None = None) -> SiloPlan:
        """Return the plan reserved for a run, in the order of these ids, to continue the run after a restart."""
        with self._turn:
            current = self._bind(ids)
            admission = self.runs.admission(run)
            self._follow(current, run)
            before = balances_before(self, admission.seq, current)
            allowance = Allowance(share=admission.share or 1.0)
            return self.runs.plan(run, ids, current.places, before.allowances(allowance, 0.0, stated))

    # Server and stewards

    def acknowledge(self, head: PublicHead) -> None:
        """Record a head that the server has acknowledged. From now on an older ledger is refused."""
        with self._turn:
            self._require_writer()
            self.chain.require(head, self.id)
            self._note_head(head)

    def _require_joint_delta(self, lifetime_delta: float) -> None:
        """Refuse another δ than the records were enrolled with if a person's accounts in several silos must agree.

        The order of a Rényi account follows from ε and δ. At the order of a larger δ, the accounts of all silos
        together would exceed the largest ε at the smaller one.
        """
        if self.account == "renyi" and self.silos_per_person > 1 and lifetime_delta != self.lifetime_delta:
            raise PrivacyRefusal(
                f"lifetime_delta={lifetime_delta:g}, but this ledger was created with {self.lifetime_delta:g}. With "
                f"silos_per_person={self.silos_per_person} all Rényi accounts of a person need one δ, so nothing was "
                "planned; state the same in the policy, the plan and the ledgers of all silos",
                Reason.POLICY,
            )
