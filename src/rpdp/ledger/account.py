"""The interface between a silo and the account of its records: reserve, charge, outbox, status.

The order of events carries the promise (privacy.md, rules 1 and 9–11). A plan is made from what is *left* of every
lifetime budget, and reserved as a whole before the first round. Every announced round is charged, joined or not, and
its coin is drawn once, together with the charge. A finished update is stored before it is sent, so that a repeated
announcement gets the same bytes. Nothing is ever refunded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rpdp.errors import PrivacyRefusal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from rpdp.accounting import Schedule
    from rpdp.budgets import BudgetTable, RecordBudgets
    from rpdp.ledger.store.chain import PublicHead
    from rpdp.planning import SiloPlan


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
    """How far a run has come at this silo."""

    run: str
    plan: str
    rounds: int
    announced: int
    joined: tuple[int, ...]
    released: tuple[int, ...]


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
        rounds_to_join: The rounds drawn at admission if the schedule says "exactly k"; otherwise None.
        coin: Draws the coin of this round.
    """
    if rounds_to_join is not None:
        return number in rounds_to_join
    # Draw even when the cap is reached: whether a coin is drawn must not depend on the outcome of earlier coins.
    heads = coin()
    cap = schedule.max_participations
    return heads and (cap is None or joined_before < cap)


class Account(ABC):
    """The account of one silo's records, in a fixed order; in memory or durable."""

    is_simulation: bool
    """Whether it serves simulations (seeded randomness) or production. It never serves both."""

    @abstractmethod
    def left(self, budgets: BudgetTable, lifetime_delta: float) -> RecordBudgets:
        """Return what is left of each record's (ε, δ) after all reservations; never negative."""

    @abstractmethod
    def reserve(self, run: str, plan: SiloPlan, rounds_to_join: tuple[int, ...] | None) -> None:
        """Book the cost and δ of the whole plan for every record that can be drawn.

        `rounds_to_join` holds the rounds drawn at admission if the schedule says "exactly k". Otherwise it is None, and
        each round has its own coin.
        """

    @abstractmethod
    def resume(self, run: str, ids: pa.ChunkedArray, allowed: RecordBudgets | None = None) -> SiloPlan:
        """Return the plan reserved for a run, in the order of these ids, to continue the run after a restart.

        The plan's budgets are what was left when the run was admitted. As in `left`, they are taken from the smaller of
        the budget in force and the budget in `allowed`.
        """

    @abstractmethod
    def charge(self, run: str, number: int, coin: Callable[[], bool]) -> Charge:
        """Charge round `number`. Its coin is drawn at most once, ever.

        | round | what happens |
        |---|---|
        | later than every charged round | charged; the rounds in between were missed and are charged as sat out |
        | charged before | the earlier answer, `is_new=False` |
        | above T, below 1, or of an unknown run | `PrivacyRefusal` |
        """

    @abstractmethod
    def store(self, run: str, number: int, payload: bytes) -> None:
        """Put a finished update into the outbox: once per round, and only if the round was charged and joined."""

    @abstractmethod
    def stored(self, run: str, number: int) -> bytes | None:
        """Return the update of a round if it was finished and still exists; a steward may remove those of old runs."""

    @abstractmethod
    def switched_off(self) -> NDArray[np.int64]:
        """Return the positions of records that must no longer be drawn. Called before every local step."""

    @abstractmethod
    def status(self) -> AccountStatus:
        """Return the status of all runs, for the steward."""

    def public_head(self) -> PublicHead | None:
        """Return the head of the public events for the server to keep; None if the account is not durable."""
        return None

    def acknowledge(self, head: PublicHead) -> None:
        """Refuse if this account is older than the head that the server has seen, or is a different account."""
        raise PrivacyRefusal(
            f"the server expects ledger {head.ledger!r}, but this account is kept in memory; open the silo's ledger"
        )
