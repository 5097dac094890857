"""`rpdp train`: train the model that a study file describes."""

from __future__ import annotations

import shlex
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rpdp.cli import options
from rpdp.cli.output import INTERRUPTED, print_json, print_table, report_interruption, say, say_line
from rpdp.cli.progress import RoundProgress

if TYPE_CHECKING:
    from rpdp.federation import Score
    from rpdp.studies.study_file import StudyFile
    from rpdp.studies.training_run import TrainedRun


def train(
    file: options.StudyFileArgument,
    seed: options.Seed = None,
    method: options.Method = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Directory; by default METHOD-SEED, or the run's id, below the study's output."
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run, to the same model.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Remove what an earlier run left in the directory.")] = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Stop before reserving anything if a record has less left than its budget."),
    ] = False,
    even_if_noise: Annotated[
        bool,
        typer.Option("--even-if-noise", help="Begin a real run although the ledgers leave it too little signal."),
    ] = False,
    wait: options.Wait = 0.0,
    workers: options.Workers = None,
    device: Annotated[
        str, typer.Option("--device", help="cpu, or cuda in simulations: the same up to rounding.")
    ] = "cpu",
    as_json: options.Json = False,
) -> None:
    """Train the model that a study file describes.

    FILE is a study file (TOML). With seeds the run is a simulation: it shows what a real run would do, and protects
    nobody. Without seeds it is a real run, and needs a production ledger for every silo (rpdp ledger create). The
    directory gets a log, the model and a report. After Ctrl-C, --resume continues the run. Before a real run holds
    anything, it says from the ledgers who can take part, what signal is left and how many more such runs fit; one that
    would be noise is refused (exit code 3).

    Example: `rpdp train examples/breast_cancer.toml --seed 7`
    """
    from rpdp.studies.study_file import StudyFile

    spec = StudyFile.read(file)
    is_real = seed is None and spec.run.is_production
    chosen, number = options.method_of(method, spec), None if is_real else options.seed_of(seed, spec)
    limit = options.workers_of(workers, spec)
    directory = out or spec.output / (spec.run.id or "real" if is_real else f"{chosen}-{number}")
    how = _How(
        limit, device, resume=resume, force=force, strict=strict, even_if_noise=even_if_noise, wait=wait, quiet=as_json
    )
    try:
        trained = _run(spec, chosen, number, directory, how)
    except KeyboardInterrupt:
        again = ["rpdp", "train", str(file), *_options(seed, method, out, device), "--resume"]
        _explain_interruption(directory, shlex.join(again), is_real=is_real, as_json=as_json)
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        print_json(_facts(trained))
    else:
        _show(trained)


@dataclass(frozen=True)
class _How:
    """The options that say how to run."""

    workers: int | None
    device: str
    _: KW_ONLY
    resume: bool
    force: bool
    strict: bool
    even_if_noise: bool
    wait: float
    quiet: bool


def _run(spec: StudyFile, method: str, seed: int | None, directory: Path, how: _How) -> TrainedRun:
    from rpdp.studies.training_run import train

    rounds = spec.public_schedule.rounds
    title = f"run {spec.run.id}" if seed is None else f"{method}, seed {seed}"
    with RoundProgress(title, rounds, quiet=how.quiet) as progress:
        return train(
            spec,
            spec.settings(method),
            seed,
            directory,
            resume=how.resume,
            force=how.force,
            strict=how.strict,
            even_if_noise=how.even_if_noise,
            workers=how.workers,
            device=how.device,
            wait=how.wait,
            on_begin=progress.begin,
            on_round=progress,
            on_remark=progress.remark,
        )


def _options(seed: int | None, method: str | None, out: Path | None, device: str) -> list[str]:
    given = {"--seed": seed, "--method": method, "--out": out, "--device": None if device == "cpu" else device}
    return [part for name, value in given.items() if value is not None for part in (name, str(value))]


