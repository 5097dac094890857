"""The persons whom a change of budgets concerns: a budget is a person's, and is divided among all of their records.

To raise one record alone would stretch the person's budget: of three records at ε/3, one raised to 2ε/3 makes (4/3)ε
for the person (privacy.md, section 7). An action therefore names all records of every person whom it concerns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rpdp.budgets.person_split import equal_log_delta, log_joint_delta
from rpdp.budgets.table import delta_share
from rpdp.display import counts_repr
from rpdp.errors import InputError
from rpdp.ledger.record_accounts import is_overbooked
from rpdp.ledger.stewardship.sharing import left_parts
from rpdp.ledger.store.fixed_point import DELTA_SHIFT, EPSILON_SHIFT, amounts
from rpdp.ledger.store.roster import ABSENT, Roster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rpdp.ledger.balances import Balances
    from rpdp.ledger.stewardship.actions import ActionKind
    from rpdp.ledger.store.fixed_point import FloatArray
    from rpdp.ledger.store.record_store import RecordStore

    Hashes = NDArray[np.uint64]
    Rows = NDArray[np.int64]

_TOLERANCE = 1e-9
"""Relative: a person's δ is computed back from the parts of the records."""


@dataclass(frozen=True, eq=False)
class Divided:
    """The new budget of each record, and which of them get a smaller δ although their person's ε is raised."""

    epsilon: FloatArray
    delta: FloatArray
    less_delta: NDArray[np.bool_]

    __repr__ = counts_repr


