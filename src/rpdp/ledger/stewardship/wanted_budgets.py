"""Bring many budgets to what their persons want, in one go: what must change is worked out, shown, then submitted.

| a person wants          | and has        | action                                                   |
|-------------------------|----------------|----------------------------------------------------------|
| no use any more         | not withdrawn  | withdraw                                                 |
| a smaller ε or δ        | more           | lower                                                    |
| a larger ε              | less           | raise, with the steward's signature                      |
| a budget                | withdrawn      | reconsent, with the signature, and what the budget needs |
| what is in force        |                | none                                                     |

A δ that would have to rise stays as it is, which is less than what was agreed to: it is fixed in a Rényi account, and
for a person with several records it follows from the parts. Everything is checked before the first action is submitted;
withdrawals are submitted first. Asked again, nothing is left to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from rpdp.display import counts_repr
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.ledger.stewardship.actions import SIGNED, Action
from rpdp.ledger.stewardship.actors import checked_actor, checked_reason
from rpdp.ledger.stewardship.persons import Persons
from rpdp.ledger.stewardship.steward_actions import StewardActions
from rpdp.ledger.store.roster import ABSENT, Roster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rpdp.ledger.stewardship.actions import ActionKind
    from rpdp.ledger.stewardship.steward_keys import StewardKey
    from rpdp.ledger.store.fixed_point import FloatArray

    Rows = NDArray[np.int64]

_TOLERANCE = 1e-9
"""Relative: a person's budget is computed back from the parts of the records."""


@dataclass(frozen=True, eq=False)
class WantedBudgets:
    """What persons want: one row each. An ε of NaN: no use at all, any more.

    Attributes:
        names: Of the persons: subjects of the ledger, or, without subjects, records.
        epsilon: The ε of each, for life and all silos.
        delta: The δ of each.
        are_subjects: Whether the names are subjects.
    """

    names: Sequence[str]
    epsilon: FloatArray
    delta: FloatArray
    are_subjects: bool = True

    __repr__ = counts_repr


@dataclass(frozen=True, eq=False)
class BudgetChanges:
    """What has to change, by the kind of change. All but `actions` are rows of what was wanted.

    Attributes:
        rows: For each kind of action, the persons whom it concerns; a person may be in several.
        unchanged: Those for whom nothing changes.
        unknown: Those who are not in the ledger.
        delta_stays: Those whose δ would have to rise, and stays.
        actions: The actions, in order. None of them is submitted yet.
    """

    rows: dict[ActionKind, Rows]
    unchanged: Rows
    unknown: Rows
    delta_stays: Rows
    actions: tuple[Action, ...]

    __repr__ = counts_repr

    @property
    def signed(self) -> int:
        """For how many persons the steward has to sign."""
        return len(np.unique(np.concatenate([self.rows[kind] for kind in SIGNED])))


