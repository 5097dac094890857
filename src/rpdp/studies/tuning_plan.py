"""The plan of `rpdp tune`: its candidates with their parts of the share, and what they will cost and tell.

Everything here is public: settings, declared budgets and sizes.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rpdp.errors import InputError
from rpdp.planning import (
    DECLARED_SAMPLE,
    declared_probability,
    floor_of_signal,
    signal_of_run,
    signal_of_silos,
)
from rpdp.studies.building import build
from rpdp.studies.private_evaluation import why_useless
from rpdp.studies.private_scale import as_declared, expected_scale

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rpdp.planning import PublicPlan
    from rpdp.statistics import EvaluationOutlook
    from rpdp.studies.building import PreparedRun
    from rpdp.studies.study_file import StudyFile

METHOD = "rpdp"
_SECTIONS = {
    **dict.fromkeys(("learning_rate", "decay", "optimiser", "momentum", "averaged_rounds"), "training"),
    **dict.fromkeys(("clip_norm", "max_epsilon", "noise_multiplier"), "privacy"),
    **dict.fromkeys(("rounds", "local_steps", "participations"), "schedule"),
}
"""In which section of the study file a setting of a candidate stands."""

_INSTEAD_OF = {
    "max_epsilon": ("noise_multiplier",),
    "noise_multiplier": ("max_epsilon",),
    "participations": ("participation", "max_participations"),
}
"""What a setting takes the place of."""


@dataclass(frozen=True)
class Candidate:
    """One candidate.

    Attributes:
        name: Its name.
        changes: What it changes.
        spec: The study file of its run: any `rpdp train` would run it.
    """

    name: str
    changes: Mapping[str, float | int | str]
    spec: StudyFile


@dataclass(frozen=True)
class TrialOutlook:
    """What a trial will be, from public settings and declarations.

    Attributes:
        trial: The trial.
        public: Its plan.
        signal: The signal of the whole run, all silos together, on its part of the budgets.
        signal_alone: The same if it had what all trials have together, as a declared recipe would.
    """

    trial: Candidate
    public: PublicPlan
    signal: float
    signal_alone: float

    def facts(self) -> dict[str, Any]:
        """The outlook for JSON."""
        public = self.public
        return {
            "name": self.trial.name,
            "changes": dict(self.trial.changes),
            "rounds": public.schedule.rounds,
            "noise_multiplier": public.noise_multiplier,
            "clip_norm": public.clip_norm,
            "learning_rate": public.recipe.learning_rate,
            "share": public.share,
            "signal": self.signal,
            "signal_alone": self.signal_alone,
            "plan": public.fingerprint,
        }


@dataclass(frozen=True)
class TuningOutlook:
    """What tuning will cost and tell.

    Attributes:
        trials: The trials.
        share: Of the lifetime budget of a training record, for all trials together.
        evaluation: The plan of the evaluation of all final models, and what to expect of it.
        against: Why this would be a waste, if it would.
        scale: What a private scale would cost and tell, if the study asks for one.
    """

    trials: tuple[TrialOutlook, ...]
    share: float
    evaluation: EvaluationOutlook
    against: tuple[str, ...]
    scale: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """In words, for people who decide whether to spend that."""
        first, public = self.evaluation.metrics[0], self.evaluation.public
        assert public.share is not None
        count = len(self.trials)
        return [
            f"training records pay at most {100 * self.share:.3g} % of their lifetime budgets: "
            f"{100 * self.share / count:.3g} % for each of {count} trials",
            f"held-out records pay at most {100 * public.share:.3g} %, for one evaluation of all {count} models",
            *self.scale,
            *self.evaluation.lines(),
            f"candidates whose {first.name} differs by less than about {2**0.5 * first.half_width:.2g} are chosen "
            "among mostly by chance; where all of them are that near, a declared recipe is better: it gets the whole "
            "share",
        ]


def trials_of(spec: StudyFile, *, is_real: bool) -> tuple[Candidate, ...]:
    """Return the trials that a study file declares, each with its equal part of the share."""
    if spec.tuning is None or not spec.tuning.candidates:
        raise InputError(f"{spec.path}: there are no [[tuning.candidates]]; declare at least two, or use rpdp train")
    if spec.evaluation.share is None:
        raise InputError(
            f"{spec.path}: rpdp tune chooses by private evaluation: give evaluation.share and evaluation.records"
        )
    if is_real and spec.privacy.share is None:
        raise InputError(
            f"{spec.path}: privacy.share is missing: of each lifetime budget, the share for all trials together"
        )
    part = (spec.privacy.share or 1.0) / len(spec.tuning.candidates)
    return tuple(
        Candidate(each.name, each.changes, _spec_of(spec, each.name, each.changes, part, is_real=is_real))
        for each in spec.tuning.candidates
    )


def _spec_of(
    spec: StudyFile, name: str, changes: Mapping[str, float | int | str], share: float, *, is_real: bool
) -> StudyFile:
    values = tomllib.loads(spec.text)
    del values["tuning"]
    values["evaluation"].pop("every", None)  # the final models are compared
    for key, value in {**changes, "share": share}.items():
        section = values.setdefault(_SECTIONS.get(key, "privacy"), {})
        values.get("methods", {}).get(METHOD, {}).pop(key, None)
        for other in _INSTEAD_OF.get(key, ()):
            section.pop(other, None)
        section[key] = value
    if is_real:
        values["run"]["id"] = f"{spec.run.id}-{name}"
    return spec.with_values(values)


def spec_of_real_run(spec: StudyFile, run: str) -> StudyFile:
    """The same study as a real run of this name."""
    values = tomllib.loads(spec.text)
    values["run"] = {key: each for key, each in values.get("run", {}).items() if key not in ("seeds", "first_seed")}
    values["run"]["id"] = run
    return spec.with_values(values)


def plan_tuning(spec: StudyFile, trials: Sequence[Candidate], seed: int) -> TuningOutlook:
    """Return what tuning will cost and tell. Nothing is spent; data are read for the number of silos alone."""
    settings = [each.spec.settings(METHOD) for each in trials]
    specs = [as_declared(each.spec) for each in trials]
    built = [build(one, own, seed, models=len(trials)) for one, own in zip(specs, settings, strict=True)]
    outlooks = tuple(_outlook(trial, one, spec.privacy.share) for trial, one in zip(trials, built, strict=True))
    evaluation = built[0].private_evaluation
    assert evaluation is not None
    weak = [each for each in outlooks if each.signal < floor_of_signal(each.signal_alone)]
    against = why_useless(built[0], evaluation) + [
        f"trial {each.trial.name} would be noise: its part of the budgets gives a signal of {each.signal:.2g}, and the "
        f"whole of them {each.signal_alone:.2g}; declare fewer candidates"
        for each in weak
    ]
    return TuningOutlook(outlooks, spec.privacy.share or 1.0, evaluation, tuple(against), tuple(expected_scale(spec)))


def _outlook(trial: Candidate, built: PreparedRun, share: float | None) -> TrialOutlook:
    signals = [_signal(trial.spec, built, each) for each in (built.public.share, share)]
    return TrialOutlook(trial, built.public, *signals)


def _signal(spec: StudyFile, built: PreparedRun, share: float | None) -> float:
    """The expected signal on a share of declared budgets."""
    public = replace(built.public, share=share)
    records = spec.budgets.records_per_silo or sum(len(silo.records) for silo in built.silos) / len(built.silos)
    drawn = records * declared_probability(public, spec.declared_distribution.sample(DECLARED_SAMPLE, 0))
    one = signal_of_run(drawn / public.noise_multiplier, public.schedule)
    return signal_of_silos([one] * len(built.silos))
