"""The facts of one person's statement, read from the ledger: uses, decisions, bounds, what is left, how to check."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from rpdp.display import counts_repr
from rpdp.ledger.inspection.lifetime_bound import bounds_of_person
from rpdp.ledger.inspection.person_explanation import balances_of, explanation_of_members, members_of
from rpdp.ledger.store.chain import SUCCEED, canonical
from rpdp.ledger.store.record_keys import as_bytes
from rpdp.statements.odds_words import Odds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rpdp.ledger.balances import Balances
    from rpdp.ledger.inspection.explanation import Explanation, RunExplanation
    from rpdp.ledger.inspection.lifetime_bound import LifetimeBound
    from rpdp.ledger.inspection.person_explanation import NamedAs, PersonExplanation
    from rpdp.ledger.ledger_base import LedgerBase

FORMAT = "rpdp-statement/1"


@dataclass(frozen=True)
class DataUse:
    """A run, and what it had to do with the person.

    Attributes:
        run: The id of the run.
        at: When it was admitted.
        purpose: "training", "evaluation" or "statistics".
        study: The study that it was for; may be empty.
        state: "used", "held" (it has not begun), "not used", "cancelled" or "expired".
        records: How many of the person's records could be drawn.
        share: About which share of the person's lifetime budget it took.
        reason: The reason that was given for a cancellation.
    """

    run: str
    at: str
    purpose: str
    study: str
    state: str
    records: int
    share: float
    reason: str

    __repr__ = counts_repr


@dataclass(frozen=True)
class Decision:
    """A steward action about the person: "withdraw", "lower", "raise" or "reconsent"."""

    kind: str
    at: str
    actor: str
    reason: str

    __repr__ = counts_repr


@dataclass(frozen=True)
class AccountFacts:
    """The account of one record, for the fold-out."""

    hash: str
    account: str
    epsilon: float
    delta: float
    share_used: float
    withdrawn: bool

    __repr__ = counts_repr


@dataclass(frozen=True)
class Statement:
    """Everything that a person's page says.

    Attributes:
        person: The id by which the person was named.
        made: When the statement was made.
        ledger: The id of the ledger.
        is_simulation: Whether it is a simulation, which protects nobody.
        silos: In how many silos the person may have an account.
        follows_a_loss: Whether an earlier ledger was lost, whose runs are counted but not known.
        uses: All runs since, in order.
        decisions: All steward actions about the person, in order.
        accounts: Each record.
        withdrawn: How many records have withdrawn.
        share_used: The share of the lifetime budget that is used.
        for_life: The bound on all releases, those that may still come included.
        so_far: The bound on the releases so far, where there is one.
        digest: SHA-256 of the accounts; it changes when they do.
        name: A keyed name for files, which tells nobody who it is; it changes when records are added.
        event: The number of the ledger's last event.
        head: The head of its chain.
    """

    person: str
    made: str
    ledger: str
    is_simulation: bool
    silos: int
    follows_a_loss: bool
    uses: tuple[DataUse, ...]
    decisions: tuple[Decision, ...]
    accounts: tuple[AccountFacts, ...]
    withdrawn: int
    share_used: float
    for_life: LifetimeBound
    so_far: LifetimeBound | None
    digest: str
    name: str
    event: int
    head: str

    __repr__ = counts_repr

    @property
    def odds(self) -> Odds:
        """The odds of everything, for life."""
        return Odds(self.for_life.guesses)

    @property
    def odds_so_far(self) -> Odds | None:
        """The odds of the uses so far; None where the account gives no such number."""
        return None if self.so_far is None else Odds(self.so_far.guesses)

    @property
    def has_withdrawn(self) -> bool:
        """Whether all records of the person have withdrawn."""
        return self.withdrawn == len(self.accounts)

    @property
    def left(self) -> float:
        """About which share of the lifetime budget is left."""
        return 0.0 if self.has_withdrawn else max(0.0, 1.0 - self.share_used)


def statement_of(ledger: LedgerBase, person: str, named_as: NamedAs | None = None) -> Statement:
    """Return the statement of the person who has this id, or whose record has it, in one state of the ledger."""
    with ledger.reading():
        members = members_of(ledger, person, named_as)
        held = balances_of(ledger, members)
        explained = explanation_of_members(ledger, person, members, held)
        bounds = bounds_of_person(ledger, held)
        return Statement(
            person,
            datetime.now(UTC).isoformat("T", "seconds"),
            ledger.id,
            ledger.is_simulation,
            ledger.silos_per_person,
            any(True for _ in ledger.chain.events(SUCCEED)),
            _uses(explained.records),
            _decisions(ledger, members),
            tuple(_facts(one) for one in explained.records),
            explained.withdrawn,
            explained.share_used,
            bounds.for_life,
            bounds.so_far,
            account_digest(ledger.id, members, held, explained),
            as_bytes(ledger.key.subject(as_bytes(members).hex())).hex(),
            ledger.chain.seq,
            ledger.chain.head.hex(),
        )


def facts_of(statement: Statement) -> dict[str, Any]:
    """Return the facts of a statement for JSON, with its odds of 100."""
    so_far = statement.odds_so_far
    odds = {"for_life": statement.odds.shown, "so_far": None if so_far is None else so_far.shown}
    return {"format": FORMAT, **asdict(statement), "right_guesses_of_100": odds, "share_left": statement.left}


def account_digest(ledger: str, members: NDArray[np.uint64], held: Balances, explained: PersonExplanation) -> str:
    """SHA-256 of a person's accounts as an auditor reads them in a copy of the ledger: any change changes it."""
    rows = [
        [as_bytes(members[row]).hex(), *(float(values[row]).hex() for values in (held.epsilon, held.delta))]
        + [int(values[row]) for values in (held.order, held.booked, held.booked_delta, held.withdrawn)]
        for row in range(len(members))
    ]
    runs = [[[one.run, one.state, one.q.hex(), one.joined] for one in record.runs] for record in explained.records]
    return hashlib.sha256(canonical([FORMAT, ledger, rows, runs]).encode()).hexdigest()


def _uses(records: Sequence[Explanation]) -> tuple[DataUse, ...]:
    """The runs of all records; each record lists every run, in the same order."""
    whole = sum(one.epsilon for one in records)
    weights = [one.epsilon / whole if whole > 0.0 else 1.0 / len(records) for one in records]
    return tuple(_use(runs, weights) for runs in zip(*(one.runs for one in records), strict=True))


def _use(runs: tuple[RunExplanation, ...], weights: Sequence[float]) -> DataUse:
    first = runs[0]
    drawn = sum(1 for one in runs if one.q > 0.0)
    if first.state in ("cancelled", "expired"):
        state, drawn = first.state, 0
    elif drawn == 0:
        state = "not used"
    else:
        state = "held" if first.state == "held" else "used"
    share = sum(one.share * weight for one, weight in zip(runs, weights, strict=True))
    return DataUse(first.run, first.admitted, first.purpose, first.study, state, drawn, share, first.reason)


def _decisions(ledger: LedgerBase, members: NDArray[np.uint64]) -> tuple[Decision, ...]:
    named = {as_bytes(one) for one in members}
    return tuple(
        Decision(action.kind, action.at, action.actor or "", action.reason)
        for action in ledger.actions()
        if any(as_bytes(one) in named for one in action.hashes[np.isin(action.hashes[:, 0], members[:, 0])])
    )


def _facts(record: Explanation) -> AccountFacts:
    return AccountFacts(
        record.hash, record.account, record.epsilon, record.delta, record.share_used, bool(record.withdrawn)
    )
