"""An account that lives as long as its process, for simulations, which protect nobody."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rpdp.budgets import RecordBudgets
from rpdp.display import counts_repr
from rpdp.errors import InputError, PlanError, PrivacyRefusal, Reason
from rpdp.ledger.account import Account, AccountStatus, Charge, RunStatus, joins_round, rounds_drawn
from rpdp.ledger.store.holds import expiry_stamp, has_passed, refuse_cancelled, refuse_charged

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from numpy.typing import NDArray

    from rpdp.budgets import BudgetTable
    from rpdp.ledger.account import Canceller, RunState
    from rpdp.planning import SiloPlan


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

    def __init__(self, records: int) -> None:
        self._runs: dict[str, _Run] = {}
        self._epsilon = np.zeros(records)
        self._delta = np.zeros(records)
        self._off: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def left(self, budgets: BudgetTable, lifetime_delta: float) -> RecordBudgets:
        """Return what is left of each record's (ε, δ)."""
        self.expire()
        allowed = budgets.per_record(lifetime_delta)
        assert allowed.delta is not None
        epsilon = np.maximum(allowed.epsilon - self._epsilon, 0.0)
        delta = np.maximum(allowed.delta - self._delta, 0.0)
        epsilon[self._off] = 0.0
        return RecordBudgets(epsilon, delta)

    def reserve(self, run: str, plan: SiloPlan, expires: float | None) -> None:
        """Hold the whole plan."""
        if run in self._runs:
            self._held(run)  # if it was cancelled, that is the reason to give
            raise PrivacyRefusal(
                f"run {run!r} was admitted before; a run is reserved only once. Give a new run a new id"
            )
        if len(plan) != len(self._epsilon):
            raise PlanError(
                f"the plan has {len(plan):,} records and the account has {len(self._epsilon):,}; make the plan from "
                "the silo's own budget table"
            )
        self._runs[run] = _Run(plan, expiry_stamp(expires))
        self._book(plan)

    def _book(self, plan: SiloPlan) -> None:
        drawn = plan.q > 0.0
        self._epsilon += np.where(drawn, plan.cost, 0.0)
        self._delta += np.where(drawn, plan.public.delta, 0.0)

    def cancel(self, run: str, *, by: Canceller = "server", reason: str = "") -> None:
        """Cancel a run that is held. In memory the reason is not kept."""
        if run in self._runs and self._runs[run].is_over:
            return
        held = self._held(run)
        if held.state != "held":
            raise refuse_charged(run, held.announced)
        held.state = "expired" if by == "expiry" else "cancelled"
        # Add up what the other runs booked. Subtracting would leave a rounding error, and the return is exact.
        self._epsilon[:] = 0.0
        self._delta[:] = 0.0
        for other in self._runs.values():
            if not other.is_over:
                self._book(other.plan)

    def expire(self) -> None:
        """End every hold whose expiry has passed."""
        moment = self.clock()
        for run in [run for run, one in self._runs.items() if one.state == "held" and has_passed(one.expires, moment)]:
            self.cancel(run, by="expiry")

    def resume(self, run: str, ids: pa.ChunkedArray, allowed: RecordBudgets | None = None) -> SiloPlan:
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
        if positions.size and not 0 <= positions.min() <= positions.max() < len(self._epsilon):
            raise InputError(
                f"positions={positions.min()} … {positions.max()} must lie between 0 and {len(self._epsilon) - 1}"
            )
        self._off = np.union1d(self._off, positions)

    def switched_off(self) -> NDArray[np.int64]:
        """Return the positions of records that must no longer be drawn."""
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
        return AccountStatus(self.is_simulation, len(self._epsilon), tuple(runs))

    def _held(self, run: str) -> _Run:
        if run not in self._runs:
            raise PrivacyRefusal(f"run {run!r} was never admitted; nothing is reserved for it", Reason.RUN)
        if self._runs[run].is_over:
            raise refuse_cancelled(run, self._runs[run].state)
        return self._runs[run]