@dataclass(frozen=True, eq=False)
class Persons:
    """The records of all persons whom somebody named, by one of their records or as a subject.

    Attributes:
        names: What was named, for messages.
        of_named: For each name, its person. Records without a subject are persons of their own.
        members: The hashes of all records of these persons.
        of_member: For each of them, its person.
    """

    names: Sequence[str]
    of_named: Rows
    members: Hashes
    of_member: Rows

    __repr__ = counts_repr

    @classmethod
    def of(cls, store: RecordStore, named: Hashes, names: Sequence[str]) -> Persons:
        """Find the persons of these records, and all of their records in the ledger."""
        subjects, has_subject = _subjects_of(store, named)
        if not has_subject.any():
            return cls(names, np.arange(len(named)), named, np.arange(len(named)))
        persons, numbers = np.unique(subjects[has_subject], axis=0, return_inverse=True)
        alone = np.flatnonzero(~has_subject)
        of_named = np.empty(len(named), dtype=np.int64)
        of_named[has_subject] = numbers.reshape(-1)
        of_named[alone] = len(persons) + np.arange(len(alone))
        members, of_member = [named[alone]], [of_named[alone]]
        people = Roster(persons)
        for chunk in store.chunks:
            held = store.subjects(chunk)
            if held is not None:
                person = people.find(held)
                here = person != ABSENT
                members.append(store.hashes(chunk)[here])
                of_member.append(person[here])
        return cls(names, of_named, np.concatenate(members), np.concatenate(of_member))

    @property
    def sizes(self) -> Rows:
        """How many records each person has."""
        return np.bincount(self.of_member)

    def budgets(self, balances: Balances) -> tuple[FloatArray, FloatArray, NDArray[np.bool_]]:
        """The (ε, δ) of each person in this silo, and whether all of the person's records have the same part of it."""
        is_even = self._has_even_parts(balances)
        return (
            np.bincount(self.of_member, balances.epsilon).astype(np.float64),
            self._delta_now(balances, is_even),
            is_even,
        )

    def divided(self, kind: ActionKind, epsilon: FloatArray, delta: FloatArray, balances: Balances) -> Divided:
        """Divide the new budgets (one for each name; NaN stays) among all records of each person.

        A person's parts are equal, unless records came later and share what was left: then old parts hold what they had
        booked before, too.
        """
        has_epsilon, has_delta, is_even = self.budgets(balances)
        wants_epsilon, wants_delta = self._agreed("ε", epsilon), self._agreed("δ", delta)
        self._require_direction(kind, "ε", wants_epsilon, has_epsilon)
        self._require_direction(kind, "δ", wants_delta, has_delta)
        if kind == "raise":
            self._require_even(wants_delta, is_even)
            self._require_known_use(wants_epsilon, is_even, balances)
        alike = is_even[self.of_member]
        even = self._even_parts(kind, wants_epsilon, wants_delta, has_epsilon, has_delta)
        uneven = self._uneven_parts(kind, wants_epsilon, wants_delta, has_epsilon, balances)
        new_epsilon, new_delta = (np.where(alike, one, other) for one, other in zip(even, uneven, strict=True))
        size = self.sizes[self.of_member]
        less = (kind == "raise") & (size > 1) & (new_delta < balances.delta * (1.0 - _TOLERANCE))
        self._require_booked(less, new_delta, balances)
        return Divided(new_epsilon, new_delta, less)

    def _has_even_parts(self, balances: Balances) -> NDArray[np.bool_]:
        """Whether all records of a person have the same part of ε and of δ."""
        even = np.ones(len(self.sizes), dtype=bool)
        for values in (balances.epsilon, balances.delta):
            low, high = self._worst(np.minimum, values), self._worst(np.maximum, values)
            even &= high - low <= _TOLERANCE * high
        return even

    def _delta_now(self, balances: Balances, is_even: NDArray[np.bool_]) -> FloatArray:
        """The δ that each person has. Uneven parts add up to this at most: what was booked before is counted twice."""
        size = self.sizes[self.of_member]
        even = self._worst(np.minimum, balances.delta / delta_share(size * balances.epsilon, size))
        joint = log_joint_delta(balances.epsilon, balances.delta, self.of_member, len(self.sizes))
        return np.where(is_even, even, np.exp(joint))

    def _even_parts(
        self,
        kind: ActionKind,
        wants_epsilon: FloatArray,
        wants_delta: FloatArray,
        has_epsilon: FloatArray,
        has_delta: FloatArray,
    ) -> tuple[FloatArray, FloatArray]:
        size = self.sizes[self.of_member]
        if kind == "raise":  # the same δ over a larger ε: smaller parts
            is_stretched = np.isnan(wants_delta) & ~np.isnan(wants_epsilon) & (self.sizes > 1)
            wants_delta = np.where(is_stretched, has_delta, wants_delta)
        then = np.where(np.isnan(wants_epsilon), has_epsilon, wants_epsilon)[self.of_member]
        return wants_epsilon[self.of_member] / size, wants_delta[self.of_member] * delta_share(then, size)

    def _uneven_parts(
        self,
        kind: ActionKind,
        wants_epsilon: FloatArray,
        wants_delta: FloatArray,
        has_epsilon: FloatArray,
        balances: Balances,
    ) -> tuple[FloatArray, FloatArray]:
        """Lowered: all by the same factor. Raised: all by the same ε; what is left of δ is divided over more ε.

        A raise first covers what was booked before a lowering. Else the others would get what one has used already.
        """
        new, old = wants_epsilon[self.of_member], has_epsilon[self.of_member]
        if kind == "lower":
            epsilon = balances.epsilon * np.divide(new, old, out=np.zeros(len(old)), where=old > 0.0)
            kept = np.where(np.isnan(epsilon), balances.epsilon, epsilon)
            with np.errstate(divide="ignore"):
                return epsilon, np.exp(equal_log_delta(kept, np.log(wants_delta), self.of_member))
        uncovered = np.maximum(amounts(balances.booked, EPSILON_SHIFT) - balances.epsilon, 0.0) * (balances.order == 0)
        missing = np.bincount(self.of_member, uncovered)[self.of_member]
        covered = np.minimum(1.0, np.divide(new - old, missing, out=np.ones(len(old)), where=missing > 0.0))
        more = np.maximum(new - old - missing, 0.0) / self.sizes[self.of_member]
        left, left_delta = left_parts(balances)
        joint = log_joint_delta(left, left_delta, self.of_member, len(self.sizes))
        part = np.minimum(left_delta, np.exp(equal_log_delta(left + np.nan_to_num(more), joint, self.of_member)))
        epsilon = balances.epsilon + covered * uncovered + more
        return epsilon, np.where(np.isnan(more), np.nan, balances.delta - left_delta + part)

    def _require_even(self, wants_delta: FloatArray, is_even: NDArray[np.bool_]) -> None:
        """Refuse to raise the δ of a person whose parts are uneven: how much it is by now is not known."""
        wrong = np.flatnonzero(~np.isnan(wants_delta) & ~is_even)
        if wrong.size:
            raise InputError(
                f"the records of {self._called(int(wrong[0]))} share what was left when some of them were added, so "
                "the δ of the person cannot be raised; nothing was changed. Raise the ε alone"
            )

    def _require_known_use(self, wants_epsilon: FloatArray, is_even: NDArray[np.bool_], balances: Balances) -> None:
        """Refuse to raise uneven parts if a Rényi account among them holds more than it allows by now."""
        over = is_overbooked(*balances.lifetime(), balances.booked, balances.booked_delta) & (balances.order > 0)
        wrong = np.flatnonzero(~np.isnan(wants_epsilon) & ~is_even & (np.bincount(self.of_member, over) > 0))
        if wrong.size:
            raise InputError(
                f"{self._called(int(wrong[0]))} has a Rényi account that was lowered below what is booked, beside "
                "records that share what was left; nothing was changed. Such a person's ε cannot be raised again"
            )

    def _worst(self, combine: np.ufunc, values: FloatArray) -> FloatArray:
        worst = np.full(len(self.sizes), -np.inf if combine is np.maximum else np.inf)
        combine.at(worst, self.of_member, values)
        return worst

    def _agreed(self, what: str, given: FloatArray) -> FloatArray:
        """Return one new value for each person; records of one person must not be given different ones."""
        agreed = np.full(len(self.sizes), np.nan)
        agreed[self.of_named] = given
        other = np.flatnonzero(~np.isnan(given) & (agreed[self.of_named] != given))
        if other.size:
            first = int(other[0])
            raise InputError(
                f"record {self.names[first]!r} is given {what} = {given[first]:g}, and another record of the same "
                f"person {agreed[self.of_named[first]]:g}. A budget is that of the whole person; give one"
            )
        return agreed

    def _require_direction(self, kind: ActionKind, what: str, new: FloatArray, current: FloatArray) -> None:
        """Refuse a lowering that would raise a budget, and a raise that would lower one."""
        sign = 1.0 if kind == "lower" else -1.0
        slack = np.where(self.sizes > 1, _TOLERANCE, 0.0) * np.abs(current)
        wrong = np.flatnonzero(sign * new > sign * current + slack)
        if wrong.size:
            person = int(wrong[0])
            other = {"lower": "raise", "raise": "lower"}[kind]
            raise InputError(
                f"{self._called(person)} has {what} = {current[person]:g}; {new[person]:g} would {other} it. Nothing "
                f"was changed; to {other} it, use `rpdp ledger {other}`"
            )

    def _require_booked(self, less: NDArray[np.bool_], parts: FloatArray, balances: Balances) -> None:
        """Refuse a raise after which the smaller part of δ would not cover what is booked already."""
        booked = np.ldexp(balances.booked_delta.astype(np.float64), -DELTA_SHIFT)
        short = np.flatnonzero(less & (parts < booked * (1.0 - _TOLERANCE)))
        if short.size:
            first = int(short[0])
            raise InputError(
                f"with that ε, {self._called(int(self.of_member[first]))} would keep δ = {parts[first]:g} for each "
                f"record, but {booked[first]:g} is booked already; nothing was changed. Raise the δ as well (--delta)"
            )

    def _called(self, person: int) -> str:
        name, size = self.names[int(np.flatnonzero(self.of_named == person)[0])], self.sizes[person]
        return f"record {name!r}" if size == 1 else f"the person of {name!r} ({size} records)"


def _subjects_of(store: RecordStore, named: Hashes) -> tuple[Hashes, NDArray[np.bool_]]:
    """Return the subject of each of these records, and whether it has one."""
    roster = Roster(named)
    subjects = np.zeros((len(named), 2), dtype=np.uint64)
    has_subject = np.zeros(len(named), dtype=bool)
    for chunk in store.chunks:
        held = store.subjects(chunk)
        if held is not None:
            at = roster.find(store.hashes(chunk))
            here = at != ABSENT
            subjects[at[here]], has_subject[at[here]] = held[here], True
    return subjects, has_subject
