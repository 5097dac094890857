"""`rpdp compare`: several methods on the same study, over several seeds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rpdp.budgets import PAPER
from rpdp.checks import require_choice, require_count
from rpdp.cli import options
from rpdp.cli.output import INTERRUPTED, print_json, print_table, report_interruption, say, say_line
from rpdp.cli.progress import ComparisonProgress
from rpdp.errors import InputError
from rpdp.spread import Spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rpdp.studies.comparison import Comparison, MethodRow
    from rpdp.studies.study_file import MethodSettings, StudyFile

DEFAULT_METHODS = "rpdp,minimum,dropout,privacy_free"


def compare(
    file: options.StudyFileArgument,
    methods: Annotated[str, typer.Option("--methods", "-m", help="Methods, separated by commas.")] = DEFAULT_METHODS,
    seeds: Annotated[
        int | None, typer.Option("--seeds", help="Number of seeds; by default those of the study file.")
    ] = None,
    distribution: Annotated[
        str | None, typer.Option("--distribution", help="Draw budgets from this distribution instead of the file's.")
    ] = None,
    first_seed: Annotated[int | None, typer.Option("--first-seed", help="With --seeds: the first (1).")] = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="First tune every method on the grid of [tuning]. No promise covers this.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Directory for results.")] = None,
    workers: options.Workers = None,
    force: Annotated[bool, typer.Option("--force", help="Run again what is finished.")] = False,
    as_json: options.Json = False,
) -> None:
    """Run several methods over several seeds: metrics, records over budget, promises, and a report.

    FILE is a study file (TOML). Finished runs are reused, so the same command resumes an interrupted comparison.

    Example: `rpdp compare examples/breast_cancer.toml --methods rpdp,minimum,dropout,privacy_free --seeds 5`
    """
    from rpdp.studies.study_file import StudyFile

    spec = StudyFile.read(file)
    directory = out or spec.output / "compare"
    if distribution is not None:
        spec = spec.with_distribution(require_choice("--distribution", distribution, list(PAPER)))
        directory = out or spec.output / f"compare-{distribution}"
    names = _names(methods)
    chosen_seeds = _seeds(spec, seeds, first_seed)
    limit = options.workers_of(workers, spec)

    from rpdp.studies.comparison import compare as run
    from rpdp.studies.comparison import table_json
    from rpdp.studies.tuning import tune as search

    chosen = [spec.settings(name) for name in names]
    try:
        if tune:
            with ComparisonProgress("tuning", quiet=as_json) as progress:
                chosen = search(spec, names, directory, workers=limit, on_cell=progress)
        with ComparisonProgress("running", quiet=as_json) as progress:
            compared = run(spec, chosen, chosen_seeds, directory, workers=limit, force=force, on_cell=progress)
    except KeyboardInterrupt:
        message = f"Every finished run is kept in {directory}; the same command{' without --force' * force} resumes."
        report_interruption(message, None, as_json=as_json)
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        print_json({**table_json(compared), "tuned": tune, "files": _files(directory)})
        return
    _show(spec, compared, tuned=tune)


def _names(methods: str) -> list[str]:
    from rpdp.studies.study_sections import METHOD_NAMES

    names = [require_choice("--methods", name.strip(), METHOD_NAMES) for name in methods.split(",")]
    if len(set(names)) != len(names):
        raise InputError(f"--methods {methods} names a method twice")
    return names


def _seeds(spec: StudyFile, count: int | None, first: int | None) -> tuple[int, ...]:
    if count is None:
        if first is not None:
            raise InputError("--first-seed only goes with --seeds")
        if spec.run.is_production:
            raise InputError(
                f"{spec.path} has no seeds, so it describes a real run; a comparison simulates: give --seeds"
            )
        return tuple(spec.run.seeds)
    require_count("--seeds", count, most=10_000)
    start = require_count("--first-seed", 1 if first is None else first, least=0)
    seeds = tuple(range(start, start + count))
    spec.check_seeds(seeds)
    return seeds


def _files(directory: Path) -> dict[str, str]:
    names = {"comparison": "comparison.json", "report": "report.html", "report_to_share": "report-share.html"}
    return {key: str(directory / name) for key, name in names.items()}


def _show(spec: StudyFile, compared: Comparison, *, tuned: bool) -> None:
    from rpdp.metrics import title_of

    count = len(compared.seeds)
    title = f"{spec.short_name}: {spec.public_schedule.describe()}, δ = {spec.delta:g}"
    over = f"{count} seed{'' if count == 1 else 's'}"
    metrics = compared.rows[0].metrics
    measured = [f"{title_of(name)} ({over})" if place == 0 else title_of(name) for place, name in enumerate(metrics)]
    columns = ["method", *measured, "mean over silos", "learning rate", "clip norm", "records over budget"]
    rows = [_cells(row) for row in compared.rows]
    majority = compared.majority_share
    if majority is not None and "accuracy" in metrics:
        shares = [f"{majority.mean:.4f}" if name == "accuracy" else "" for name in metrics]
        rows.append(["(largest class)", *shares, "", "", "", ""])
    rows += [
        [f"({one.column})", *[_spread(one.of(name)) for name in metrics], "", "", "", ""] for one in compared.yardsticks
    ]
    print_table(title, columns, rows)
    for row in compared.rows:
        if row.one_class:
            said = f"assigns one class to every test record on {row.one_class} of {over}"
            say(f"{row.settings.method} {said}: accuracy says nothing about it", style="yellow")
    for row in compared.rows:
        say(f"{row.settings.method} promises: {row.promise}")
    if compared.reused:
        total = count * len(compared.rows)
        say(f"{compared.reused} of {total} runs were finished before; --force runs them again.")
    if tuned:
        say("Learning rates and clip norms were chosen by results on test records: no promise covers this.")
    say("A simulation: seeded, nobody is protected.", style="yellow")
    for name, path in _files(compared.directory).items():
        say_line(f"{name.replace('_', ' ')}: {path}")


def _spread(values: Sequence[float | None]) -> str:
    spread = Spread.of(values)
    return "–" if spread is None else spread.text(4)


def _measured(row: MethodRow, metric: str) -> str:
    text = _spread(row.values(metric))
    return f"{text}, one class" if metric == "accuracy" and row.one_class == len(row.scores) else text


def _cells(row: MethodRow) -> list[str]:
    settings: MethodSettings = row.settings
    level = "" if settings.level is None else f" at {settings.level:g}"
    return [
        f"{settings.method}{level}",
        *[_measured(row, metric) for metric in row.metrics],
        _spread(row.means(row.metrics[0])) if row.metrics else "–",
        f"{settings.learning_rate:g}",
        f"{settings.clip_norm:g}",
        f"{row.overdrawn:,} of {row.records:,}",
    ]
