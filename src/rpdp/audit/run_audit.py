"""The audit of a study file in two parts, because no single set-up is both faithful and sharp, and on request a third.

*Beside the records*: a thousand canaries of each group among the real records of one silo, in the run's own model.
Every step computes what a step of the run computes, so this is the faithful part; conformance needs no more canaries.

*Alone*: a hundred thousand canaries of each group without model and records, through the same plan, sampler, kernel,
clipping, noise and release. This is the sharp part: a lower bound on ε needs numbers.

Both are simulations.

*Served*, on request: canaries are the records of a silo that is served as in a deployment, see
`rpdp.audit.served_audit`. This part is not a simulation, and the only one with a ledger, which holds canaries only.

Ledgers named in the study file are not opened, and no account of a real record changes.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rpdp.audit.membership_inference import RUNS, MembershipResult, audit_model
from rpdp.audit.risk_comparison import RiskComparison, advice, compare_risk
from rpdp.audit.served_audit import SERVED, audit_served
from rpdp.audit.silo_audit import CONFIDENCE, GROUPS, PER_GROUP, Subject, audit_silo
from rpdp.checks import require_choice, require_count
from rpdp.errors import InputError
from rpdp.methods import method_named
from rpdp.studies.building import build
from rpdp.training import SlowKernelWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rpdp.audit.audit_result import AuditResult, View
    from rpdp.federation import Silo
    from rpdp.planning import PublicPlan
    from rpdp.studies.building import PreparedRun
    from rpdp.studies.study_file import MethodSettings, StudyFile

FORMAT = "rpdp-audit/1"

BESIDE = 1_000
"""Canaries of each group beside the records."""


@dataclass(frozen=True)
class RunAudit:
    """All parts of the audit of a run.

    Attributes:
        method: Of the run; the purpose of one with a request.
        silo: Whose records the canaries were planted beside.
        beside: The faithful part.
        alone: The sharp part.
        served: The part as in a deployment, if it was asked for.
    """

    method: str
    silo: str
    beside: AuditResult
    alone: AuditResult
    served: AuditResult | None = None

    @property
    def parts(self) -> tuple[AuditResult, ...]:
        """The parts that were run: two or three."""
        return (self.beside, self.alone) if self.served is None else (self.beside, self.alone, self.served)

    @property
    def passed(self) -> bool:
        """Whether no part found anything."""
        return all(part.passed for part in self.parts)

    @property
    def confidence(self) -> float:
        """With which all lower bounds of all parts hold together."""
        return sum(part.confidence for part in self.parts) - (len(self.parts) - 1)

    def verdict(self) -> list[str]:
        """All parts in sentences."""
        beside, alone = self.beside, self.alone
        named = {
            f"Beside {beside.records:,} records of silo {self.silo}, with {beside.planted}": beside,
            f"Alone, with {alone.planted}": alone,
        }
        if self.served is not None:
            named[f"Served as in a deployment, with {self.served.canaries:,} canaries"] = self.served
        return [f"{name}: {' '.join(part.verdict())}" for name, part in named.items()]

    def proven_served(self) -> list[str]:
        """ε proven of each group, served; its own coin may let it join other rounds, and then another ε is allowed."""
        if self.served is None:
            return []
        pairs = zip(self.served.groups, self.alone.groups, strict=True)
        return [
            f"{own.bound.epsilon:.3g}" + ("" if own.allowed == alone.allowed else f" (allowed {own.allowed:.3g})")
            for own, alone in pairs
        ]

    def to_json(self) -> dict[str, Any]:
        """Plain values. With a served part it is no simulation, though still no account of a real record changed."""
        return {
            "format": FORMAT,
            "kind": "canaries",
            "is_simulation": all(part.is_simulation for part in self.parts),
            "method": self.method,
            "silo": self.silo,
            "passed": self.passed,
            "confidence": self.confidence,
            "verdict": self.verdict(),
            "beside": self.beside.to_json(),
            "alone": self.alone.to_json(),
            "served": None if self.served is None else self.served.to_json(),
        }


def audit_run(
    spec: StudyFile,
    settings: MethodSettings,
    seed: int,
    *,
    silo: str | None = None,
    groups: Sequence[float] = GROUPS,
    per_group: int = PER_GROUP,
    view: View = "steps",
    served: bool = False,
    records_per_person: int = 1,
    silos_per_person: int | None = None,
    on_round: Callable[[str, int, int], None] | None = None,
) -> RunAudit:
    """Audit the run that a study file describes.

    Args:
        spec: The study file.
        settings: Of the method.
        seed: Of the simulation.
        silo: Whose records to plant canaries beside; by default the one with the most.
        groups: ε of each group.
        per_group: Canaries of each group, alone; beside the records there are at most a thousand, served ten thousand.
        view: See `audit_silo`; of the first two parts.
        served: Whether to serve a silo as well, as in a deployment.
        records_per_person: How many records a canary person has in a silo.
        silos_per_person: In how many silos a canary person has records; by default in as many as the plan declares.
        on_round: Called with the part, and the number of rounds done and in all.
    """
    if served:
        _require_servable(settings.method, records_per_person)
    built = _built(spec, settings, seed)
    subject = subject_of(built, silo)
    silos = _silos(subject.public, silos_per_person)
    bare = Subject(subject.public, subject.name, subject.planner, subject.kind)
    confidence = 1.0 - (1.0 - CONFIDENCE) / (3.0 if served else 2.0)

    def told(name: str) -> Callable[[int, int], None]:
        return lambda done, total: None if on_round is None else on_round(name, done, total)

    def part(name: str, one: Subject, count: int) -> AuditResult:
        return audit_silo(
            one,
            groups=groups,
            per_group=count,
            seed=seed,
            view=view,
            confidence=confidence,
            records_per_person=records_per_person,
            silos=silos,
            on_round=told(name),
        )

    def as_deployed() -> AuditResult:
        count = min(per_group, SERVED)
        return audit_served(
            subject.public,
            name=subject.name,
            groups=groups,
            per_group=count,
            confidence=confidence,
            on_round=told("served"),
        )

    with _quietly():
        last = as_deployed() if served else None  # first, because its agent may refuse
        beside = part("beside the records", subject, min(per_group, BESIDE))
        return RunAudit(settings.method, subject.name, beside, part("alone", bare, per_group), last)


def _silos(public: PublicPlan, asked: int | None) -> int:
    """In how many silos a canary person has records: no more than the plan promises to cover."""
    declared = public.silos_per_person
    if asked is not None and require_count("silos_per_person", asked) > declared:
        raise InputError(
            f"silos_per_person={asked}, but the plan declares {declared}: its promise is for persons in at most "
            f"{declared} of its silos. State [policy] silos_per_person = {asked} and [privacy] account, and audit that"
        )
    return declared if asked is None else asked


def _require_servable(method: str, records_per_person: int) -> None:
    """Refuse what no agent serves: it plans with its silo's own certified estimator, and takes no other planner."""
    if records_per_person > 1:
        raise InputError(
            f"the served part has canaries with one record each, so it does not go with records_per_person="
            f"{records_per_person}; leave --served or --records-per-person out"
        )
    if method != "rpdp":
        raise InputError(
            f"method {method} is for simulations only, so no silo can be served with it; use --method rpdp, or leave "
            "--served out"
        )


