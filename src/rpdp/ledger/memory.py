"""An account that lives as long as its process, for simulations, which protect nobody."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rpdp.display import counts_repr
from rpdp.errors import InputError, PlanError, PrivacyRefusal, Reason
from rpdp.ledger.account import Account, AccountStatus, Charge, RunStatus, joins_round, rounds_drawn
from rpdp.ledger.account_terms import AccountTerms
from rpdp.ledger.record_accounts import RecordAccounts
from rpdp.ledger.store.holds import expiry_stamp, has_passed, refuse_cancelled, refuse_charged
from rpdp.planning import WHOLE

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from numpy.typing import NDArray

    from rpdp.budgets import AccountKind, BudgetTable, RecordBudgets
    from rpdp.ledger.account import Canceller, RunState
    from rpdp.ledger.record_accounts import BookedFor
    from rpdp.planning import Allowance, Allowances, SiloPlan


@dataclass
class _Run:
    plan: SiloPlan
    expires: str | None
    state: RunState = "held"
    rounds_to_join: tuple[int, ...] | None = None
    announced: int = 0
    joined: set[int] = field(default_factory=set)
    outbox: dict[int, bytes] = field(default_factory=dict)

    __repr__ = counts_repr

    @property
    def is_over(self) -> bool:
        return self.state in ("cancelled", "expired")


class MemoryAccount(Account):
    """The `Account` of a simulation. Withdrawals (`switch_off`) take effect from the next local step on."""

    is_simulation = True

    def __init__(self, records: int, *, account: AccountKind = "sums", silos_per_person: int = 1) -> None:
        self.account: AccountKind = account
        self.silos_per_person = silos_per_person
        self._runs: dict[str, _Run] = {}
        self._records = records
        self._order: NDArray[np.uint8] | None = None
        nothing, no_order = np.zeros(records), np.zeros(records, dtype=np.uint8)
        self._bookings = RecordAccounts(nothing, nothing, no_order)
        self._off: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def left(self, budgets: BudgetTable, lifetime_delta: float, allowance: Allowance = WHOLE) -> Allowances:
        """Return what a run may take of each record. The first table fixes the orders of Rényi accounts."""
        self.expire()
        terms = AccountTerms(self.account, lifetime_delta, self.silos_per_person)
        stated = terms.per_record(budgets)
        if len(stated.epsilon) != self._records:
            raise PlanError(
                f"the table has {len(stated.epsilon):,} records and the account has {self._records:,}; use the silo's "
                "own budget table"
            )
        if self._order is None:
            self._order = terms.orders(stated)
        assert stated.delta is not None
        accounts = RecordAccounts(stated.epsilon, stated.delta, self._order, terms=terms)
        accounts.booked, accounts.booked_delta = self._bookings.booked, self._bookings.booked_delta
        accounts.withdrawn[self._off] = True
        return accounts.allowances(allowance, terms.own_delta, None, self._booked_for(allowance))

    def _booked_for(self, allowance: Allowance) -> BookedFor:
        found = {}
        for purpose in allowance.kept_for_others:
            nothing, no_order = np.zeros(self._records), np.zeros(self._records, dtype=np.uint8)
            sums = RecordAccounts(nothing, nothing, no_order)
            for run in self._runs.values():
                if not run.is_over and run.plan.public.purpose == purpose:
                    sums.book(run.plan)
            found[purpose] = sums.booked, sums.booked_delta
        return found

    def reserve(self, run: str, plan: SiloPlan, expires: float | None, allowance: Allowance = WHOLE) -> None:
        """Hold the whole plan."""
        if run in self._runs:
            self._held(run)  # if it was cancelled, that is the reason to give
            raise PrivacyRefusal(
                f"run {run!r} was admitted before; a run is reserved only once. Give a new run a new id"
            )
        if len(plan) != self._records:
            raise PlanError(
                f"the plan has {len(plan):,} records and the account has {self._records:,}; make the plan from the "
                "silo's own budget table"
            )
        self._runs[run] = _Run(plan, expiry_stamp(expires))
        self._bookings.book(plan)

    def cancel(self, run: str, *, by: Canceller = "server", reason: str = "") -> None:
        """Cancel a run that is held. In memory the reason is not kept."""
        if run in self._runs and self._runs[run].is_over:
            return
        held = self._held(run)
        if held.state != "held":
            raise refuse_charged(run, held.announced)
        held.state = "expired" if by == "expiry" else "cancelled"
        self._bookings.book(held.plan, sign=-1)

    def expire(self) -> None:
        """End every hold whose expiry has passed."""
        moment = self.clock()
        for run in [run for run, one in self._runs.items() if one.state == "held" and has_passed(one.expires, moment)]:
            self.cancel(run, by="expiry")

    def resume(self, run: str, ids: pa.ChunkedArray, stated: RecordBudgets | None = None) -> SiloPlan:
        """Return the plan of an admitted run. The order of records cannot change within a process."""
        return self._held(run).plan

    def charge(
        self,
        run: str,
        number: int,
        coin: Callable[[], bool],
        rounds_to_join: Callable[[], tuple[int, ...]] | None = None,
    ) -> Charge:
        """Charge a round, once; the first one commits the run."""
        self.expire()
        held = self._held(run)
        schedule = held.plan.public.schedule
        if not 1 <= number <= schedule.rounds:
            raise PrivacyRefusal(
                f"round {number} of run {run!r} is not one of the {schedule.rounds} that were admitted"
            )
        # Rounds up to the last announced one are over, including those that were missed: no second coin for them.
        if number <= held.announced:
            return Charge(number, number in held.joined, is_new=False)
        if held.state == "held":
            held.rounds_to_join = rounds_drawn(schedule, rounds_to_join)
        joined = joins_round(schedule, number, len(held.joined), held.rounds_to_join, coin)
        held.state, held.announced = "committed", number
        if joined:
            held.joined.add(number)
        return Charge(number, joined, is_new=True)

    def store(self, run: str, number: int, payload: bytes) -> None:
        """Put a finished update into the outbox."""
        held = self._held(run)
        if number not in held.joined or number in held.outbox:
            raise PrivacyRefusal(f"round {number} of run {run!r} was not joined, or its update is already stored")
        held.outbox[number] = payload

    def stored(self, run: str, number: int) -> bytes | None:
        """Return the update of a round if it was finished."""
        return self._held(run).outbox.get(number)

    def switch_off(self, positions: NDArray[np.int64]) -> None:
        """Never draw these records again."""
        if positions.size and not 0 <= positions.min() <= positions.max() < self._records:
            raise InputError(
                f"positions={positions.min()} … {positions.max()} must lie between 0 and {self._records - 1}"
            )
        self._off = np.union1d(self._off, positions)

    def switched_off(self, run: str | None = None) -> NDArray[np.int64]:
        """Return the positions of records that must no longer be drawn, in any run."""
        return self._off

    def status(self) -> AccountStatus:
        """Return the status of all runs."""
        runs = [
            RunStatus(
                name,
                held.plan.fingerprint,
                held.plan.public.schedule.rounds,
                held.announced,
                tuple(sorted(held.joined)),
                tuple(sorted(held.outbox)),
                held.state,
                held.expires,
            )
            for name, held in self._runs.items()
        ]
        return AccountStatus(self.is_simulation, self._records, tuple(runs))

    def _held(self, run: str) -> _Run:
        if run not in self._runs:
            raise PrivacyRefusal(f"run {run!r} was never admitted; nothing is reserved for it", Reason.RUN)
        if self._runs[run].is_over:
            raise refuse_cancelled(run, self._runs[run].state)
        return self._runs[run]
