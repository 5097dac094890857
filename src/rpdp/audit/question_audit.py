"""The audit of what a study asks of its silos besides training: statistics, and the private evaluation of its model.

Like that of a run it has two parts: canaries beside the records of one silo, whose own measures are in the vector, too,
and canaries alone. Both are simulations; no ledger is opened.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rpdp.audit.request_audit import RequestSubject, audit_request
from rpdp.audit.run_audit import BESIDE, RunAudit, chosen_silo
from rpdp.audit.silo_audit import CONFIDENCE, GROUPS, PER_GROUP
from rpdp.errors import InputError
from rpdp.studies.building import build
from rpdp.studies.statistics_run import simulated_question

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rpdp.audit.audit_result import AuditResult
    from rpdp.studies.statistics_run import Question
    from rpdp.studies.study_file import MethodSettings, StudyFile


def audit_questions(
    spec: StudyFile,
    settings: MethodSettings,
    seed: int,
    *,
    question: Question | None = None,
    silo: str | None = None,
    groups: Sequence[float] = GROUPS,
    per_group: int = PER_GROUP,
    on_round: Callable[[str, int, int], None] | None = None,
) -> RunAudit:
    """Audit the release of statistics, or of the private evaluation, of a study.

    Budgets count as what this run may take: the study's share of them.

    Args:
        spec: The study file.
        settings: Of the method, for an evaluation.
        seed: Of the simulation.
        question: What statistics are asked for; None for the evaluation that the study file asks for.
        silo: Whose records to plant canaries beside; by default the one with the most.
        groups: Lifetime ε of each group.
        per_group: Canaries of each group, alone; beside the records there are at most a thousand.
        on_round: Called with the part, and the number of rounds done and in all.
    """
    subject = _asked(spec, settings, seed, question, silo)
    share = subject.public.share or 1.0
    bare = replace(subject, source=None, budgets=None, held_out=None)

    def part(name: str, one: RequestSubject, count: int) -> AuditResult:
        return audit_request(
            one,
            groups=[share * epsilon for epsilon in groups],
            per_group=count,
            seed=seed,
            confidence=1.0 - (1.0 - CONFIDENCE) / 2.0,
            on_round=lambda done, total: None if on_round is None else on_round(name, done, total),
        )

    beside = part("beside the records", subject, min(per_group, BESIDE))
    return RunAudit(subject.public.purpose, subject.name, beside, part("alone", bare, per_group))


def _asked(
    spec: StudyFile, settings: MethodSettings, seed: int, question: Question | None, name: str | None
) -> RequestSubject:
    """One silo of a run with a request; by default the one with the most records."""
    model = None
    if question is None:
        built = build(spec, settings, seed)
        if built.private_evaluation is None:
            raise InputError(f"{spec.path}: there is no private evaluation to audit; state [evaluation] share")
        public, silos, model = built.private_evaluation.public, built.silos, built.model
    else:
        public, silos = simulated_question(spec, question, seed)
    chosen = chosen_silo({silo.name: silo for silo in silos}, name)
    return RequestSubject(
        public,
        chosen.name,
        chosen.planner,
        type(chosen),
        chosen.purposes.source(public.purpose),
        (public.share or 1.0) * chosen.budgets.per_record().epsilon,
        chosen.purposes.serves(public.purpose),
        model,
    )
