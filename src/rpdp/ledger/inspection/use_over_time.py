"""The use of lifetime budgets by group of budgets and by run: what is spent, held and left, and when it was booked.

One pass over all accounts, a chunk at a time: memory does not grow with the ledger, but for eight bytes for each record
of a ledger with subjects. On the way an evenly spaced sample of accounts is kept: records are stored by their keyed
hashes, so any evenly spaced rows are a random sample. Forecasts are computed from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rpdp.display import counts_repr
from rpdp.ledger.inspection.account_chunks import all_accounts
from rpdp.ledger.inspection.overview import EDGES
from rpdp.ledger.record_accounts import RecordAccounts
from rpdp.ledger.store.fixed_point import EPSILON_SHIFT, amounts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.ledger.account import RunState
    from rpdp.ledger.account_terms import AccountTerms
    from rpdp.ledger.inspection.account_chunks import Accounts
    from rpdp.ledger.ledger_base import LedgerBase
    from rpdp.ledger.progress_callback import Progress
    from rpdp.ledger.store.fixed_point import FloatArray, UnitArray
    from rpdp.ledger.store.record_store import Chunk

LARGEST_SAMPLE = 20_000
_GROUPS = len(EDGES) + 1


@dataclass(frozen=True)
class RunUse:
    """What a run took of the lifetime budgets of each group: the mean share over all records of the group."""

    run: str
    year: int
    state: RunState
    shares: FloatArray

    __repr__ = counts_repr


@dataclass(frozen=True)
class AccountSample:
    """Some accounts of a ledger, and for how many records each stands. Sensitive."""

    epsilon: FloatArray
    delta: FloatArray
    order: NDArray[np.uint8]
    booked: UnitArray
    booked_delta: UnitArray
    withdrawn: NDArray[np.bool_]
    weight: float
    terms: AccountTerms

    __repr__ = counts_repr

    @property
    def is_everybody(self) -> bool:
        """Whether all records are in it."""
        return self.weight == 1.0

    def accounts(self, *, unused: bool = False) -> RecordAccounts:
        """The accounts as they are; or as if nothing had ever been booked, and nobody had withdrawn."""
        found = RecordAccounts(self.epsilon, self.delta, self.order, terms=self.terms)
        if not unused:
            found.booked, found.booked_delta, found.withdrawn = self.booked, self.booked_delta, self.withdrawn
        return found


@dataclass(frozen=True)
class UseOverTime:
    """The use of lifetime budgets. Arrays have an entry for each group of `overview.EDGES`, and one for what is above.

    Attributes:
        records: How many records there are.
        persons: How many persons they are of; None in a ledger without subjects.
        withdrawn: How many records have withdrawn.
        in_group: Records by group.
        off: Records that are not drawn any more.
        exhausted: Records of which nothing is left, although they may be drawn.
        used: The mean share of the lifetime budget that is booked.
        before: The mean share that was booked in a ledger that was lost.
        runs: What each run took that was not cancelled.
        sample: Some of the accounts.
    """

    records: int
    persons: int | None
    withdrawn: int
    in_group: NDArray[np.int64]
    off: NDArray[np.int64]
    exhausted: NDArray[np.int64]
    used: FloatArray
    before: FloatArray
    runs: tuple[RunUse, ...]
    sample: AccountSample

    __repr__ = counts_repr

    @property
    def held(self) -> FloatArray:
        """The mean share that runs hold which have not begun."""
        held = [run.shares for run in self.runs if run.state == "held"]
        return np.asarray(np.sum([np.zeros(_GROUPS), *held], axis=0))

    def by_year(self) -> dict[int, FloatArray]:
        """The mean share of each group that the runs of a year have spent; what is held is not."""
        years: dict[int, FloatArray] = {}
        for run in self.runs:
            if run.state != "held":
                years[run.year] = years.get(run.year, np.zeros(_GROUPS)) + run.shares
        return dict(sorted(years.items()))


def group_name(number: int) -> str:
    """A group of budgets in words."""
    if number == 0:
        return f"ε up to {EDGES[0]:g}"
    return f"ε above {EDGES[-1]:g}" if number == len(EDGES) else f"ε {EDGES[number - 1]:g} to {EDGES[number]:g}"


def use_over_time(ledger: LedgerBase, progress: Progress) -> UseOverTime:
    """Count the use of all budgets of a ledger."""
    with ledger.reading():
        return _Count(ledger).all(progress)


class _Count:
    """Sums by group, gathered chunk by chunk."""

    def __init__(self, ledger: LedgerBase) -> None:
        self._ledger = ledger
        self._step = max(1, -(-len(ledger.records) // LARGEST_SAMPLE))
        self._counts = {name: np.zeros(_GROUPS, dtype=np.int64) for name in ("in_group", "off", "exhausted")}
        self._used, self._before = np.zeros(_GROUPS), np.zeros(_GROUPS)
        self._withdrawn = 0
        self._runs = [
            (one, ledger.runs.members.of(one), ledger.runs.status_of(one).state, np.zeros(_GROUPS))
            for one in ledger.runs.booked()
        ]
        self._sampled: list[tuple[NDArray[np.generic], ...]] = []
        self._persons: list[NDArray[np.uint64]] = []

    def all(self, progress: Progress) -> UseOverTime:
        """Count everything."""
        ledger = self._ledger
        for chunk, accounts in zip(ledger.records.chunks, all_accounts(ledger, progress), strict=True):
            self._add(chunk, accounts)
        counted = np.maximum(self._counts["in_group"], 1)
        columns = [np.concatenate(column) for column in zip(*self._sampled, strict=True)]
        epsilon, delta, order, booked, booked_delta, withdrawn = columns
        weight = len(ledger.records) / len(epsilon)
        persons = np.unique(np.concatenate(self._persons)).size if self._persons else None
        return UseOverTime(
            records=len(ledger.records),
            persons=persons,
            withdrawn=self._withdrawn,
            **self._counts,
            used=self._used / counted,
            before=self._before / counted,
            runs=tuple(
                RunUse(one.run, int(one.at[:4]), state, shares / counted) for one, _, state, shares in self._runs
            ),
            sample=AccountSample(epsilon, delta, order, booked, booked_delta, withdrawn, weight, ledger.terms),
        )

    def _add(self, chunk: Chunk, accounts: Accounts) -> None:
        ledger = self._ledger
        group = np.searchsorted(np.asarray(EDGES) * (1.0 + 1e-12), accounts.epsilon)
        budget, _ = accounts.lifetime()
        is_off = accounts.is_off
        exhausted = (accounts.left()[0] <= 0.0) & ~is_off
        for name, chosen in (("in_group", np.ones_like(is_off)), ("off", is_off), ("exhausted", exhausted)):
            self._counts[name] += np.bincount(group[chosen], minlength=_GROUPS)
        self._withdrawn += int(accounts.withdrawn.sum())
        self._used += np.bincount(group, accounts.share_used, _GROUPS)
        carried, _ = ledger.records.carried(chunk)
        if carried.any():
            self._before += np.bincount(group, _shares(carried, budget), _GROUPS)
        for admission, classes, _, shares in self._runs:
            index = ledger.runs.members.index(admission.seq, chunk, classes)
            if index is not None:
                shares += np.bincount(group, _shares(classes.booked[index], budget), _GROUPS)
        subjects = ledger.records.subjects(chunk)
        if subjects is not None:
            self._persons.append(np.array(subjects[:, 0]))  # half of a hash: two persons of 10⁷ share it in 3 of 10⁶
        rows = np.arange(-chunk.start % self._step, chunk.count, self._step)
        kept = (accounts.epsilon, accounts.delta, accounts.order, accounts.booked, accounts.booked_delta)
        self._sampled.append(tuple(column[rows] for column in (*kept, accounts.withdrawn)))


def _shares(booked: UnitArray, budget: FloatArray) -> FloatArray:
    """What is booked as shares of budgets; of no budget, nothing."""
    return np.divide(amounts(booked, EPSILON_SHIFT), budget, out=np.zeros(len(budget)), where=budget > 0.0)
