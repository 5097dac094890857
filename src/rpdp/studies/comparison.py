"""Comparing several methods over several seeds, with the same data, budgets, schedule and σ for all of them.

Finished cells (method, seed, settings) are kept in the output directory, so that an interrupted comparison continues
where it stopped, and a larger one reuses a smaller one.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rpdp.errors import InputError
from rpdp.federation.workers import cores, default_workers, run_jobs
from rpdp.methods import method_named
from rpdp.spread import Spread
from rpdp.studies.building import build
from rpdp.studies.execution import MethodRun, execute
from rpdp.studies.run_directory import STUDY_FILE, is_finished, read_result, write_result
from rpdp.studies.run_reports import write_reports
from rpdp.studies.yardsticks import Yardstick, measure_yardsticks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rpdp.federation import RunResult, Score
    from rpdp.studies.building import PreparedRun
    from rpdp.studies.study_file import MethodSettings, StudyFile

FORMAT = "rpdp-comparison/2"
NAME = "comparison.json"
CELLS = "cells"


@dataclass(frozen=True)
class MethodRow:
    """One method over all seeds.

    Attributes:
        settings: The settings of the method.
        promise: What the method promises, in one sentence.
        scores: The metrics of the final models, one score per seed; empty without test records.
        overdrawn: The number of records, over all silos and seeds, that a plan costs more than their budget.
        records: The number of training records, over all silos and seeds.
        seconds: The wall-clock time, one value per seed.
    """

    settings: MethodSettings
    promise: str
    scores: tuple[Score, ...]
    overdrawn: int
    records: int
    seconds: tuple[float, ...]

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of the metrics; the first one decides."""
        return tuple(self.scores[0].values) if self.scores else ()

    def values(self, metric: str) -> tuple[float | None, ...]:
        """The values of a metric on all test records together, one per seed."""
        return tuple(score[metric] for score in self.scores)

    def means(self, metric: str) -> tuple[float | None, ...]:
        """The unweighted means of the silos' values, one per seed."""
        return tuple(score.mean_over_silos[metric] for score in self.scores)

    @property
    def one_class(self) -> int:
        """On how many seeds the final model assigns one class to all test records."""
        return sum(score.only_class is not None for score in self.scores)


@dataclass(frozen=True)
class Comparison:
    """A finished comparison.

    Attributes:
        seeds: The seeds.
        rows: The methods.
        directory: Where everything is kept.
        reused: How many of the runs had been finished before.
        yardsticks: What existing scores are worth on the same test records.
    """

    seeds: tuple[int, ...]
    rows: tuple[MethodRow, ...]
    directory: Path
    reused: int
    yardsticks: tuple[Yardstick, ...] = ()

    @property
    def majority_share(self) -> Spread | None:
        """The share of the largest class among the test records: the accuracy of always answering with it."""
        return Spread.of([score.majority_share for score in self.rows[0].scores])


def compare(
    spec: StudyFile,
    chosen: Sequence[MethodSettings],
    seeds: Sequence[int],
    directory: str | Path,
    *,
    workers: int | None = None,
    force: bool = False,
    on_cell: Callable[[MethodRun, int, int], None] | None = None,
) -> Comparison:
    """Run the cells that have no result yet, then tabulate and report all of them."""
    directory = Path(directory)
    if not chosen or not seeds:
        raise InputError("a comparison needs at least one method and one seed")
    spec.check_seeds(seeds)
    cells = [MethodRun(settings, seed) for seed in seeds for settings in chosen]
    homes = {cell: directory / CELLS / cell.key(spec) for cell in cells}
    if force:
        for home in homes.values():
            shutil.rmtree(home, ignore_errors=True)
    reused = sum(map(is_finished, homes.values()))
    run_cells(spec, homes, workers=workers, on_cell=on_cell)
    results = {
        settings.method: [read_result(homes[MethodRun(settings, seed)]) for seed in seeds] for settings in chosen
    }
    rows = tuple(_row(settings, results[settings.method]) for settings in chosen)
    compared = Comparison(tuple(seeds), rows, directory, reused, measure_yardsticks(spec, seeds))
    _write(spec, compared, homes)
    write_reports(results, directory, spec)
    return compared


