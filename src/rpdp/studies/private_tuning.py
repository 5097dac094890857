"""`rpdp tune`: train a declared list of candidates, and keep the one with the best private evaluation.

| who pays | for what | how much of each lifetime budget |
|---|---|---|
| a training record | all trials: an observer sees the updates of each | at most `privacy.share`, in equal parts |
| a held-out record | one evaluation of all final models | at most `evaluation.share` |

Each trial is a run of `train` with an id and a booking of its own; the evaluation is one more, of all models together.
The choice is made from what silos released, so it costs nothing more. What is known beforehand is public: settings,
declared budgets and sizes.
"""

from __future__ import annotations

import json
import shutil
import tomllib
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rpdp.errors import InputError, PrivacyRefusal
from rpdp.planning import (
    DECLARED_SAMPLE,
    declared_probability,
    floor_of_signal,
    signal_of_run,
    signal_of_silos,
)
from rpdp.studies.building import build, simulated_account
from rpdp.studies.evaluation_file import write_evaluation
from rpdp.studies.execution import real_run_errors
from rpdp.studies.private_evaluation import NamedModel, evaluate_privately, require_evaluation, why_useless
from rpdp.studies.private_scale import as_declared, ask_for_scale, expected_scale, kept_scale
from rpdp.studies.real_run import heads_of, open_ledgers, run_id
from rpdp.studies.run_directory import MODEL, study_file_in
from rpdp.studies.run_reports import write_reports
from rpdp.studies.shortfalls import find_shortfalls, require_signal
from rpdp.studies.training_run import TrialOf, prepare, train

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rpdp.federation import RoundLog, RunResult
    from rpdp.ledger import MemoryAccount
    from rpdp.planning import PublicPlan
    from rpdp.statistics import EvaluationOutlook
    from rpdp.studies.building import PreparedRun
    from rpdp.studies.study_file import StudyFile

FORMAT = "rpdp-tuning/1"
NAME, TRIALS = "tuning.json", "trials"
_METHOD = "rpdp"
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


@dataclass(frozen=True)
class TunedRun:
    """A finished tuning and its directory; `facts` is what its `tuning.json` holds, all of it public."""

    directory: Path
    facts: dict[str, Any]
    was_finished: bool = False


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
        values.get("methods", {}).get(_METHOD, {}).pop(key, None)
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
    settings = [each.spec.settings(_METHOD) for each in trials]
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


def tune_privately(
    spec: StudyFile,
    seed: int | None,
    directory: str | Path,
    *,
    resume: bool = False,
    even_if_noise: bool = False,
    workers: int | None = None,
    wait: float = 0.0,
    on_plan: Callable[[TuningOutlook], None] | None = None,
    on_trial: Callable[[Candidate, int, int], None] | None = None,
    on_round: Callable[[RoundLog], None] | None = None,
    on_remark: Callable[[str], None] | None = None,
) -> TunedRun:
    """Train all candidates, evaluate their final models together, and keep the best one's.

    Args:
        spec: The study file, with `[[tuning.candidates]]`.
        seed: The seed of a simulation; None for a real run, whose id is `run.id`.
        directory: The directory for the results, missing or empty unless resumed.
        resume: Continue: finished trials stay as they are, and nothing is charged a second time.
        even_if_noise: Begin even if the plan says that it does not pay.
        workers: The number of processes of a simulation.
        wait: For how many seconds a real run waits for each ledger that another process is writing.
        on_plan: Called with the plan before anything is spent.
        on_trial: Called with each trial before it begins, with its number and how many there are.
        on_round: Called after every round of a trial.
        on_remark: Called with remarks.
    """
    directory, is_real = Path(directory), seed is None
    trials = trials_of(spec, is_real=is_real)
    if is_real and spec.ledgers is None:
        raise PrivacyRefusal(
            f"{spec.path}: a real rpdp tune needs all ledgers here ([ledgers]). A federation that is deployed is not "
            "tuned by one command: run each candidate there under an id of its own, with its part of privacy.share, "
            "and evaluate the models with a plan for evaluation. For a simulation, give --seed"
        )
    run = run_id(spec, _METHOD, resume=resume) if is_real else ""
    if not is_real:
        spec.require_simulation()
    prepare(directory, spec, resume=resume, force=False)
    if resume and (directory / NAME).is_file():
        return TunedRun(directory, read_tuning(directory), was_finished=True)
    outlook = plan_tuning(spec, trials, seed or 0)
    if on_plan is not None:
        on_plan(outlook)
    if outlook.against and not even_if_noise:
        raise PrivacyRefusal(
            f"tuning does not pay: {'; '.join(outlook.against)}. Nothing was spent. Declare one recipe and use "
            "rpdp train, or tune all the same with --even-if-noise"
        )
    if is_real:
        _require_room(trials, run, resume=resume, wait=wait, even_if_noise=even_if_noise, on_remark=on_remark)
    directory.mkdir(parents=True, exist_ok=True)
    spec.write_copy(study_file_in(directory))
    accounts: dict[str, MemoryAccount] = {}
    names = [_id(each) for each in trials] if is_real else []
    scale = ask_for_scale(spec, spec.settings(_METHOD), seed, run, accounts, others=names, resume=resume, wait=wait)
    results = []
    for number, each in enumerate(trials, 1):
        if on_trial is not None:
            on_trial(each, number, len(trials))
        trained = train(
            each.spec,
            each.spec.settings(_METHOD),
            seed,
            directory / TRIALS / each.name,
            resume=resume,
            even_if_noise=even_if_noise and is_real,
            workers=workers,
            wait=wait,
            trial=TrialOf(each.name, accounts, scale),
            on_round=on_round,
            on_remark=on_remark,
        )
        if trained.was_finished and not is_real:
            _book_again(trained.result, accounts)
        results.append(trained.result)
    models = [NamedModel(each.name, result.values) for each, result in zip(trials, results, strict=True)]
    first = trials[0].spec if scale is None else scale.applied(trials[0].spec)
    facts = _evaluated(first, models, seed, run, accounts, wait)
    return _finish(directory, outlook, results, facts, seed, run)


