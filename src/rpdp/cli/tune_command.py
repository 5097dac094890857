"""`rpdp tune`: train declared candidates, and keep the one with the best private evaluation."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rpdp.cli import options
from rpdp.cli.output import INTERRUPTED, print_json, print_table, report_interruption, say, say_line
from rpdp.cli.progress import TuningProgress

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rpdp.studies.private_tuning import TunedRun
    from rpdp.studies.tuning_plan import TuningOutlook


def tune(
    file: options.StudyFileArgument,
    seed: options.Seed = None,
    run: Annotated[
        str | None, typer.Option("--run", help="The name of a real run in the ledgers; else run.id.")
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Only show what it would cost and tell.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Directory; by default tune-SEED or tune-RUN in the output.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an interrupted tuning. Nothing is charged twice.")
    ] = False,
    even_if_noise: Annotated[
        bool, typer.Option("--even-if-noise", help="Begin although the plan says that it does not pay.")
    ] = False,
    wait: options.Wait = 0.0,
    workers: options.Workers = None,
    as_json: options.Json = False,
) -> None:
    """Train declared candidates, and keep the one with the best private evaluation.

    FILE is a study file (TOML) with [[tuning.candidates]] and a share for [evaluation]. Every trial is booked in full:
    an observer sees its updates. With seeds it is a simulation,
    which protects nobody; with --run, or without seeds, it is real and needs ledgers. All trials together take at most
    privacy.share of a training record's budget, and one evaluation of their models at most evaluation.share of a
    held-out record's. What that costs and tells is shown first; where it does not pay, nothing begins (exit code 3).

    Example: `rpdp tune study.toml --plan`
    """
    from rpdp.errors import InputError
    from rpdp.studies.private_tuning import tune_privately
    from rpdp.studies.study_file import StudyFile
    from rpdp.studies.tuning_plan import plan_tuning, spec_of_real_run, trials_of

    spec = StudyFile.read(file)
    if run is not None:
        if seed is not None:
            raise InputError(f"--run {run} is for a real run and --seed {seed} for a simulation; give one of them")
        spec = spec_of_real_run(spec, run)
    is_real = seed is None and spec.run.is_production
    number = None if is_real else options.seed_of(seed, spec)
    if plan:
        _show_plan(plan_tuning(spec, trials_of(spec, is_real=is_real), number or 0), as_json=as_json)
        return
    directory = out or spec.output / f"tune-{spec.run.id if is_real else number}"
    with TuningProgress(quiet=as_json) as progress:
        try:
            tuned = tune_privately(
                spec,
                number,
                directory,
                resume=resume,
                even_if_noise=even_if_noise,
                workers=options.workers_of(workers, spec),
                wait=wait,
                on_plan=None if as_json else _show_outlook,
                on_trial=progress.begin_trial,
                on_round=progress,
                on_remark=progress.remark,
            )
        except KeyboardInterrupt:
            given = {"--seed": seed, "--run": run, "--out": out}
            more = [part for name, value in given.items() if value is not None for part in (name, str(value))]
            again = shlex.join(["rpdp", "tune", str(file), *more, "--resume"])
            report_interruption("Finished trials and rounds are kept. Continue with:", again, as_json=as_json)
            raise typer.Exit(INTERRUPTED) from None
    if as_json:
        print_json({**tuned.facts, "was_finished": tuned.was_finished, "files": _files(tuned)})
    else:
        _show(tuned)


def _show_plan(outlook: TuningOutlook, *, as_json: bool) -> None:
    if as_json:
        trials = [each.facts() for each in outlook.trials]
        first = outlook.evaluation.metrics[0]
        widths = {each.name: each.half_width for each in outlook.evaluation.metrics}
        facts = {"share": outlook.share, "trials": trials, "evaluation_share": outlook.evaluation.public.share}
        print_json({**facts, "decides": first.name, "half_widths": widths, "against": list(outlook.against)})
        return
    _show_outlook(outlook)
    for reason in outlook.against:
        say(f"tuning does not pay: {reason}", style="yellow")
    say("Nothing was spent.")


def _show_outlook(outlook: TuningOutlook) -> None:
    rows = [
        (
            each.trial.name,
            _changes(each.trial.changes),
            str(each.public.schedule.rounds),
            f"{each.public.noise_multiplier:.4g}",
            f"{100 * (each.public.share or 1.0):.3g} %",
            f"{each.signal:.3g}",
            f"{each.signal_alone:.3g}",
        )
        for each in outlook.trials
    ]
    columns = ("trial", "changes", "rounds", "σ", "share of budgets", "signal", "signal with the whole share")
    print_table("The plan", columns, rows)
    for line in outlook.lines():
        say(line)


def _changes(changes: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in changes.items()) or "nothing"


def _files(tuned: TunedRun) -> dict[str, str]:
    from rpdp.studies.private_tuning import TRIALS

    home = tuned.directory / TRIALS / str(tuned.facts["chosen"])
    names = {"report": "report.html", "report_to_share": "report-share.html", "study_file": "study.toml"}
    return {"model": str(tuned.directory / "model.safetensors")} | {
        key: str(home / name) for key, name in names.items()
    }


def _show(tuned: TunedRun) -> None:
    from rpdp.metrics import title_of
    from rpdp.report.evaluation_figures import CHOSEN_BY_VALUE
    from rpdp.statistics.estimate import LEVEL
    from rpdp.studies.private_tuning import scores_of

    if tuned.was_finished:
        say_line(f"{tuned.directory}: this tuning is finished; nothing was done")
    facts, scores = tuned.facts, scores_of(tuned.facts)
    rows = []
    for trial in facts["trials"]:
        score = scores.get(trial["name"])
        numbers = ("–", "", "") if score is None else tuple(f"{score[key]:.4f}" for key in ("value", "low", "high"))
        mark = "chosen" if trial["name"] == facts["chosen"] else ""
        rows.append((trial["name"], _changes(trial["changes"]), *numbers, mark))
    first = next(iter(scores.values()))
    private = f"private {title_of(first['name'])}"
    print_table(
        f"{len(rows)} trials, intervals of {100 * LEVEL:g} % together",
        ("trial", "changes", private, "from", "to", ""),
        rows,
    )
    say(f"chosen: {facts['chosen']}. {CHOSEN_BY_VALUE[0].upper()}{CHOSEN_BY_VALUE[1:]}")
    say(f"this speaks of {first['speaks_of']}")
    if facts["is_simulation"]:
        say("A simulation: seeded, nobody is protected.", style="yellow")
    else:
        say("A real run: every trial and the evaluation are booked in the ledger of every silo (rpdp ledger show).")
    for name, path in _files(tuned).items():
        say_line(f"{name.replace('_', ' ')}: {path}")
