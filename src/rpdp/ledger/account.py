"""What a silo asks of the account of its records: reserve, charge, outbox, status.

The order of events is the promise (privacy.md, rules 1 and 9–11): a plan is made from what is *left* of every lifetime
budget and reserved as a whole before the first round; every announced round is charged, joined or not, and its coin is
drawn once, together with the charge; a finished update is stored before it is sent, so that the same round asked again
gets the same bytes. Nothing is ever refunded.
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
        joined: What the coin said: the silo trains and releases, or sits out.
        is_new: Whether this call charged it; False when it had been charged before, and must not be trained again.
    """

    round: int
    joined: bool
    is_new: bool


@dataclass(frozen=True)
class RunStatus:
    """Where a run stands at this silo."""

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
    """Whether a silo joins a round: the one rule for coins, caps and exactly-k rounds, in memory and on disk.

    Args:
        schedule: Of the run; a cap counts the rounds joined so far.
        number: The round.
        joined_before: How many earlier rounds were joined.
        rounds_to_join: Drawn at admission where the schedule says "exactly k"; else None.
        coin: Draws the coin of this round.
    """
    if rounds_to_join is not None:
        return number in rounds_to_join
    heads = coin()  # drawn even when the cap is reached: whether a coin is drawn must not depend on earlier ones
    cap = schedule.max_participations
    return heads and (cap is None or joined_before < cap)


class Account(ABC):
    """The account of one silo's records, in a fixed order. In memory, or durable."""

    is_simulation: bool
    """Whether it serves simulations (seeded randomness) or production; never both."""

    @abstractmethod
    def left(self, budgets: BudgetTable, lifetime_delta: float) -> RecordBudgets:
        """What is left of each record's (ε, δ) after all reservations, never negative."""

    @abstractmethod
    def reserve(self, run: str, plan: SiloPlan, rounds_to_join: tuple[int, ...] | None) -> None:
        """Book cost and δ of the whole plan for every record that can be drawn.

        `rounds_to_join` are those drawn at admission where the schedule says "exactly k"; else None, and each round has
        its own coin.
        """

    @abstractmethod
    def resume(self, run: str, ids: pa.ChunkedArray, allowed: RecordBudgets | None = None) -> SiloPlan:
        """The plan that was reserved for a run, in the order of these ids, to go on with it after a restart.

        Its budgets are what was left when the run was admitted, of the smaller of each budget in force and the one
        `allowed`, as in `left`.
        """

    @abstractmethod
    def charge(self, run: str, number: int, coin: Callable[[], bool]) -> Charge:
        """Charge round `number`, drawing its coin at most once, ever.

        | round | what happens |
        |---|---|
        | later than all before | charged; rounds in between were missed and are charged as sat out |
        | charged before | the earlier answer, `is_new=False` |
        | above T, below 1, an unknown run | `PrivacyRefusal` |
        """

    @abstractmethod
    def store(self, run: str, number: int, payload: bytes) -> None:
        """Put a finished update into the outbox; only once, and only for a round that was charged and joined."""

    @abstractmethod
    def stored(self, run: str, number: int) -> bytes | None:
        """The update of a round, if it was finished (and is still there: a steward may remove those of old runs)."""

    @abstractmethod
    def switched_off(self) -> NDArray[np.int64]:
        """Positions of records that must not be drawn any more, asked before every local step."""

    @abstractmethod
    def status(self) -> AccountStatus:
        """All runs, for the steward."""

    def public_head(self) -> PublicHead | None:
        """How far its public events go, for the server to keep; None where nothing is kept durably."""
        return None

    def acknowledge(self, head: PublicHead) -> None:
        """Refuse if this account is older than, or another than, what the server has seen of it."""
        raise PrivacyRefusal(f"the server knows ledger {head.ledger!r}, and this account is none")