def _require_room(
    trials: Sequence[Candidate],
    run: str,
    *,
    resume: bool,
    wait: float,
    even_if_noise: bool,
    on_remark: Callable[[str], None] | None,
) -> None:
    """Refuse, before the first trial, what silos would refuse later, or what would be noise by their accounts."""
    with open_ledgers(trials[0].spec, _id(trials[0]), resume=resume, wait=wait) as ledgers:
        known = {status.run for ledger in ledgers.values() for status in ledger.status().runs}
        names = [_id(each) for each in trials]
        if known & set(names):
            if not resume:
                raise InputError(
                    f"run.id={run!r}: {', '.join(sorted(known & set(names)))} is already in a ledger: continue "
                    "(--resume), or give the tuning a new id"
                )
            return
        for place, each in enumerate(trials):
            built = build(as_declared(each.spec), each.spec.settings(_METHOD), None, ledgers, models=len(trials))
            for silo in built.silos:
                silo.preview(names[place], built.public)
            if not even_if_noise:
                require_signal(find_shortfalls(built, ledgers))
            if place == 0:
                require_evaluation(built, run, on_remark, trainings=names)


def _id(trial: Candidate) -> str:
    assert trial.spec.run.id is not None
    return trial.spec.run.id


def _book_again(result: RunResult, accounts: dict[str, MemoryAccount]) -> None:
    """Book a trial that an interrupted simulation had finished, so that later ones find what it left."""
    for name, view in result.silos.items():
        account = accounts.setdefault(name, simulated_account(result.public, len(view.plan)))
        account.reserve(result.run, view.plan, None)


def _evaluated(
    first: StudyFile,
    models: Sequence[NamedModel],
    seed: int | None,
    run: str,
    accounts: dict[str, MemoryAccount],
    wait: float,
) -> dict[str, Any]:
    """Let silos evaluate all models in one run, and return what follows; refused if nothing does."""
    with ExitStack() as stack:
        ledgers = None
        if seed is None:
            ledgers = stack.enter_context(open_ledgers(first, f"{run}-evaluation", resume=True, wait=wait))
            stack.enter_context(real_run_errors())
        built = build(first, first.settings(_METHOD), seed, ledgers, models=len(models), accounts=accounts)
        assert built.private_evaluation is not None
        facts = evaluate_privately(built, models, run or f"tuning-{seed}", heads_of(first), built.private_evaluation)
    if facts["chosen"] is None:
        raise PrivacyRefusal(
            f"nothing could be chosen: {facts['not_evaluated']}. All trials are charged, and their models are kept; "
            "where the cause can be mended, --resume evaluates them"
        )
    return facts


def _finish(
    directory: Path,
    outlook: TuningOutlook,
    results: Sequence[RunResult],
    evaluation: dict[str, Any],
    seed: int | None,
    run: str,
) -> TunedRun:
    """Write the choice, and the chosen trial's report with it. The file of the choice comes last."""
    place = next(i for i, each in enumerate(outlook.trials) if each.trial.name == evaluation["chosen"])
    chosen = outlook.trials[place].trial
    home = directory / TRIALS / chosen.name
    write_evaluation(home, evaluation)
    write_reports(results[place], home, kept_scale(chosen.spec, home))
    shutil.copyfile(home / MODEL, directory / MODEL)
    facts = {
        "format": FORMAT,
        "run": run,
        "seed": seed,
        "is_simulation": seed is not None,
        "share": outlook.share,
        "trials": [each.facts() | {"run": one.run} for each, one in zip(outlook.trials, results, strict=True)],
        "chosen": chosen.name,
        "evaluation": evaluation,
    }
    fresh = directory / f".{NAME}.new"
    fresh.write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    fresh.replace(directory / NAME)
    return TunedRun(directory, facts)


def read_tuning(directory: str | Path) -> dict[str, Any]:
    """Read the result of a tuning."""
    path = Path(directory) / NAME
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] != FORMAT:
            raise ValueError(f"its format is {found['format']!r}, not {FORMAT!r}")
        return found
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: this is no result of rpdp tune ({error})") from None


def scores_of(facts: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The first private metric of every trial, by name."""
    return {model["name"]: model["scores"][0]["metrics"][0] for model in facts["evaluation"]["models"]}
