"""An explanation of one person in plain language: what the person allows, what share is used, and each record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from rpdp.budgets.person_split import log_joint_delta
from rpdp.display import counts_repr
from rpdp.errors import InputError
from rpdp.ledger.balances import Balances
from rpdp.ledger.inspection.explanation import explanation_of_hash
from rpdp.ledger.stewardship.persons import Persons
from rpdp.ledger.store.fixed_point import EPSILON_SHIFT, amounts
from rpdp.ledger.store.record_keys import as_bytes
from rpdp.ledger.store.roster import ABSENT, Roster

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.ledger.inspection.explanation import Explanation
    from rpdp.ledger.ledger_base import LedgerBase
    from rpdp.ledger.store.fixed_point import FloatArray

NamedAs = Literal["subject", "record"]
"""What an id that names a person may be the id of."""


@dataclass(frozen=True)
class PersonExplanation:
    """Everything that the ledger knows about a person. Records go by their hashes: the ledger does not know their ids.

    Attributes:
        subject: The person.
        epsilon: What the person allows in this silo, for life, over all records.
        delta: The δ that goes with it.
        account: "sums", "renyi" or "mixed".
        share_used: The share of what all records together may book that is booked.
        withdrawn: How many records have withdrawn.
        records: Each record.
    """

    subject: str
    epsilon: float
    delta: float
    account: str
    share_used: float
    withdrawn: int
    records: tuple[Explanation, ...]

    __repr__ = counts_repr

    @property
    def text(self) -> str:
        """The explanation in plain language."""
        count = len(self.records)
        gone = f" {self.withdrawn:,} of them have withdrawn." if self.withdrawn else ""
        first = (
            f"Person {self.subject} has {count:,} {'record' if count == 1 else 'records'} in this silo.{gone} The "
            f"promise for all of them together is ε = {self.epsilon:.4g} at δ = {self.delta:.3g}, for life; "
            f"{self.share_used:.1%} of what they may use is used."
        )
        return "\n".join([first, *(f"\n{one.text}" for one in self.records)])


def largest_budgets(ledger: LedgerBase, held: Balances) -> tuple[FloatArray, FloatArray]:
    """Return the largest ε and δ that each of these records was ever given."""
    epsilon, delta = ledger.records.gather(held.places, len(held), ledger.records.budgets)
    for action in ledger.actions():
        if action.kind == "raise":
            rows = held.roster.find(action.hashes)
            known = rows != ABSENT
            for largest, raised in ((epsilon, action.epsilon), (delta, action.delta)):
                largest[rows[known]] = np.fmax(largest[rows[known]], raised[known])
    return epsilon, delta


def members_of(ledger: LedgerBase, name: str, named_as: NamedAs | None = None) -> NDArray[np.uint64]:
    """Return the hashes of all records of a person, who is named as a subject or by one of the records."""
    found = {}
    if named_as != "record":
        found["subject"] = ledger.records.of_subject(ledger.key.subject(name))
    if named_as != "subject":
        record = ledger.key.record(name)
        known = ledger.records.find(record) is not None
        found["record"] = Persons.of(ledger.records, record[None], [name]).members if known else record[None][:0]
    ways = [np.unique(members, axis=0) for members in found.values() if len(members)]
    if not ways:
        raise InputError(
            f"no {' or '.join(found)} {name!r} is among the {len(ledger.records):,} records of "
            f"{ledger.files.database}; ids are compared exactly"
        )
    if len(ways) == 2 and not np.array_equal(ways[0], ways[1]):
        raise InputError(
            f"{name!r} is a subject, and also a record of somebody else; say which is meant: as a subject, or as a "
            "record (--as subject, --as record)"
        )
    return ways[0]


def explanation_of_person(ledger: LedgerBase, subject: str) -> PersonExplanation:
    """Explain all records of a person."""
    wanted = ledger.key.subject(subject)
    members = ledger.records.of_subject(wanted)
    if not len(members):
        raise InputError(f"no record of subject {subject!r} is in {ledger.files.database}; ids are compared exactly")
    return explanation_of_members(ledger, subject, members, balances_of(ledger, members))


def explanation_of_members(
    ledger: LedgerBase, subject: str, members: NDArray[np.uint64], held: Balances
) -> PersonExplanation:
    """Explain the person with these records and balances; `subject` is what the text calls the person."""
    budget, _ = held.lifetime()
    whole = float(budget.sum())
    kinds = set((held.order > 0).tolist())
    return PersonExplanation(
        subject,
        float(held.epsilon.sum()) * ledger.terms.parts,
        person_delta(ledger, members, held) * ledger.terms.parts,
        "mixed" if len(kinds) == 2 else "renyi" if True in kinds else "sums",
        float(amounts(held.booked, EPSILON_SHIFT).sum()) / whole if whole > 0.0 else 1.0,
        int(held.withdrawn.sum()),
        tuple(explanation_of_hash(ledger, one, as_bytes(one).hex()[:12] + "…") for one in members),
    )


def person_delta(ledger: LedgerBase, members: NDArray[np.uint64], held: Balances) -> float:
    """Return the δ that all of these records, of one person, are promised together.

    It is what their parts add up to, and never more than what those of the old records added up to before records that
    came later shared what was left: the parts of old records hold what they had booked before, too.
    """
    parts = [_composed(held)]
    for event in ledger.chain.events("add"):
        shared = event.facts.get("shared")
        if shared is not None:
            before = balances_of(ledger, members, before=shared["lower"])
            known = before.places[: _records_before(ledger, event.seq)]
            rows = np.sort(known[known != ABSENT])
            if rows.size:
                parts.append(_composed(before, rows))
    return min(parts)


def _records_before(ledger: LedgerBase, seq: int) -> int:
    return sum(chunk.count for chunk in ledger.records.chunks if chunk.segment < seq)


def _composed(held: Balances, rows: NDArray[np.int32] | slice = slice(None)) -> float:
    epsilon, delta = held.epsilon[rows], held.delta[rows]
    joint = log_joint_delta(epsilon, delta, np.zeros(len(epsilon), dtype=np.int64), 1)
    return float(np.exp(joint[0]))


def balances_of(ledger: LedgerBase, members: NDArray[np.uint64], before: int | None = None) -> Balances:
    """Return the balances of these records: now, or before event `before`."""
    roster = Roster(members)
    actions = ledger.actions() if before is None else ledger.booked_actions(before=before)
    return Balances(ledger.records, roster, ledger.records.places(roster), actions, ledger.terms)
