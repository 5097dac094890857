"""The audit of a run of statistics or evaluation: canaries in one silo that releases noisy sums.

A canary is a record as visible as one can be: it contributes 1 to cells of its own, one in every measure, so it has the
largest norm that the plan allows. Nothing else reaches these cells. With weight w, the sum of its cells is, in units in
which its noise has deviation s,

    out: N(0, s²)          in: N(w, s²)

The path is the silo's own: admission, planning, weights, exact sums, noise, grid, outbox. The auditor reads the vector
that it releases. *Beside the records* their own measures are in the vector, too, and a canary has cells in one more;
*alone* every measure of the plan consists of canaries' cells.

Besides the tests of `rpdp.audit.conformance` there is one of purity: a canary has the weight that it would have as
the only record of the silo. A floor, or a noise, that real accounts move gives it another.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from rpdp.audit.analysis import analyse, require_confidence
from rpdp.audit.canaries import Canaries, canary_budgets
from rpdp.audit.canary_law import CanaryLaw
from rpdp.audit.conformance import Test
from rpdp.audit.observation import go_through
from rpdp.audit.silo_audit import CONFIDENCE, GROUPS, PER_GROUP, audit_account, group_probabilities
from rpdp.audit.tally import Tally
from rpdp.budgets import BudgetTable
from rpdp.checks import require_count
from rpdp.display import counts_repr
from rpdp.errors import InputError
from rpdp.federation import Policy, Silo
from rpdp.federation.cells import NO_CELL, Cells
from rpdp.federation.server import SumServer
from rpdp.federation.workers import one_thread
from rpdp.planning import MeasureSpec, Request, assign_allowed
from rpdp.planning.request import MOST_CELLS
from rpdp.sampling import Seeded
from rpdp.training import FlatModel, Records

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from rpdp.audit.audit_result import AuditResult
    from rpdp.federation import Update
    from rpdp.federation.cells import CellSource
    from rpdp.planning import Planner, PublicPlan

CANARY = "canary"
"""The kind of a measure that consists of canaries' cells."""


@dataclass(frozen=True)
class RequestSubject:
    """The run that is audited, as one of its silos sees it.

    Attributes:
        public: Its plan, with the request.
        name: Of the silo.
        planner: From budgets to weights, as in the run.
        kind: The class of its silos.
        source: The silo's own code and records, measured beside the canaries; None to audit canaries alone.
        budgets: ε of each of these records.
        held_out: Which of them are kept for evaluation; by default all.
        model: The model of an evaluation.
    """

    public: PublicPlan
    name: str = "audited"
    planner: Planner = assign_allowed
    kind: type[Silo] = Silo
    source: CellSource | None = None
    budgets: NDArray[np.float64] | None = None
    held_out: NDArray[np.bool_] | None = None
    model: nn.Module | None = None

    __repr__ = counts_repr

    def __post_init__(self) -> None:
        if self.public.request is None:
            raise InputError("this plan trains; audit it with audit_silo")
        if (self.source is None) != (self.budgets is None):
            raise InputError("give the silo's source and the budgets of its records, or neither")

    @property
    def records(self) -> int:
        """How many ordinary records there are."""
        return 0 if self.source is None else len(self.source)


class CanaryCells:
    """A silo's own cells, and after its records the canaries that are in, with cells of their own (a `CellSource`)."""

    def __init__(self, canaries: Canaries, request: Request, source: CellSource | None) -> None:
        self._canaries, self._source, self._request = canaries, source, request
        self._first = 0 if source is None else len(source)

    def __len__(self) -> int:
        return self._first + len(self._canaries.owners)

    @property
    def copies(self) -> int:
        """In how many measures a canary has cells."""
        return len(self._request.measures) if self._source is None else 1

    @property
    def planted(self) -> Request:
        """What the silo is asked: all its own measures and one of canaries, or as many of canaries."""
        own = () if self._source is None else self._request.measures
        return Request(self._request.estimator, (*own, *[MeasureSpec(CANARY, len(self._canaries))] * self.copies))

    def require(self, request: Request) -> None:
        """See `CellSource.require`."""
        if request != self.planted:
            raise InputError("the request is not the one that the canaries were planted in")
        if self._source is not None:
            self._source.require(self._request)

    def cells(self, request: Request, values: Tensor, rows: NDArray[np.int64]) -> Cells:
        """See `CellSource.cells`."""
        is_own = rows < self._first
        start = request.size - self.copies * len(self._canaries)
        owners = self._canaries.owners[rows[~is_own] - self._first]
        index = start + owners[:, None] + len(self._canaries) * np.arange(self.copies)
        planted = Cells(index.astype(np.int64), np.ones(index.shape))
        if self._source is None:
            return planted
        own = self._source.cells(self._request, values, rows[is_own])
        return _below(own, planted)

    @property
    def visible(self) -> float:
        """How much of a canary's norm its cells show: all of it alone, less beside other measures."""
        return math.sqrt(self.copies) / self.planted.norm

    def observed(self, update: Update) -> NDArray[np.float64]:
        """The sum of each canary's cells, in units in which its noise has deviation s."""
        cells = update.change.numpy()[-self.copies * len(self._canaries) :].reshape(self.copies, -1)
        return np.asarray(cells.sum(axis=0) / (math.sqrt(self.copies) * self.planted.norm))


