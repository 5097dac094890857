"""The interface between a silo and the account of its records: reserve, charge, cancel, outbox, status.

The order of events carries the promise (privacy.md, rules 1 and 9–11). A plan is made from what is *left* of every
lifetime budget, and held as a whole before the first round. The first charged round commits it. Every announced round
is charged, joined or not, and its coin is drawn once, together with the charge. A finished update is stored before it
is sent, so that a repeated announcement gets the same bytes. A run of which no round was charged may be cancelled and
returns all that it held; from the first charge on nothing is ever refunded.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rpdp.errors import PlanError, PrivacyRefusal
from rpdp.planning import WHOLE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from rpdp.accounting import Schedule
    from rpdp.budgets import AccountKind, BudgetTable, RecordBudgets
    from rpdp.ledger.store.chain import PublicHead
    from rpdp.planning import Allowance, Allowances, SiloPlan

RunState = Literal["held", "committed", "cancelled", "expired"]
Canceller = Literal["server", "steward", "expiry"]


@dataclass(frozen=True)
class Charge:
    """A charged round.

    Attributes:
        round: Its number, from 1.
        joined: The outcome of the coin: the silo trains and releases, or sits the round out.
        is_new: Whether this call charged the round. If False, it was charged before and must not be trained again.
    """

    round: int
    joined: bool
    is_new: bool


@dataclass(frozen=True)
class RunStatus:
    """How far a run has come at this silo.

    Attributes:
        run: The id of the run.
        plan: The fingerprint of the silo plan.
        rounds: The number of planned rounds.
        announced: The last charged round.
        joined: The rounds that the silo joined.
        released: The rounds whose updates were stored.
        state: "held" until the first charged round, then "committed"; "cancelled" or "expired" if there was none.
        expires: When the hold ends, or would have ended; None if it does not.
    """

    run: str
    plan: str
    rounds: int
    announced: int
    joined: tuple[int, ...]
    released: tuple[int, ...]
    state: RunState = "committed"
    expires: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether the run was cancelled, or its hold expired: it holds nothing and never returns."""
        return self.state in ("cancelled", "expired")


@dataclass(frozen=True)
class AccountStatus:
    """All runs of an account."""

    is_simulation: bool
    records: int
    runs: tuple[RunStatus, ...]


def joins_round(
    schedule: Schedule,
    number: int,
    joined_before: int,
    rounds_to_join: Collection[int] | None,
    coin: Callable[[], bool],
) -> bool:
    """Decide whether a silo joins a round: the one rule for coins, caps and exactly-k rounds, in memory and on disk.

    Args:
        schedule: The schedule of the run; its cap limits the number of joined rounds.
        number: The round.
        joined_before: How many earlier rounds the silo joined.
        rounds_to_join: The rounds drawn with the first charge if the schedule says "exactly k"; otherwise None.
        coin: Draws the coin of this round.
    """
    if rounds_to_join is not None:
        return number in rounds_to_join
    # Draw even when the cap is reached: whether a coin is drawn must not depend on the outcome of earlier coins.
    heads = coin()
    cap = schedule.max_participations
    return heads and (cap is None or joined_before < cap)


def rounds_drawn(schedule: Schedule, draw: Callable[[], tuple[int, ...]] | None) -> tuple[int, ...] | None:
    """Draw the rounds of a schedule that says "exactly k", and check them; None if each round has its own coin."""
    wanted = schedule.participations
    if wanted is None:
        return None
    drawn = None if draw is None else draw()
    if drawn is None or len(set(drawn)) != wanted or not set(drawn) <= set(range(1, schedule.rounds + 1)):
        raise PlanError(f"rounds_to_join={drawn} must be {wanted} different rounds of {schedule.rounds}")
    return tuple(sorted(drawn))


