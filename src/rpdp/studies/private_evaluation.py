"""Private evaluation of a run's models: planned from declarations with the run, charged like every other release.

One run of its own evaluates all models that are compared: the final one, those after every few rounds
(`[evaluation] every`), or those of several candidates (`rpdp tune`). Which one is best follows from what was released,
so choosing costs nothing more. Intervals are made for all models together (Bonferroni): that of the chosen one covers
as often as it says although it was chosen by its value. The value itself is flattered by the choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rpdp.display import counts_repr
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.federation import release_sums
from rpdp.metrics import METRICS
from rpdp.planning import DECLARED_SAMPLE
from rpdp.statistics import DeclaredTest, EvaluationMeasure, NoisySums, evaluate, plan_evaluation
from rpdp.statistics.estimate import LEVEL
from rpdp.statistics.evaluation_measures import PRIVATE_METRICS
from rpdp.studies.study_data import group_column, is_by_silo

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from torch import Tensor

    from rpdp.federation import Silo
    from rpdp.federation.released_sums import ReleasedSums
    from rpdp.planning import PublicPlan
    from rpdp.statistics import EvaluationOutlook, ModelCells
    from rpdp.studies.building import PreparedRun
    from rpdp.studies.study_file import StudyFile

    Remark = Callable[[str], None] | None

UNANSWERED = (
    "no silo released its sums, because the evaluation was interrupted after it was charged; what was charged stays, "
    "and no noise is drawn a second time"
)
_SUFFIX = "-evaluation"
"""After the id of a run: the id of its evaluation in the ledgers."""


@dataclass(frozen=True)
class NamedModel:
    """A released model by a name, such as "round 5"."""

    name: str
    values: Tensor

    __repr__ = counts_repr


def evaluated_rounds(spec: StudyFile) -> tuple[int, ...]:
    """The rounds after which the model is evaluated: every so many, and the last one."""
    rounds, every = spec.public_schedule.rounds, spec.evaluation.every
    return (*range(every, rounds, every), rounds) if every is not None else (rounds,)


def level_of(models: int) -> float:
    """The level of each interval at which all of them together cover as often as one would at `LEVEL`.

    >>> round(level_of(1), 4), round(level_of(5), 4)
    (0.95, 0.99)
    """
    return 1.0 - (1.0 - LEVEL) / models


def plan_private_evaluation(
    spec: StudyFile, training: PublicPlan, measuring: Mapping[str, ModelCells], models: int
) -> EvaluationOutlook:
    """Return the plan of the evaluation of so many models that the study file asks for, and what to expect of it."""
    section = spec.evaluation
    assert section.records is not None
    if spec.task.correct is not None:
        raise InputError("task.correct and evaluation.share exclude each other: no private metric is made from it")
    try:
        return plan_evaluation(
            measure_of(spec, next(iter(measuring.values())).outputs),
            DeclaredTest(section.records, len(measuring), section.positives),
            spec.declared_distribution.sample(DECLARED_SAMPLE, 0),
            delta=training.delta,
            estimator=section.estimator,
            rounds=models,
            level=level_of(models),
            share=section.share,
            study=training.study,
            silos_per_person=training.silos_per_person,
            account=training.account,
            lifetime_delta=training.lifetime_delta,
            model_fingerprint=training.model_fingerprint,
            schema_fingerprint=training.schema_fingerprint,
        )
    except InputError as error:
        raise InputError(f"{spec.path}: [evaluation]: {error}") from None


def measure_of(spec: StudyFile, outputs: int) -> EvaluationMeasure:
    """Return what is measured privately; refused if a metric of the study file cannot be."""
    names = spec.evaluation.metrics
    if names is None:
        about_numbers = spec.evaluation.bound is not None
        names = ("rmse", "mae") if about_numbers else ("auc", "accuracy") if outputs <= 2 else ("accuracy",)
    unknown = [name for name in names if name not in PRIVATE_METRICS]
    if unknown:
        raise InputError(
            f"metrics={list(names)}: {', '.join(unknown)} cannot be measured in private, only "
            f"{', '.join(PRIVATE_METRICS)}; name those, or remove share"
        )
    is_number = all(METRICS[name].needs == "numbers" for name in names)
    column = group_column(spec)
    return EvaluationMeasure.for_metrics(
        names,
        classes=0 if is_number else max(2, outputs),
        bound=spec.evaluation.bound,
        column="" if column is None else column.name,
        levels=() if column is None else column.levels,
    )


def require_evaluation(built: PreparedRun, run: str, on_remark: Remark, *, trainings: Sequence[str] = ()) -> None:
    """Say what the evaluation will find out, and refuse now what silos would refuse after training.

    `trainings` are the ids of the runs whose models are evaluated, by default `run` alone.
    """
    outlook = built.private_evaluation
    if outlook is None:
        return
    for line in [*outlook.lines(), *why_useless(built, outlook)]:
        if on_remark is not None:
            on_remark(line)
    if not why_useless(built, outlook):
        for silo in built.silos:
            _require_allowed(silo, run, outlook.public, trainings or [run])


def _require_allowed(silo: Silo, run: str, public: PublicPlan, trainings: Sequence[str]) -> None:
    """Refuse what the policy of a silo would refuse once the training is over, or would allow too little for."""
    policy, own = silo.policy, f"{run}{_SUFFIX}"
    if policy.max_share_per_run is not None and public.share is not None and policy.max_share_per_run < public.share:
        raise PrivacyRefusal(
            f"silo {silo.name}: evaluation.share={public.share:g} is above max_share_per_run="
            f"{policy.max_share_per_run:g} of its policy, so no record could pay for what is planned; nothing was "
            "reserved. Ask for a smaller share"
        )
    require_room(silo, [*trainings, own])
    silo.preview(own, public)


def require_room(silo: Silo, runs: Sequence[str]) -> None:
    """Refuse, before the first of these runs, what the policy of a silo would refuse before the last."""
    others = {status.run for status in silo.account.status().runs if not status.is_over} - set(runs)
    if len(others) + len(runs) > silo.policy.max_runs:
        raise PrivacyRefusal(
            f"silo {silo.name}: this takes {len(runs)} runs ({', '.join(runs)}), and max_runs={silo.policy.max_runs} "
            f"of its policy has no room for all of them after {len(others):,}; nothing was reserved. Ask for fewer, or "
            "have it raised"
        )


def evaluate_privately(
    built: PreparedRun, models: Sequence[NamedModel], run: str, heads: Path, outlook: EvaluationOutlook
) -> dict[str, Any]:
    """Let all silos release the sums of the evaluation of these models, and return what follows from them.

    Nothing is spent if the plan foresees no useful interval. A silo that refuses now, such as one whose policy was
    changed in the meantime, does not undo the training: the reason takes the place of the numbers.
    """
    facts: dict[str, Any] = {"expected": outlook.lines(), "scores": [], "models": [], "chosen": None}
    facts |= {"level": level_of(len(models)), "not_evaluated": None}
    useless = why_useless(built, outlook)
    if useless:
        return {**facts, "not_evaluated": useless[0]}
    place: dict[str, Any] = {"run": f"{run}{_SUFFIX}"}
    place |= {"heads": heads} if built.seed is None else {"seed": built.seed}
    try:
        values = [model.values for model in models]
        released = release_sums(outlook.public, built.silos, model=built.model, values=values, **place)
    except PrivacyRefusal as error:
        return {**facts, "not_evaluated": str(error)}
    if not released.answered.any():
        return {**facts, "not_evaluated": UNANSWERED}
    facts |= {
        "run": released.run,
        "is_simulation": built.seed is not None,
        "silos": [silo for silo in released.silos if np.isfinite(released.by_silo[silo]).any()],
        "noise": float(released.noise_std.max()),
        "plan": outlook.public.fingerprint,
    }
    return facts | _scored(built.spec, [model.name for model in models], released)


def _scored(spec: StudyFile, names: Sequence[str], released: ReleasedSums) -> dict[str, Any]:
    """The scores of every model that silos answered for, and which one is the best by the first metric."""
    models: list[dict[str, Any]] = []
    for place in np.flatnonzero(released.answered).tolist():
        by_silo = {silo: sums[place : place + 1] for silo, sums in released.by_silo.items()}
        scores = [each.plain() for each in evaluate(NoisySums.of(released.public, by_silo), level=level_of(len(names)))]
        if is_by_silo(spec, spec.evaluation.by):
            scores += _by_silo(released.public, by_silo, level_of(len(names)))
        models.append({"name": names[place], "scores": scores})
    best = best_of([model["scores"][0]["metrics"][0] for model in models])
    return {"models": models, "chosen": models[best]["name"], "scores": models[best]["scores"]}


def _by_silo(
    public: PublicPlan, by_silo: Mapping[str, np.ndarray[Any, np.dtype[np.float64]]], level: float
) -> list[dict[str, Any]]:
    """The score of every silo that answered, from its own sums alone."""
    answered = {silo: sums for silo, sums in by_silo.items() if np.isfinite(sums).all()}
    return [
        {**evaluate(NoisySums.of(public, {silo: sums}), level=level)[0].plain(), "group": silo}
        for silo, sums in sorted(answered.items())
    ]


def best_of(estimates: Sequence[Mapping[str, Any]]) -> int:
    """The place of the best estimate of one metric; of equal ones the first."""
    sign = 1.0 if METRICS[estimates[0]["name"]].larger_is_better else -1.0
    return max(range(len(estimates)), key=lambda place: sign * estimates[place]["value"])


def why_useless(built: PreparedRun, outlook: EvaluationOutlook) -> list[str]:
    """Why nothing is evaluated; empty if the expected interval is narrow enough."""
    widest, width = built.spec.evaluation.widest, outlook.half_width
    if width <= widest:
        return []
    return [
        f"no useful interval is possible: {outlook.metrics[0].name} ± {width:.2g} is to be expected, and "
        f"evaluation.widest = {widest:g}; nothing is evaluated, and nothing spent. More test records, a larger share, "
        "or a metric that counts (accuracy) would help"
    ]
