"""What a ledger should hold, from what was asked of it alone: a list of events, and accounts that are sums over it.

Amounts are exact: every budget and cost that the machine asks for is a small multiple of a power of two.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ACTIONS = ("withdraw", "lower", "raise", "reconsent")
EPSILON_UNITS = 2**52
DELTA_UNITS = 2**62
ROUNDS = 3
DELTA = 1e-5
"""Rounds and δ of every run."""


@dataclass(frozen=True)
class Order:
    """A steward's order; `turn` counts the orders as the steward gave them. Without ε it is about δ alone."""

    turn: int
    kind: str
    records: tuple[str, ...]
    epsilon: Fraction | None


@dataclass(frozen=True)
class Event:
    """An event of the ledger. What the file does not say in clear (`detail`) is what was asked for.

    | kind | detail |
    |---|---|
    | create, add | the lifetime ε of each new record |
    | admit | the cost of each record that can be drawn; `expires` is when the hold ends, on the machine's clock |
    | cancel | who ended the hold |
    | release | the update |
    | withdraw, lower, raise, reconsent | the name of the action |
    | prune | the run whose updates are gone |
    """

    kind: str
    run: str
    number: int
    joined: bool
    detail: Any
    head: bytes
    public: tuple[int, bytes] | None = None
    expires: float | None = None


History = tuple[Event, ...]


@dataclass(frozen=True)
class Account:
    """The account of one record."""

    lifetime: Fraction
    booked: Fraction = Fraction(0)
    runs: int = 0
    withdrawn: bool = False

    @property
    def left(self) -> Fraction:
        return Fraction(0) if self.withdrawn else max(self.lifetime - self.booked, Fraction(0))

    @property
    def is_off(self) -> bool:
        """Whether the record must not be drawn any more."""
        return self.withdrawn or self.booked > self.lifetime

    def under(self, order: Order) -> Account:
        """The account after a steward's order. Lowering never raises, raising never lowers, nothing is refunded."""
        if order.kind in ("withdraw", "reconsent"):
            return replace(self, withdrawn=order.kind == "withdraw")
        if order.epsilon is None:
            return self
        choose = min if order.kind == "lower" else max
        return replace(self, lifetime=choose(self.lifetime, order.epsilon))


@dataclass
class Orders:
    """Every order that a steward ever gave, by the name of its action."""

    given: dict[str, Order] = field(default_factory=dict)

    def in_turn(self, names: Iterable[str]) -> list[str]:
        return sorted(names, key=lambda name: self.given[name].turn)


def accounts(history: Sequence[Event], orders: Orders, pending: Iterable[str] = ()) -> dict[str, Account]:
    """The account of every record, after these events and with these orders waiting in the inbox."""
    found: dict[str, Account] = {}
    for event in history:
        if event.kind in ("create", "add"):
            found |= {record: Account(lifetime) for record, lifetime in event.detail.items()}
        elif event.kind == "admit":
            _book(found, event.detail, 1)
        elif event.kind == "cancel":
            _book(found, next(e.detail for e in history if (e.kind, e.run) == ("admit", event.run)), -1)
        elif event.kind in ACTIONS:
            _obey(found, orders.given[event.detail])
    for name in orders.in_turn(pending):
        _obey(found, orders.given[name])
    return found


def _book(found: dict[str, Account], costs: Mapping[str, Fraction], sign: int) -> None:
    """Book the costs of a run, or return them."""
    for record, cost in costs.items():
        account = found[record]
        found[record] = replace(account, booked=account.booked + sign * cost, runs=account.runs + sign)


def _obey(found: dict[str, Account], order: Order) -> None:
    for record in order.records:
        if record in found:
            found[record] = found[record].under(order)


def off_in(run: str, history: Sequence[Event], orders: Orders, pending: Iterable[str]) -> set[str]:
    """The records that a run must not draw: who withdrew since its admission never rejoins it."""
    waiting = list(pending)
    found = {record for record, account in accounts(history, orders, waiting).items() if account.is_off}
    since = next(place for place, event in enumerate(history) if (event.kind, event.run) == ("admit", run))
    booked = [event.detail for event in history[since:] if event.kind in ACTIONS]
    given = [orders.given[name] for name in (*booked, *waiting)]
    return found | {record for order in given if order.kind == "withdraw" for record in order.records}


def units(amount: Fraction, scale: int = EPSILON_UNITS) -> int:
    """The fewest units that cover an amount."""
    return ceil(amount * scale)


def last_round(history: Sequence[Event], run: str) -> int:
    """The last round of a run that was announced."""
    return max((event.number for event in history if event.kind == "charge" and event.run == run), default=0)


def of_round(history: Sequence[Event], kind: str, run: str, number: int) -> Event | None:
    """The charge or release of a round, if there is one."""
    return next((e for e in history if (e.kind, e.run, e.number) == (kind, run, number)), None)


def has_joined(history: Sequence[Event], run: str, number: int) -> bool:
    charge = of_round(history, "charge", run, number)
    return charge is not None and charge.joined


def update_of(history: Sequence[Event], run: str, number: int) -> bytes | None:
    """The update of a round that the ledger must still hold."""
    found: bytes | None = None
    for event in history:
        if (event.kind, event.run, event.number) == ("release", run, number):
            found = event.detail
        if event.kind == "prune" and event.detail == run:
            found = None
    return found


def admitted(history: Sequence[Event]) -> list[str]:
    """The runs in the order of their admission."""
    return [event.run for event in history if event.kind == "admit"]


def ended(history: Sequence[Event]) -> set[str]:
    """The runs that were cancelled or have expired: they hold nothing, and never return."""
    return {event.run for event in history if event.kind == "cancel"}


def live(history: Sequence[Event]) -> list[str]:
    """The runs that are held or committed."""
    return [run for run in admitted(history) if run not in ended(history)]


def is_held(history: Sequence[Event], run: str) -> bool:
    """Whether no round of a live run was ever charged."""
    return run in live(history) and last_round(history, run) == 0


def due(history: Sequence[Event], clock: float) -> set[str]:
    """The held runs whose expiry has passed."""
    dated = {event.run for event in history if event.expires is not None and event.expires <= clock}
    return {run for run in dated if is_held(history, run)}


def fits(found: Mapping[str, Account], costs: Mapping[str, Fraction]) -> bool:
    """Whether a plan is within what is left of every record that it draws."""
    return all(cost <= found[record].left for record, cost in costs.items())