def run_cells(
    spec: StudyFile,
    homes: dict[MethodRun, Path],
    *,
    workers: int | None,
    keep_silos: bool = True,
    on_cell: Callable[[MethodRun, int, int], None] | None = None,
) -> None:
    """Run every cell that has no result yet: in parallel for tiny models, otherwise in turn."""
    spec.require_simulation()
    missing = [cell for cell, home in homes.items() if not is_finished(home)]
    if not missing:
        return
    # Build one here, so that a wrong setting is reported before any process is started.
    tiny = _is_tiny(build(spec, missing[0].settings, missing[0].seed))
    workers_per_cell = 1 if tiny else workers
    cells_at_once = min(len(missing), workers or cores()) if tiny else 1
    done = len(homes) - len(missing)

    def job(cell: MethodRun) -> Callable[[], None]:
        return lambda: _run_cell(spec, cell, homes[cell], workers_per_cell, keep_silos=keep_silos)

    def finished(index: int) -> None:
        nonlocal done
        done += 1
        if on_cell is not None:
            on_cell(missing[index], done, len(homes))

    run_jobs([job(cell) for cell in missing], cells_at_once, finished)


def _is_tiny(built: PreparedRun) -> bool:
    """Return whether the model is so small that several workers in one run would not pay off."""
    parameters = sum(value.numel() for value in built.model.parameters() if value.requires_grad)
    return default_workers(parameters, len(built.silos)) == 1


def _run_cell(spec: StudyFile, cell: MethodRun, home: Path, workers: int | None, *, keep_silos: bool) -> None:
    built = build(spec, cell.settings, cell.seed)
    write_result(execute(built, workers=workers), built.model, home, keep_silos=keep_silos)


def _row(settings: MethodSettings, runs: Sequence[RunResult]) -> MethodRow:
    scores = [run.score for run in runs if run.score is not None]
    return MethodRow(
        settings,
        method_named(settings.method).promise,
        tuple(scores),
        sum(view.overdrawn for run in runs for view in run.silos.values()),
        sum(len(view.plan) for run in runs for view in run.silos.values()),
        tuple(run.seconds for run in runs),
    )


def table_json(compared: Comparison) -> dict[str, Any]:
    """Return the comparison as JSON values."""
    methods = [_row_json(row) for row in compared.rows]
    yardsticks = {
        one.column: {name: _values_json(values) for name, values in one.values.items()} for one in compared.yardsticks
    }
    head = {"format": FORMAT, "seeds": list(compared.seeds), "methods": methods, "reused": compared.reused}
    return {**head, "yardsticks": yardsticks} if yardsticks else head


def _row_json(row: MethodRow) -> dict[str, Any]:
    return {
        "settings": asdict(row.settings),
        "promise": row.promise,
        "metrics": {name: _metric_json(row, name) for name in row.metrics},
        "majority_shares": [score.majority_share for score in row.scores],
        "only_classes": [score.only_class for score in row.scores],
        "overdrawn": row.overdrawn,
        "records": row.records,
        "seconds": row.seconds,
    }


def _metric_json(row: MethodRow, metric: str) -> dict[str, Any]:
    return {**_values_json(row.values(metric)), "mean_over_silos": _values_json(row.means(metric))}


def _values_json(values: Sequence[float | None]) -> dict[str, Any]:
    return {**_pair(Spread.of(values)), "values": values}


def _pair(spread: Spread | None) -> dict[str, float | None]:
    """Mean and deviation; one seed has no deviation."""
    return {"mean": None if spread is None else spread.mean, "deviation": None if spread is None else spread.deviation}


def _write(spec: StudyFile, compared: Comparison, homes: dict[MethodRun, Path]) -> None:
    cells = [
        {"method": cell.settings.method, "seed": cell.seed, "directory": str(home.relative_to(compared.directory))}
        for cell, home in homes.items()
    ]
    text = json.dumps({**table_json(compared), "cells": cells}, indent=2, ensure_ascii=False)
    (compared.directory / NAME).write_text(text + "\n", encoding="utf-8")
    spec.write_copy(compared.directory / STUDY_FILE)