def _below(first: Cells, second: Cells) -> Cells:
    """The cells of some records and then of others, with as many entries for each as the wider ones have."""
    width = max(first.index.shape[1], second.index.shape[1])

    def padded(cells: Cells) -> Cells:
        more = ((0, 0), (0, width - cells.index.shape[1]))
        return Cells(np.pad(cells.index, more, constant_values=NO_CELL), np.pad(cells.value, more))

    both = padded(first), padded(second)
    return Cells(np.concatenate([each.index for each in both]), np.concatenate([each.value for each in both]))


def audit_request(
    subject: RequestSubject,
    *,
    groups: Sequence[float] = GROUPS,
    per_group: int = PER_GROUP,
    seed: int = 0,
    confidence: float = CONFIDENCE,
    on_round: Callable[[int, int], None] | None = None,
) -> AuditResult:
    """Plant canaries, let the silo release the sums of all rounds, and see what can be proven. A simulation.

    Args:
        subject: The run.
        groups: ε of each group, all of which the run may take.
        per_group: Canaries of each group; fewer if the vector would get too long.
        seed: Of coins and noise.
        confidence: With which all lower bounds hold together.
        on_round: Called with the number of rounds done and in all.
    """
    began = time.perf_counter()
    require_confidence(confidence)
    require_count("seed", seed, least=0)
    assert subject.public.request is not None
    source = Seeded(seed)
    room = (MOST_CELLS - subject.public.request.size) // (len(subject.public.request.measures) * len(groups))
    canaries = Canaries.flip(groups, min(per_group, room), source.child("audit", "coins"))
    cells = CanaryCells(canaries, subject.public.request, subject.source)
    public = _with_canaries(subject.public, cells)
    with one_thread():
        tally, impure = _released(subject, public, canaries, cells, source, on_round)
    facts = analyse(tally, public, [public.schedule.rounds], confidence, source.child("audit", "design"))
    return replace(
        facts,
        view="rounds",
        purpose=public.purpose,
        tests=(*facts.tests, *impure),
        records=subject.records,
        kernel="sums",
        seed=seed,
        seconds=time.perf_counter() - began,
    )


def _with_canaries(public: PublicPlan, cells: CanaryCells) -> PublicPlan:
    """The same noise multiplier, at the norm of the vector with canaries; the run may take all of a budget."""
    return replace(
        public,
        request=cells.planted,
        clip_norm=cells.planted.norm,
        share=None,
        silos_per_person=1,
        model_fingerprint=None,
        schema_fingerprint=None,
    )


def _released(
    subject: RequestSubject,
    public: PublicPlan,
    canaries: Canaries,
    cells: CanaryCells,
    source: Seeded,
    on_round: Callable[[int, int], None] | None,
) -> tuple[Tally, list[Test]]:
    """What all rounds of the silo showed, and the tests of purity."""
    budgets = canary_budgets(canaries, subject.budgets)
    nothing = Records.of(torch.zeros(len(budgets), 1), torch.zeros(len(budgets)))
    own = np.ones(subject.records, dtype=np.bool_) if subject.held_out is None else subject.held_out
    silo = subject.kind(
        subject.name,
        nothing,
        budgets,
        policy=Policy.of(public),
        planner=subject.planner,
        account=audit_account(public, len(budgets)),
        measured={public.purpose: cells},
        held_out=np.append(own, np.ones(len(budgets) - len(own), dtype=np.bool_)),
    )
    name, rounds = f"audit-{public.fingerprint[:16]}", public.schedule.rounds
    model = None if public.purpose == "statistics" else subject.model or nn.Linear(1, 1)
    plan = silo.admit(name, public, model, None, source.child("silo", subject.name))
    weights = group_probabilities(plan, canaries)
    tally = Tally(canaries, [_law(weight, public, cells.visible) for weight in weights])

    def seen(number: int, update: Update | None) -> None:
        if update is not None:
            tally.add(cells.observed(update))
        if on_round is not None:
            on_round(number, rounds)

    values = torch.zeros(0) if model is None else FlatModel(model).values.data
    go_through(SumServer(name, public, values, [subject.name]), subject.name, silo.answer, seen)
    return tally, [_purity(subject, public, one, weight) for one, weight in zip(canaries.groups, weights, strict=True)]


def _law(weight: float, public: PublicPlan, visible: float) -> CanaryLaw:
    return CanaryLaw(1.0, public.noise_multiplier, contribution=weight * visible, weight=weight)


def _purity(subject: RequestSubject, public: PublicPlan, epsilon: float, weight: float) -> Test:
    """Whether a record with this budget has the same weight as the only record of the silo."""
    table, policy = BudgetTable(["alone"], [epsilon]), Policy.of(public)
    allowed = audit_account(public, 1).left(table, policy.lifetime_delta, policy.allowance(public))
    alone = float(subject.planner(public, table.ids, allowed).q[0])
    return Test(f"purity ε = {epsilon:g}", 1, abs(weight - alone), float(weight == alone))