class Account(ABC):
    """The account of one silo's records, in a fixed order; in memory or durable."""

    is_simulation: bool
    """Whether it serves simulations (seeded randomness) or production. It never serves both."""

    def clock(self) -> float:
        """Return the silo's wall clock, in seconds. It decides when a hold expires, and nothing else."""
        return time.time()

    account: AccountKind
    """The kind of account that new records get."""

    silos_per_person: int
    """In how many silos a person may have an account."""

    predecessor: PublicHead | None = None
    """The latest known head of the lost ledger that this one succeeds, if it succeeds one."""

    @abstractmethod
    def left(self, budgets: BudgetTable, lifetime_delta: float, allowance: Allowance = WHOLE) -> Allowances:
        """Return what a run with this allowance may take of each record, after all reservations; never negative.

        By default that is everything that is left.
        """

    @abstractmethod
    def reserve(self, run: str, plan: SiloPlan, expires: float | None, allowance: Allowance = WHOLE) -> None:
        """Hold the cost and δ of the whole plan for every record that can be drawn; they count as taken at once.

        A plan that exceeds what is left of an account, or the allowance, is refused.

        The first charge commits them. If there is none until `expires`, on the silo's `clock`, the hold ends and all of
        it is returned; None means that it does not expire.
        """

    @abstractmethod
    def resume(self, run: str, ids: pa.ChunkedArray, stated: RecordBudgets | None = None) -> SiloPlan:
        """Return the plan reserved for a run, in the order of these ids, to continue the run after a restart.

        The plan's budgets are what was left when the run was admitted. As in `left`, they are taken from the smaller of
        the budget in force and the budget in `stated`.
        """

    @abstractmethod
    def charge(
        self,
        run: str,
        number: int,
        coin: Callable[[], bool],
        rounds_to_join: Callable[[], tuple[int, ...]] | None = None,
    ) -> Charge:
        """Charge round `number`. Its coin is drawn at most once, ever.

        The first charge commits the run. If the schedule says "exactly k", it calls `rounds_to_join` for the rounds,
        once, and keeps them together with the charge.

        | round | what happens |
        |---|---|
        | later than every charged round | charged; the rounds in between were missed and are charged as sat out |
        | charged before | the earlier answer, `is_new=False` |
        | above T, below 1, or of an unknown run | `PrivacyRefusal` |
        | of a run that was cancelled, or whose hold has expired | `PrivacyRefusal` |
        """

    @abstractmethod
    def cancel(self, run: str, *, by: Canceller = "server", reason: str = "") -> None:
        """Cancel a run that is held: all of it is returned, exactly, and the id never returns.

        Cancelling it again changes nothing. A run with a charged round, or an unknown one, is refused.
        """

    @abstractmethod
    def expire(self) -> None:
        """Book the end of every hold whose expiry has passed. Only then is what it held free again."""

    @abstractmethod
    def store(self, run: str, number: int, payload: bytes) -> None:
        """Put a finished update into the outbox: once per round, and only if the round was charged and joined."""

    @abstractmethod
    def stored(self, run: str, number: int) -> bytes | None:
        """Return the update of a round if it was finished and still exists; a steward may remove those of old runs."""

    @abstractmethod
    def switched_off(self, run: str | None = None) -> NDArray[np.int64]:
        """Return the positions of records that must no longer be drawn. Called before every local step.

        With `run`, those that this run must not draw: who withdrew during a run never rejoins it.
        """

    @property
    def inbox_directory(self) -> Path | None:
        """The directory that changes whenever the answer of `switched_off` may; None if there is none.

        Another process that watches it (`DirectoryWatch`) need not ask before every local step.
        """
        return None

    @property
    def ledger_file(self) -> Path | None:
        """The file of the ledger, beside which the steward may state limits; None for an account in memory."""
        return None

    @abstractmethod
    def status(self) -> AccountStatus:
        """Return the status of all runs, for the steward."""

    def uncovered_cancellations(self) -> tuple[str, ...]:
        """Return the runs that the steward cancelled without a public reason, which the promise does not cover."""
        return ()

    def public_head(self) -> PublicHead | None:
        """Return the head of the public events for the server to keep; None if the account is not durable."""
        return None

    def acknowledge(self, head: PublicHead) -> None:
        """Refuse if this account is older than the head that the server has seen, or is a different account."""
        raise PrivacyRefusal(
            f"the server expects ledger {head.ledger!r}, but this account is kept in memory; open the silo's ledger"
        )