def _explain_interruption(directory: Path, again: str, *, is_real: bool, as_json: bool) -> None:
    from rpdp.studies.training_run import can_resume

    if is_real:
        message = "What was reserved and charged stays in the ledgers; the current round may be sat out. Continue with:"
        report_interruption(message, again, as_json=as_json)
    elif can_resume(directory):
        message = f"Every finished round is kept in {directory}. Continue to exactly the same model with:"
        report_interruption(message, again, as_json=as_json)
    else:
        report_interruption("The first round was not finished; nothing is kept.", None, as_json=as_json)


_SENSITIVE = ("report", "silos")
"""Files that stay with the silos."""


def _files(directory: Path) -> dict[str, str]:
    names = {
        "model": "model.safetensors",
        "rounds": "rounds.jsonl",
        "result": "result.json",
        "public_plan": "public-plan.json",
        "report": "report.html",
        "report_to_share": "report-share.html",
        "silos": "silo",
    }
    return {key: str(directory / name) for key, name in names.items()}


def _facts(trained: TrainedRun) -> dict[str, Any]:
    """The JSON output. For a real run it has two parts: what is public, and what stays with the data stewards."""
    from rpdp.studies.evaluation_file import read_evaluation
    from rpdp.studies.private_scale import scale_facts
    from rpdp.studies.run_directory import summary

    evaluated = {
        "private_evaluation": read_evaluation(trained.directory),
        "private_scale": scale_facts(trained.directory),
    }
    public = {**summary(trained.result), **evaluated, "was_finished": trained.was_finished}
    files = _files(trained.directory)
    if trained.result.is_simulation:
        return {**public, "files": files}
    local = {name: files.pop(name) for name in _SENSITIVE}
    shortfalls = [one.facts() for one in trained.shortfalls]
    return {
        "public": {**public, "files": files},
        "steward": {"standings": shortfalls, "seconds": trained.result.seconds, "files": local},
    }


def _show(trained: TrainedRun) -> None:
    from rpdp.metrics import number, title_of
    from rpdp.studies.evaluation_file import evaluation_lines, read_evaluation
    from rpdp.studies.private_scale import read_scale

    result = trained.result
    if trained.was_finished:
        say_line(f"{trained.directory}: this run is finished; nothing was done")
    score = result.score
    joined = {name: len(view.joined) for name, view in result.silos.items()}
    metrics = [] if score is None else list(score.values)
    by_silo = {} if score is None else score.by_silo
    rows = [
        [
            name,
            f"{joined[name]} of {len(result.rounds)}",
            *[number(by_silo.get(name, {}).get(metric), 4) for metric in metrics],
        ]
        for name in sorted(joined)
    ]
    title = f"{result.method}, seed {result.seed}" if result.is_simulation else f"{result.method}, run {result.run}"
    print_table(title, ["silo", "rounds joined", *[f"test {title_of(metric)}" for metric in metrics]], rows)
    if score is not None:
        _show_score(score)
    evaluated, scale = read_evaluation(trained.directory), read_scale(trained.directory)
    for line in [*(scale.lines() if scale else []), *(evaluation_lines(evaluated) if evaluated else [])]:
        say(line)
    over = sum(view.overdrawn for view in result.silos.values())
    records = sum(len(view.plan) for view in result.silos.values())
    say(f"{over:,} of {records:,} records over budget · δ = {result.public.delta:g} · {result.seconds:.1f} s")
    for note in result.public.notes:
        say(f"note: {note}")
    if result.is_simulation:
        say("A simulation: seeded, nobody is protected.", style="yellow")
    else:
        say("A real run: secure randomness, booked in the ledger of every silo (rpdp ledger show).")
    for name, path in _files(trained.directory).items():
        note = " (sensitive: stays with the silos)" if name in _SENSITIVE else ""
        say_line(f"{name.replace('_', ' ')}: {path}{note}")


def _show_score(score: Score) -> None:
    from rpdp.metrics import number, title_of

    means = score.mean_over_silos
    for name, value in score.values.items():
        beside = ""
        if name == "accuracy" and score.majority_share is not None:
            beside = f"; always the largest class: {score.majority_share:.4f}"
        measured = f"{number(value, 4)} over all records, {number(means[name], 4)} as a mean over silos"
        say(f"test {title_of(name)} {measured}{beside}")
    for remark in score.warnings:
        say(remark, style="yellow")