@dataclass(frozen=True)
class ModelAudit:
    """What the final model tells, and what others could do to a record's risk.

    Attributes:
        method: Of the run.
        membership: The demonstration.
        others: For each budget.
        advice: Of the planner.
    """

    method: str
    membership: MembershipResult
    others: tuple[RiskComparison, ...]
    advice: str

    @property
    def passed(self) -> bool:
        """Whether nothing leaks more than it may."""
        return self.membership.passed

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "format": FORMAT,
            "kind": "model-only",
            "is_simulation": True,
            "method": self.method,
            **self.membership.to_json(),
            "others": [report.to_json() for report in self.others],
            "advice": self.advice,
        }


def audit_run_model(
    spec: StudyFile,
    settings: MethodSettings,
    seed: int,
    *,
    groups: Sequence[float] = GROUPS,
    runs: int = RUNS,
    on_run: Callable[[int, int], None] | None = None,
) -> ModelAudit:
    """The model-only audit of a study file; arguments as in `audit_run` and `audit_model`."""
    built = _built(spec, settings, seed)
    with _quietly():
        found = audit_model(
            built.model,
            built.source.loss,
            built.silos,
            built.public,
            groups=groups,
            runs=runs,
            seed=seed,
            workers=spec.run.workers,
            on_run=on_run,
        )
    others = tuple(compare_risk(built.public, group.epsilon) for group in found.groups)
    return ModelAudit(settings.method, found, others, advice(built.public, settings.method))


def _built(spec: StudyFile, settings: MethodSettings, seed: int) -> PreparedRun:
    if not method_named(settings.method).is_protected:
        raise InputError(f"method {settings.method} promises nothing, so there is nothing to audit")
    return build(spec, settings, seed)


@contextmanager
def _quietly() -> Iterator[None]:
    """Without warnings about slow kernels: the result names the kernel."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlowKernelWarning)
        yield


def chosen_silo(silos: Mapping[str, Silo], name: str | None) -> Silo:
    """The silo of this name; by default the one with the most records."""
    return silos[
        require_choice("silo", name or max(sorted(silos), key=lambda each: len(silos[each].records)), sorted(silos))
    ]


def subject_of(built: PreparedRun, name: str | None = None) -> Subject:
    """One silo of a run as a subject to audit; by default the one with the most records."""
    silos = {silo.name: silo for silo in built.silos}
    chosen = chosen_silo(silos, name)
    return Subject(
        built.public,
        chosen.name,
        chosen.planner,
        type(chosen),
        built.model,
        built.source.loss,
        chosen.records,
        built.plans[chosen.name].epsilon,
    )
