"""An overview of a ledger in numbers: what a steward sees first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rpdp.ledger.inspection.account_chunks import all_accounts
from rpdp.ledger.stewardship.pruning import updates_kept
from rpdp.ledger.store.chain import SUCCEED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.ledger.account import RunStatus
    from rpdp.ledger.ledger_base import LedgerBase
    from rpdp.ledger.progress_callback import Progress
    from rpdp.ledger.store.chain import PublicHead
    from rpdp.ledger.store.run_book import Admission
    from rpdp.ledger.store.sampling_classes import Classes

EDGES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Upper limits (inclusive) of the groups by budget in force; the last group has none."""


@dataclass(frozen=True)
class BudgetGroup:
    """The records whose budgets lie between two limits. `high` is None for the last group.

    `mean_spent` is the ε spent in sum accounts; a Rényi account spends none, and counts as 0 there.
    """

    low: float
    high: float | None
    records: int
    off: int
    exhausted: int
    mean_epsilon: float
    mean_spent: float
    mean_share_used: float


@dataclass(frozen=True)
class RunOverview:
    """A run and what it cost, or would have cost if it was cancelled.

    `is_covered` is False if the steward cancelled it without a public reason: what led to that is outside the promise.
    """

    status: RunStatus
    public_plan: str
    schedule: str
    admitted: str
    delta: float
    purpose: str
    study: str
    share: float | None
    drawn: int
    classes: int
    largest_cost: float
    mean_cost: float
    cancelled_by: str | None = None
    public_reason: str = ""
    is_covered: bool = True


@dataclass(frozen=True)
class LostLedger:
    """The lost ledger that this one succeeds, as the succession was booked.

    Attributes:
        ledger: Its id.
        reason: What happened to it.
        actor: Who made the successor.
        runs_since: How many runs may have come after its last export; None if everything is booked as spent.
    """

    ledger: str
    reason: str
    actor: str
    runs_since: int | None


@dataclass(frozen=True)
class Overview:
    """The whole ledger in numbers."""

    ledger: str
    kind: str
    created: str
    lifetime_delta: float
    account: str
    silos_per_person: int
    has_steward_key: bool
    records: int
    renyi_accounts: int
    withdrawn: int
    switched_off: int
    never_used: int
    events: int
    head: PublicHead
    pending_actions: int
    updates: int
    update_bytes: int
    groups: tuple[BudgetGroup, ...]
    runs: tuple[RunOverview, ...]
    succeeds: LostLedger | None = None


class _Sums:
    """Counts and sums by group, gathered chunk by chunk."""

    def __init__(self) -> None:
        size = len(EDGES) + 1
        self.records, self.off, self.exhausted = (np.zeros(size, dtype=np.int64) for _ in range(3))
        self.epsilon, self.spent, self.used = (np.zeros(size) for _ in range(3))

    def groups(self) -> tuple[BudgetGroup, ...]:
        found = []
        for index in np.flatnonzero(self.records):
            count = int(self.records[index])
            found.append(
                BudgetGroup(
                    0.0 if index == 0 else EDGES[index - 1],
                    None if index == len(EDGES) else EDGES[index],
                    count,
                    int(self.off[index]),
                    int(self.exhausted[index]),
                    float(self.epsilon[index] / count),
                    float(self.spent[index] / count),
                    float(self.used[index] / count),
                )
            )
        return tuple(found)


def overview_of(ledger: LedgerBase, progress: Progress) -> Overview:
    """Summarise a ledger in one pass over all accounts."""
    kept = updates_kept(ledger.database)
    sums = _Sums()
    withdrawn = off = never = renyi = 0
    for accounts in all_accounts(ledger, progress):
        group = np.searchsorted(np.asarray(EDGES) * (1.0 + 1e-12), accounts.epsilon)
        is_off = accounts.is_off
        withdrawn += int(accounts.withdrawn.sum())
        off += int(is_off.sum())
        never += int((accounts.booked == 0).sum())
        sums.records += _count(group, np.ones(len(group), dtype=bool))
        sums.off += _count(group, is_off)
        sums.exhausted += _count(group, (accounts.left()[0] <= 0.0) & ~is_off)
        sums.epsilon += np.bincount(group, accounts.epsilon, len(EDGES) + 1)
        sums.spent += np.bincount(group, np.nan_to_num(accounts.spent_epsilon), len(EDGES) + 1)
        sums.used += np.bincount(group, accounts.share_used, len(EDGES) + 1)
        renyi += int(accounts.is_renyi.sum())
    return Overview(
        ledger=ledger.id,
        kind=ledger.kind,
        created=ledger.created,
        lifetime_delta=ledger.lifetime_delta,
        account=ledger.account,
        silos_per_person=ledger.silos_per_person,
        has_steward_key=ledger.steward is not None,
        records=len(ledger.records),
        renyi_accounts=renyi,
        withdrawn=withdrawn,
        switched_off=off,
        never_used=never,
        events=ledger.chain.seq,
        head=ledger.public_head(),
        pending_actions=len(ledger.pending()),
        updates=sum(one.count for one in kept),
        update_bytes=sum(one.bytes for one in kept),
        groups=sums.groups(),
        runs=_runs(ledger),
        succeeds=_succeeds(ledger),
    )


def _succeeds(ledger: LedgerBase) -> LostLedger | None:
    for event in ledger.chain.events(SUCCEED):
        facts = event.facts
        return LostLedger(facts["predecessor"]["ledger"], facts["reason"], facts["actor"], facts["runs_since"])
    return None


def _count(group: NDArray[np.int64], chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
    return np.bincount(group[chosen], minlength=len(EDGES) + 1)


def _runs(ledger: LedgerBase) -> tuple[RunOverview, ...]:
    found = []
    for admission, status in zip(ledger.runs.admissions(), ledger.runs.status(), strict=True):
        classes = ledger.runs.members.of(admission)
        counts = np.zeros(len(classes), dtype=np.int64)
        for chunk in ledger.records.chunks:
            index = ledger.runs.members.index(admission.seq, chunk, classes)
            if index is not None:
                counts += np.bincount(index, minlength=len(classes))
        cancelled = ledger.runs.cancellation(admission.run)
        costs = _run_costs(admission, classes)
        mean = float(costs @ counts) / admission.drawn if admission.drawn else 0.0
        found.append(
            RunOverview(
                status,
                admission.public.fingerprint,
                admission.public.describe(),
                admission.at,
                admission.public.delta,
                admission.public.purpose,
                admission.public.study,
                admission.share,
                admission.drawn,
                len(classes) - 1,
                float(costs.max()),
                mean,
                None if cancelled is None else cancelled.by,
                "" if cancelled is None else cancelled.reason,
                cancelled is None or cancelled.is_covered,
            )
        )
    return tuple(found)


def _run_costs(admission: Admission, classes: Classes) -> NDArray[np.float64]:
    """Return what the run alone costs each class, as ε: reserved in sum accounts, at the plan's δ in Rényi accounts."""
    costs = classes.cost.copy()
    rows = classes.order > 0
    if rows.any():
        costs[rows] = admission.public.curve.epsilon_above(classes.q[rows])
    return costs
