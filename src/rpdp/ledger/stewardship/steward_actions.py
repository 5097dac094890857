"""Submitting steward actions: withdraw records, lower budgets; with a signature, raise them or end a withdrawal.

These work even while a run is writing the ledger. An action is a durable file in the inbox. It is in force from the
next local step on, and the writer books it with its next charge.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from rpdp.budgets.validation import LARGEST_EPSILON
from rpdp.errors import InputError
from rpdp.ledger.balances import Balances
from rpdp.ledger.ledger_base import LedgerBase
from rpdp.ledger.stewardship.actions import Action
from rpdp.ledger.stewardship.actors import checked_actor, checked_reason
from rpdp.ledger.stewardship.persons import Persons
from rpdp.ledger.store.roster import Roster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rpdp.ledger.stewardship.actions import ActionKind
    from rpdp.ledger.stewardship.steward_keys import StewardKey
    from rpdp.ledger.store.fixed_point import FloatArray

    Budget = float | NDArray[np.float64] | None

REASONED: tuple[str, ...] = ("raise", "reconsent", "enrol")
"""What needs a reason in a production ledger."""

_FEW = 64
"""Up to this many records are looked up one by one."""


class StewardActions(LedgerBase):
    """The actions of a data steward on the records of a ledger. Nothing is ever refunded."""

    def withdraw(
        self,
        records: Sequence[str] = (),
        *,
        subjects: Sequence[str] = (),
        reason: str = "",
        actor: str | None = None,
    ) -> Action:
        """Withdraw records. They are not drawn again from the next local step on; nothing is refunded.

        Like every action here, this works even while a run is writing the ledger. `actor` is who acts, by default the
        user of this process.
        """
        return self.submit(self._about("withdraw", records, subjects, reason, actor))

    def reconsent(
        self,
        records: Sequence[str] = (),
        *,
        subjects: Sequence[str] = (),
        key: StewardKey,
        reason: str = "",
        actor: str | None = None,
    ) -> Action:
        """End a withdrawal, with the steward's signature, from the next run on.

        What was booked stays booked. A run that was admitted before, and that the record withdrew from, never draws it
        again.
        """
        action = self._about("reconsent", records, subjects, reason, actor)
        with self.reading():
            roster = Roster(action.hashes)
            held = Balances(self.records, roster, self.records.places(roster), self.actions(), self.terms)
        never = int((~held.withdrawn).sum())
        if never:
            raise InputError(
                f"{never:,} of {len(roster):,} records have not withdrawn; nothing was changed. Name those that have"
            )
        return self.submit(action.signed(key))

    def _about(
        self, kind: ActionKind, records: Sequence[str], subjects: Sequence[str], reason: str, actor: str | None
    ) -> Action:
        """Return an action that changes no budget."""
        hashes = [self._known(records)] if records else []
        hashes += [self._of_subject(subject) for subject in subjects]
        if not hashes:
            raise InputError(f"records and subjects are both empty: name at least one record or subject to {kind}")
        together = np.unique(np.concatenate(hashes), axis=0)
        unchanged = np.full(len(together), np.nan)
        why, who = self._reason(kind, reason), checked_actor(actor)
        return Action(kind, self.id, together, unchanged, unchanged, reason=why, actor=who)

    def _reason(self, what: str, reason: str) -> str:
        """Return the reason of an action. A production ledger needs one for whatever allows more than before."""
        return checked_reason(what, reason, is_needed=what in REASONED and not self.is_simulation)

    def lower_budgets(
        self,
        records: Sequence[str] = (),
        epsilon: Budget = None,
        delta: Budget = None,
        *,
        subjects: Sequence[str] = (),
        reason: str = "",
        actor: str | None = None,
    ) -> Action:
        """Lower budgets, each to the smaller of old and new. Records with more reserved are no longer drawn.

        In a ledger with subjects a budget is that of the whole person, whichever of the person's records is named: it
        is divided among all of them. `epsilon` and `delta` are one for all, or one for each record and then subject.
        """
        with self._turn, self.inbox.turn():
            return self._submit_all(self._change("lower", records, subjects, epsilon, delta, reason, actor))

    def raise_budgets(
        self,
        records: Sequence[str] = (),
        epsilon: Budget = None,
        delta: Budget = None,
        *,
        subjects: Sequence[str] = (),
        key: StewardKey,
        reason: str = "",
        actor: str | None = None,
    ) -> Action:
        """Raise budgets, each to the larger of old and new, with the steward's signature.

        Persons as in `lower_budgets`. With a larger ε a person's records each get a smaller part of the same δ; that
        part is lowered first.
        """
        with self._turn, self.inbox.turn():
            changes = self._change("raise", records, subjects, epsilon, delta, reason, actor)
            return self._submit_all([one.signed(key) if one.kind == "raise" else one for one in changes])

    def _submit_all(self, actions: Sequence[Action]) -> Action:
        """Submit actions in order, after all of them were checked; return the last, which is the one asked for."""
        for action in actions:
            action.require_signature(self.steward)
        return [self.submit(action) for action in actions][-1]

    def submit(self, action: Action) -> Action:
        """Put a steward action into the inbox. It is durable and in force when this returns; the writer books it."""
        if action.ledger != self.id:
            raise InputError(f"the action is for ledger {action.ledger[:12]}…, but this is ledger {self.id[:12]}…")
        self._require_own_format()
        action.require_signature(self.steward)
        self.inbox.submit(action)
        return action

    def _known(self, records: Sequence[str]) -> NDArray[np.uint64]:
        """Return the hashes of records, all of which must be in the ledger."""
        if len(set(records)) != len(records):
            twice = next(record for record, count in Counter(records).items() if count > 1)
            raise InputError(f"record {twice!r} is named more than once; name each record once")
        hashes = self.key.records(pa.chunked_array([pa.array(list(records), pa.string())]))
        with self.reading():
            if len(records) > _FEW:
                places = self.records.places(Roster(hashes))
                unknown = np.setdiff1d(np.arange(len(records)), places)
            else:
                unknown = np.flatnonzero([self.records.find(one) is None for one in hashes])
        if unknown.size:
            raise InputError(
                f"{unknown.size:,} of {len(records):,} records are not in the ledger (the first is "
                f"{records[unknown[0]]!r}); ids are compared exactly. Nothing was changed"
            )
        return hashes

    def _of_subject(self, subject: str) -> NDArray[np.uint64]:
        with self.reading():
            found = self.records.of_subject(self.key.subject(subject))
        if not len(found):
            raise InputError(f"no record of subject {subject!r} is in the ledger. Nothing was changed")
        return found

    def _all_of_persons(self, records: Sequence[str], subjects: Sequence[str]) -> NDArray[np.uint64]:
        """The hashes of all records of the persons whom records or subjects name."""
        named = [self._known(records)] if records else []
        named += [self._of_subject(subject)[:1] for subject in subjects]
        with self.reading():
            return np.unique(Persons.of(self.records, np.concatenate(named), [*records, *subjects]).members, axis=0)

    def _change(
        self,
        kind: ActionKind,
        records: Sequence[str],
        subjects: Sequence[str],
        epsilon: Budget,
        delta: Budget,
        reason: str,
        actor: str | None,
    ) -> list[Action]:
        why, who = self._reason(kind, reason), checked_actor(actor)
        names = [*records, *subjects]
        if not names:
            raise InputError(f"records and subjects are both empty: name at least one record or subject to {kind}")
        new_epsilon, new_delta = _one_for_each(len(names), epsilon, delta)
        named = [self._known(records)] if records else []
        named += [self._of_subject(subject)[:1] for subject in subjects]  # any record stands for its person
        with self.reading():
            persons = Persons.of(self.records, np.concatenate(named), names)
        return self._new_budgets(kind, persons, new_epsilon, new_delta, why, who)

    def _new_budgets(
        self,
        kind: ActionKind,
        persons: Persons,
        epsilon: FloatArray,
        delta: FloatArray,
        reason: str,
        actor: str,
        given: Sequence[Action] = (),
    ) -> list[Action]:
        """The actions that give persons new budgets (NaN stays), after all that is in force and those `given`."""
        balances = self._balances_of(persons, given)
        if kind == "raise" and balances.order.any() and not np.isnan(delta).all():
            raise InputError(
                "the δ of a Rényi account is fixed when a record is enrolled and is never raised; nothing was changed. "
                "Raise the ε alone"
            )
        parts = self.terms.parts  # a new budget is the person's; this silo holds one part of it
        new = persons.divided(kind, epsilon / parts, delta / parts, balances)
        action = Action(kind, self.id, persons.members, new.epsilon, new.delta, reason=reason, actor=actor)
        less = new.less_delta
        if not less.any():
            return [action]
        unchanged = np.full(int(less.sum()), np.nan)
        named, parts_left = persons.members[less], new.delta[less]
        smaller = Action("lower", self.id, named, unchanged, parts_left, reason=reason, actor=actor)
        return [smaller, action]

    def _balances_of(self, persons: Persons, given: Sequence[Action] = ()) -> Balances:
        """The balances of all records of these persons."""
        with self.reading():
            roster = Roster(persons.members)
            return Balances(self.records, roster, self.records.places(roster), [*self.actions(), *given], self.terms)

    def subject_sizes(self, records: Sequence[str]) -> NDArray[np.int64]:
        """Return, for each of these records, how many records of the ledger its person has."""
        known = self._known(records)
        with self.reading():
            persons = Persons.of(self.records, known, records)
        return persons.sizes[persons.of_named]


def _one_for_each(count: int, epsilon: Budget, delta: Budget) -> tuple[FloatArray, FloatArray]:
    """Return the new ε and δ of each name; NaN where it stays as it is."""
    if epsilon is None and delta is None:
        raise InputError("give a new epsilon, a new delta, or both")
    given = [np.asarray(np.nan if value is None else value, dtype=np.float64) for value in (epsilon, delta)]
    if any(value.shape not in ((), (count,)) for value in given):
        given_sizes = ", ".join(str(value.size) for value in given if value.shape not in ((), (count,)))
        raise InputError(f"give one budget for all {count:,} records or one for each, not {given_sizes}")
    new = [np.broadcast_to(value, (count,)).copy() for value in given]
    for name, values, most in (("epsilon", new[0], LARGEST_EPSILON), ("delta", new[1], 1.0)):
        wrong = values[~(np.isnan(values) | ((values >= 0.0) & (values <= most)))]
        if wrong.size:
            raise InputError(f"{name}={wrong[0]:g} must lie between 0 and {most:g}")
    return new[0], new[1]
