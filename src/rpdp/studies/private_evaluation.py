"""Private evaluation at the end of a run: planned from declarations with it, charged like every other release.

    evaluation.json       in the directory of a run: the metrics with intervals, or why nothing was evaluated

All of it is public: the server computes it from the noisy sums that silos release.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rpdp.errors import InputError, PrivacyRefusal
from rpdp.federation import release_sums
from rpdp.metrics import METRICS, title_of
from rpdp.planning import DECLARED_SAMPLE
from rpdp.statistics import DeclaredTest, EvaluationMeasure, NoisySums, evaluate, plan_evaluation
from rpdp.statistics.estimate import LEVEL
from rpdp.statistics.evaluation_measures import PRIVATE_METRICS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rpdp.federation import RunResult, Silo
    from rpdp.planning import PublicPlan
    from rpdp.statistics import EvaluationOutlook, ModelCells
    from rpdp.studies.building import PreparedRun
    from rpdp.studies.study_file import StudyFile

    Remark = Callable[[str], None] | None

EVALUATION = "evaluation.json"
UNANSWERED = (
    "no silo released its sums, because the evaluation was interrupted after it was charged; what was charged stays, "
    "and no noise is drawn a second time"
)
_SUFFIX = "-evaluation"
"""After the id of a run: the id of its evaluation in the ledgers."""


def plan_private_evaluation(
    spec: StudyFile, training: PublicPlan, measuring: Mapping[str, ModelCells]
) -> EvaluationOutlook:
    """Return the plan of the evaluation that the study file asks for, and what to expect of it."""
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
    return EvaluationMeasure.for_metrics(
        names, classes=0 if is_number else max(2, outputs), bound=spec.evaluation.bound
    )


def require_evaluation(built: PreparedRun, run: str, on_remark: Remark) -> None:
    """Say what the evaluation will find out, and refuse now what silos would refuse after training."""
    outlook = built.private_evaluation
    if outlook is None:
        return
    for line in [*outlook.lines(), *_useless(built, outlook)]:
        if on_remark is not None:
            on_remark(line)
    if not _useless(built, outlook):
        for silo in built.silos:
            _require_allowed(silo, run, outlook.public)


def _require_allowed(silo: Silo, run: str, public: PublicPlan) -> None:
    """Refuse what the policy of a silo would refuse once the training is over, or would allow too little for."""
    policy, own = silo.policy, f"{run}{_SUFFIX}"
    if policy.max_share_per_run is not None and public.share is not None and policy.max_share_per_run < public.share:
        raise PrivacyRefusal(
            f"silo {silo.name}: evaluation.share={public.share:g} is above max_share_per_run="
            f"{policy.max_share_per_run:g} of its policy, so no record could pay for what is planned; nothing was "
            "reserved. Ask for a smaller share"
        )
    others = {status.run for status in silo.account.status().runs if not status.is_over} - {run, own}
    if len(others) + 2 > policy.max_runs:
        raise PrivacyRefusal(
            f"silo {silo.name}: training and evaluation are two runs, and max_runs={policy.max_runs} of its policy has "
            f"no room for both after {len(others):,}; nothing was reserved. Remove evaluation.share, or have it raised"
        )
    silo.preview(own, public)


def evaluate_privately(built: PreparedRun, result: RunResult, heads: Path) -> dict[str, Any]:
    """Let all silos release the sums of the evaluation of the final model, and return what follows from them.

    Nothing is spent if the plan foresees no useful interval. A silo that refuses now, such as one whose policy was
    changed in the meantime, does not undo the training: the reason takes the place of the numbers.
    """
    outlook = built.private_evaluation
    assert outlook is not None
    facts: dict[str, Any] = {"expected": outlook.lines(), "scores": [], "not_evaluated": None}
    useless = _useless(built, outlook)
    if useless:
        return {**facts, "not_evaluated": useless[0]}
    place: dict[str, Any] = {"run": f"{result.run}{_SUFFIX}"}
    place |= {"heads": heads} if built.seed is None else {"seed": built.seed}
    try:
        released = release_sums(outlook.public, built.silos, model=built.model, values=result.values, **place)
    except PrivacyRefusal as error:
        return {**facts, "not_evaluated": str(error)}
    if not released.answered.any():
        return {**facts, "not_evaluated": UNANSWERED}
    sums = NoisySums.of(outlook.public, released.by_silo)
    return {
        **facts,
        "run": released.run,
        "is_simulation": built.seed is not None,
        "silos": list(sums.silos),
        "noise": sums.deviation,
        "plan": outlook.public.fingerprint,
        "scores": [score.plain() for score in evaluate(sums)],
    }


def _useless(built: PreparedRun, outlook: EvaluationOutlook) -> list[str]:
    """Why nothing is evaluated; empty if the expected interval is narrow enough."""
    widest, width = built.spec.evaluation.widest, outlook.half_width
    if width <= widest:
        return []
    return [
        f"no useful interval is possible: {outlook.metrics[0].name} ± {width:.2g} is to be expected, and "
        f"evaluation.widest = {widest:g}; nothing is evaluated, and nothing spent. More test records, a larger share, "
        "or a metric that counts (accuracy) would help"
    ]


def evaluation_lines(facts: Mapping[str, Any]) -> list[str]:
    """The result in words; what was not evaluated says why."""
    if facts["not_evaluated"] is not None:
        return [f"private evaluation: {facts['not_evaluated']}"]
    lines = []
    for score in facts["scores"]:
        of = f" of group {score['group']}" if score["group"] else ""
        for one in score["metrics"]:
            interval = f"{one['low']:.3f} to {one['high']:.3f} at {100 * LEVEL:g} %"
            lines.append(f"private {title_of(one['name'])}{of}: {one['value']:.3f} ({interval})")
    return [*lines, f"this speaks of {facts['scores'][0]['metrics'][0]['speaks_of']}"]


def write_evaluation(directory: str | Path, facts: Mapping[str, Any]) -> None:
    """Write the result of the evaluation into the directory of a run."""
    text = json.dumps(facts, indent=2, ensure_ascii=False)
    (Path(directory) / EVALUATION).write_text(text + "\n", encoding="utf-8")


def read_evaluation(directory: str | Path) -> dict[str, Any] | None:
    """Read the result of the evaluation; None if the run has none."""
    path = Path(directory) / EVALUATION
    if not path.is_file():
        return None
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found | {name: found[name] for name in ("expected", "scores", "not_evaluated")}
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: damaged: {type(error).__name__}: {error}") from None
