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
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rpdp.errors import InputError, PrivacyRefusal
from rpdp.studies.building import build, simulated_account
from rpdp.studies.evaluation_file import write_evaluation
from rpdp.studies.execution import real_run_errors
from rpdp.studies.private_evaluation import NamedModel, evaluate_privately, require_evaluation
from rpdp.studies.private_scale import as_declared, ask_for_scale, kept_scale
from rpdp.studies.real_run import heads_of, open_ledgers, run_id
from rpdp.studies.run_directory import MODEL, study_file_in
from rpdp.studies.run_reports import write_reports
from rpdp.studies.shortfalls import find_shortfalls, require_signal
from rpdp.studies.training_run import TrialOf, prepare, train
from rpdp.studies.tuning_plan import METHOD, plan_tuning, trials_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rpdp.federation import RoundLog, RunResult
    from rpdp.ledger import MemoryAccount
    from rpdp.studies.study_file import StudyFile
    from rpdp.studies.tuning_plan import Candidate, TuningOutlook

FORMAT = "rpdp-tuning/1"
NAME, TRIALS = "tuning.json", "trials"


@dataclass(frozen=True)
class TunedRun:
    """A finished tuning and its directory; `facts` is what its `tuning.json` holds, all of it public."""

    directory: Path
    facts: dict[str, Any]
    was_finished: bool = False


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
    run = run_id(spec, METHOD, resume=resume) if is_real else ""
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
    scale = ask_for_scale(spec, spec.settings(METHOD), seed, run, accounts, others=names, resume=resume, wait=wait)
    results = []
    for number, each in enumerate(trials, 1):
        if on_trial is not None:
            on_trial(each, number, len(trials))
        trained = train(
            each.spec,
            each.spec.settings(METHOD),
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
            built = build(as_declared(each.spec), each.spec.settings(METHOD), None, ledgers, models=len(trials))
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
        built = build(first, first.settings(METHOD), seed, ledgers, models=len(models), accounts=accounts)
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
