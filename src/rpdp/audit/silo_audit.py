"""The audit of one silo: canaries through the production path, then ε_L and conformance for each budget group."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rpdp.audit.analysis import analyse, require_confidence, require_fixed_rounds
from rpdp.audit.audit_result import VIEWS, AuditResult, View
from rpdp.audit.canaries import Canaries, canary_budgets
from rpdp.audit.canary_law import CanaryLaw
from rpdp.audit.observation import go_through, require_sums, round_observation, step_observation, watched
from rpdp.audit.planting import plant
from rpdp.audit.tally import Tally
from rpdp.checks import require_choice, require_count
from rpdp.display import counts_repr
from rpdp.errors import InputError
from rpdp.federation import Policy, Server, Silo, model_fingerprint
from rpdp.federation.workers import one_thread
from rpdp.ledger import MemoryAccount
from rpdp.planning import assign_allowed
from rpdp.sampling import Seeded
from rpdp.training import FlatModel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from rpdp.budgets import BudgetTable
    from rpdp.federation import Update
    from rpdp.planning import Planner, PublicPlan, SiloPlan
    from rpdp.sampling import Randomness
    from rpdp.training import PerRecordLoss, Records

GROUPS = (0.5, 1.0, 2.0, 5.0, 8.0)
PER_GROUP = 100_000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Subject:
    """The run that is audited, as one of its silos sees it.

    Attributes:
        public: Its plan; only the model's fingerprint is replaced by that of the model with canaries.
        name: Of the silo.
        planner: From budgets to probabilities, as in the run.
        kind: The class of its silos.
        model: Of the run; None to audit canaries alone.
        loss: Of the run.
        records: Ordinary records of the silo, drawn beside the canaries.
        budgets: ε of each of them.
    """

    public: PublicPlan
    name: str = "audited"
    planner: Planner = assign_allowed
    kind: type[Silo] = Silo
    model: nn.Module | None = None
    loss: PerRecordLoss | None = None
    records: Records | None = None
    budgets: NDArray[np.float64] | None = None

    __repr__ = counts_repr

    def __post_init__(self) -> None:
        parts = [self.model is None, self.loss is None, self.records is None, self.budgets is None]
        if any(parts) and not all(parts):
            raise InputError("give model, loss, records and budgets of the silo, or none of them")


def audit_silo(
    subject: Subject,
    *,
    groups: Sequence[float] = GROUPS,
    per_group: int = PER_GROUP,
    seed: int = 0,
    view: View = "steps",
    confidence: float = CONFIDENCE,
    records_per_person: int = 1,
    silos: int = 1,
    on_round: Callable[[int, int], None] | None = None,
) -> AuditResult:
    """Plant canaries in a silo, run its whole schedule, and see what can be proven. A simulation: no ledger is touched.

    Args:
        subject: The run.
        groups: ε of each budget group of canaries.
        per_group: Canaries of each group; about half of them are in.
        seed: Of coins, draws and noise.
        view: "steps" for an attacker who sees every local step, the strongest; "rounds" for one who has the released
            updates, which needs plain SGD.
        confidence: With which all lower bounds hold together.
        records_per_person: How many records a canary person has in a silo; the person's budget is divided among them.
        silos: In how many silos a canary person has records. The promise covers as many as the plan declares.
        on_round: Called with the number of rounds done and in all.
    """
    began = time.perf_counter()
    require_choice("view", view, VIEWS)
    require_confidence(confidence)
    require_count("seed", seed, least=0)
    if view == "rounds":
        require_sums(subject.public)
    source = Seeded(seed)
    require_count("silos", silos)
    if silos > 1 or records_per_person > 1:
        require_fixed_rounds(subject.public)
    canaries = Canaries.flip(groups, per_group, source.child("audit", "coins"), records_per_person)
    with one_thread():
        run = _Run(subject, canaries, view, source, silos)
        run.go(on_round)
    return run.result(confidence, seed, began)


class _Run:
    """One audited run, through one silo or several that do not see each other.

    A canary's coordinate shows the same law whatever the model is, so each silo may go through the run by itself.
    """

    def __init__(self, subject: Subject, canaries: Canaries, view: View, source: Randomness, silos: int) -> None:
        self._canaries, self._view, self._source = canaries, view, source
        self._ordinary = 0 if subject.records is None else len(subject.records)
        clip_norm = subject.public.clip_norm
        self._planted = plant(canaries, clip_norm, subject.model, subject.loss, subject.records)
        planted = model_fingerprint(self._planted.model)
        self.public = replace(subject.public, model_fingerprint=planted, schema_fingerprint=None)
        self._name = f"audit-{self.public.fingerprint[:16]}"
        budgets = canary_budgets(canaries, subject.budgets)
        self._silos, probabilities = [], []
        for number in range(silos):
            stream = source.child("silo", subject.name, *([number] if number else []))
            silo, plan = self._admitted(subject, budgets, stream)
            self._silos.append(silo)
            probabilities.append(group_probabilities(plan, canaries))
        assert all(one == probabilities[0] for one in probabilities)  # the same plan, and the same budgets
        self.tally = Tally(canaries, canary_laws(self.public, probabilities[0], canaries, view))

    def _admitted(self, subject: Subject, budgets: BudgetTable, stream: Randomness) -> tuple[Silo, SiloPlan]:
        kind = watched(subject.kind, self._step) if self._view == "steps" else subject.kind
        silo = kind(
            subject.name,
            self._planted.records,
            budgets,
            policy=Policy.of(self.public),
            planner=subject.planner,
            account=audit_account(self.public, len(budgets)),
        )
        return silo, silo.admit(self._name, self.public, self._planted.model, self._planted.loss, stream)

    def go(self, on_round: Callable[[int, int], None] | None) -> None:
        """All rounds of all silos."""
        done = 0
        total = self.public.schedule.rounds * len(self._silos)

        def seen(number: int, update: Update | None) -> None:
            if update is not None and self._view == "rounds":
                self.tally.add(round_observation(update, self._planted, self.public))
            if on_round is not None:
                on_round(done + number, total)

        for silo in self._silos:
            values = FlatModel(self._planted.model).values.data
            go_through(Server(self._name, self.public, values, [silo.name]), silo.name, silo.answer, seen)
            done += self.public.schedule.rounds

    def _step(self, release: Tensor, drawn: NDArray[np.int64]) -> None:
        self.tally.add(step_observation(release, self._planted, self.public))
        self.tally.add_draws(self._canaries.owners[drawn[drawn >= self._ordinary] - self._ordinary])

    def result(self, confidence: float, seed: int | None, began: float) -> AuditResult:
        """Analyse what was observed."""
        joined = [len(silo.joined) for silo in self._silos]
        kernel = self._silos[0].kernel_name
        facts = analyse(self.tally, self.public, joined, confidence, self._source.child("audit", "design"))
        return replace(facts, records=self._ordinary, kernel=kernel, seed=seed, seconds=time.perf_counter() - began)


def audit_account(public: PublicPlan, records: int) -> MemoryAccount:
    """An account as the plan asks for. Sums price one run most closely, so they leave the audit most to find."""
    return MemoryAccount(records, account=public.account or "sums", silos_per_person=public.silos_per_person)


def canary_laws(public: PublicPlan, probabilities: Sequence[float], canaries: Canaries, view: View) -> list[CanaryLaw]:
    """The law of an observation for each group, from the q of its canaries' records."""
    releases = 1 if view == "steps" else public.schedule.local_steps
    return [CanaryLaw(q, public.noise_multiplier, releases, canaries.records) for q in probabilities]


def group_probabilities(plan: SiloPlan, canaries: Canaries) -> list[float]:
    """The q of each group's canaries, which are the last records of the silo."""
    owners = canaries.owners
    q, active = plan.q[-len(owners) :], plan.active_rounds[-len(owners) :]
    if (active[q > 0.0] < plan.public.schedule.rounds).any():
        raise InputError(
            f"estimator {plan.estimator} ends some records before the last round; the audit needs records that are "
            "active in all rounds: use estimator certified or binary_search"
        )
    found = []
    for number, epsilon in enumerate(canaries.groups):
        own = np.unique(q[canaries.group_of(owners) == number])
        if own.size != 1:
            raise InputError(f"the plan gives {own.size} probabilities to records of one budget, ε = {epsilon:g}")
        found.append(float(own[0]))
    return found