class BulkActions(StewardActions):
    """Changes of many budgets at once."""

    def changes(
        self, wanted: WantedBudgets, *, only_less: bool = False, reason: str = "", actor: str | None = None
    ) -> BudgetChanges:
        """Work out what has to change; nothing does.

        Args:
            wanted: What persons want.
            only_less: Leave out whatever allows more, which needs a signature.
            reason: Of the actions.
            actor: Who acts, by default the user of this process.
        """
        why, who = checked_reason("import consent", reason, is_needed=False), checked_actor(actor)
        if len(set(wanted.names)) < len(wanted.names):
            raise InputError("a person is named more than once; give each person one budget")
        with self.reading():
            persons, row = self._wanted_persons(wanted)
        if not len(row):
            none = np.zeros(0, dtype=np.int64)
            kinds: tuple[ActionKind, ...] = ("withdraw", "lower", "reconsent", "raise")
            return BudgetChanges(dict.fromkeys(kinds, none), none, np.arange(len(wanted.names)), none, ())
        return self._worked_out(_Wishes(persons, row, wanted), only_less, why, who)

    def bring_about(
        self,
        wanted: WantedBudgets,
        *,
        key: StewardKey | None = None,
        only_less: bool = False,
        reason: str,
        actor: str | None = None,
    ) -> BudgetChanges:
        """Submit whatever has to change, all of it or nothing; it works beside a running agent, like every action."""
        with self._turn, self.inbox.turn():
            found = self.changes(wanted, only_less=only_less, reason=reason, actor=actor)
            if found.signed and self.steward is None:
                raise PrivacyRefusal(
                    f"{found.signed:,} persons would be allowed more, but this ledger was created without a steward "
                    "key, so nothing was changed. Give --only-less to withdraw and lower alone"
                )
            if found.signed and key is None:
                raise PrivacyRefusal(
                    f"{found.signed:,} persons would be allowed more, which needs the steward's signature; nothing was "
                    "changed. Give --steward-key, or --only-less to withdraw and lower alone"
                )
            signed = [one.signed(key) if key is not None and one.kind in SIGNED else one for one in found.actions]
            for action in signed:
                action.require_signature(self.steward)
            for action in signed:
                self.submit(action)
        return found

    def _wanted_persons(self, wanted: WantedBudgets) -> tuple[Persons, Rows]:
        """The persons who are in the ledger, and the row of each in what was wanted."""
        ids = pa.chunked_array([pa.array(list(wanted.names), pa.string())])
        if not wanted.are_subjects:
            hashes = self.key.records(ids)
            found = self.records.places(Roster(hashes))
            row = np.unique(found[found != ABSENT]).astype(np.int64)
            persons = Persons.of(self.records, hashes[row], [wanted.names[one] for one in row])
            if len(persons.sizes) < len(row):
                raise InputError(
                    "several of these records belong to one person in the ledger; name persons, not records: say "
                    'ledger_id = "subject" in the map'
                )
            order = np.empty(len(row), dtype=np.int64)
            order[persons.of_named] = row
            return persons, order
        people = Roster(self.key.subjects(ids))
        members, of_member = [np.zeros((0, 2), dtype=np.uint64)], [np.zeros(0, dtype=np.int64)]
        for chunk in self.records.chunks:
            held = self.records.subjects(chunk)
            if held is not None:
                at = people.find(held)
                members.append(self.records.hashes(chunk)[at != ABSENT])
                of_member.append(at[at != ABSENT])
        row, of_person = np.unique(np.concatenate(of_member), return_inverse=True)
        names = [wanted.names[one] for one in row]
        return Persons(names, np.arange(len(row)), np.concatenate(members), of_person.reshape(-1)), row

    def _worked_out(self, wishes: _Wishes, only_less: bool, why: str, who: str) -> BudgetChanges:
        persons, row = wishes.persons, wishes.row
        balances = self._balances_of(persons)
        now, now_delta, is_even = persons.budgets(balances)
        parts = self.terms.parts
        ends = np.isnan(wishes.epsilon)
        off = balances.withdrawn
        some_off = np.bincount(persons.of_member, off, len(row)) > 0
        all_off = np.bincount(persons.of_member, ~off, len(row)) == 0
        withdraw, reconsent = ends & ~all_off, ~ends & some_off
        less = _differs(wishes.epsilon / parts, now) < 0
        more = _differs(wishes.epsilon / parts, now) > 0
        less_delta = _differs(wishes.delta / parts, now_delta) < 0
        renyi = np.bincount(persons.of_member, balances.order > 0, len(row)) > 0
        wants_more_delta = _differs(wishes.delta / parts, now_delta) > 0
        more_delta = wants_more_delta & ~renyi & is_even & ((persons.sizes == 1) | more)
        lower, higher = less | less_delta, more | more_delta
        if only_less:
            reconsent, higher, more_delta = (np.zeros(len(row), dtype=bool) for _ in range(3))
        acts = _Acts(self.id, why, who)
        actions = acts.named("withdraw", persons.members[withdraw[persons.of_member]])
        actions += self._changed("lower", wishes, lower, less, less_delta, acts, actions)
        actions += acts.named("reconsent", persons.members[reconsent[persons.of_member] & off])
        actions += self._changed("raise", wishes, higher, more & higher, more_delta, acts, actions)
        kinds: dict[ActionKind, Rows] = {
            "withdraw": row[withdraw],
            "lower": row[lower],
            "reconsent": row[reconsent],
            "raise": row[higher],
        }
        quiet = ~(withdraw | lower | reconsent | higher)
        unknown = np.setdiff1d(np.arange(len(wishes.wanted.names)), row)
        return BudgetChanges(kinds, row[quiet], unknown, row[wants_more_delta & ~more_delta], tuple(actions))

    def _changed(
        self,
        kind: ActionKind,
        wishes: _Wishes,
        chosen: NDArray[np.bool_],
        by_epsilon: NDArray[np.bool_],
        by_delta: NDArray[np.bool_],
        acts: _Acts,
        given: Sequence[Action],
    ) -> list[Action]:
        """The actions that lower or raise the budgets of the chosen persons, after those given."""
        found: list[Action] = []
        for with_delta in (False, True):  # a δ among them is for all, and not every account takes one
            some = chosen & (by_delta == with_delta)
            if some.any():
                epsilon = np.where(by_epsilon, wishes.epsilon, np.nan)[some]
                delta = np.where(by_delta, wishes.delta, np.nan)[some]
                persons = wishes.only(some)
                found += self._new_budgets(kind, persons, epsilon, delta, acts.reason, acts.actor, [*given, *found])
        return found


@dataclass(frozen=True, eq=False)
class _Wishes:
    """What was wanted, for the persons in the ledger."""

    persons: Persons
    row: Rows
    wanted: WantedBudgets

    __repr__ = counts_repr

    @property
    def epsilon(self) -> FloatArray:
        return self.wanted.epsilon[self.row]

    @property
    def delta(self) -> FloatArray:
        return np.where(np.isnan(self.epsilon), np.nan, self.wanted.delta[self.row])

    def only(self, some: NDArray[np.bool_]) -> Persons:
        """Some of the persons, numbered anew."""
        number = np.cumsum(some) - 1
        chosen = some[self.persons.of_member]
        names = [self.wanted.names[one] for one in self.row[some]]
        of_member = number[self.persons.of_member[chosen]]
        return Persons(names, np.arange(len(names)), self.persons.members[chosen], of_member)


@dataclass(frozen=True)
class _Acts:
    """What all actions of one import have in common."""

    ledger: str
    reason: str
    actor: str

    def named(self, kind: ActionKind, hashes: NDArray[np.uint64]) -> list[Action]:
        """An action that changes no budget, unless it names nobody."""
        if not len(hashes):
            return []
        unchanged = np.full(len(hashes), np.nan)
        return [Action(kind, self.ledger, hashes, unchanged, unchanged, reason=self.reason, actor=self.actor)]


def _differs(wanted: FloatArray, has: FloatArray) -> NDArray[np.int64]:
    """−1 where less is wanted than there is, 1 where more, 0 where it is the same or nothing is wanted."""
    with np.errstate(invalid="ignore"):
        less, more = wanted < has * (1.0 - _TOLERANCE), wanted > has * (1.0 + _TOLERANCE)
    return more.astype(np.int64) - less.astype(np.int64)
