"""Tuning the learning rate and clip norm of each method, with the same grid and number of trials for all of them.

The best settings are those with the best first metric on the silos' test records, on seeds that are not reported. No
privacy promise covers that choice, and every plan made from it says so.
"""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rpdp.errors import InputError
from rpdp.studies.comparison import run_cells
from rpdp.studies.execution import MethodRun
from rpdp.studies.run_directory import read_summary
from rpdp.studies.study_data import deciding_metric

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rpdp.metrics import Metric
    from rpdp.studies.study_file import MethodSettings, StudyFile

NAME = "tuning.json"
TRIALS = "tuning"


@dataclass(frozen=True)
class Trial:
    """One point of the grid.

    Attributes:
        settings: The settings that were tried.
        metric: The metric that decides.
        values: Its values on all test records together, one per tuning seed; None where it has none.
    """

    settings: MethodSettings
    metric: Metric
    values: tuple[float | None, ...]

    @property
    def merit(self) -> float:
        """The mean over the tuning seeds, larger for better; a metric without a value is worst."""
        known = [value for value in self.values if value is not None]
        if len(known) < len(self.values):
            return -math.inf
        return statistics.fmean(known) * (1.0 if self.metric.larger_is_better else -1.0)


def tune(
    spec: StudyFile,
    methods: Sequence[str],
    directory: str | Path,
    *,
    workers: int | None = None,
    on_cell: Callable[[MethodRun, int, int], None] | None = None,
) -> list[MethodSettings]:
    """Return the best settings of every method. Trials stay in the directory, so an interrupted search can continue."""
    directory = Path(directory)
    grid = {method: _grid(spec, method) for method in methods}
    assert spec.tuning is not None
    cells = [MethodRun(settings, seed) for tried in grid.values() for settings in tried for seed in spec.tuning.seeds]
    homes = {cell: directory / TRIALS / cell.key(spec) for cell in cells}
    run_cells(spec, homes, workers=workers, keep_silos=False, on_cell=on_cell)
    trials = {method: [_trial(spec, settings, homes) for settings in tried] for method, tried in grid.items()}
    best = [max(tried, key=lambda trial: trial.merit).settings for tried in trials.values()]
    listed = {
        method: [{**asdict(trial.settings), "values": trial.values} for trial in tried]
        for method, tried in trials.items()
    }
    metric = trials[methods[0]][0].metric.name
    chosen = [asdict(settings) for settings in best]
    kept = {"seeds": spec.tuning.seeds, "metric": metric, "trials": listed, "best": chosen}
    (directory / NAME).write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    return best


def _grid(spec: StudyFile, method: str) -> list[MethodSettings]:
    if spec.tuning is None or not spec.tuning.seeds:
        raise InputError(f"{spec.path}: there is no section [tuning] with seeds for the grid, such as [1001, 1002]")
    own = spec.settings(method)
    return [
        replace(own, learning_rate=rate, clip_norm=norm, tuned=True)
        for rate in spec.tuning.learning_rates
        for norm in spec.tuning.clip_norms
    ]


def _trial(spec: StudyFile, settings: MethodSettings, homes: dict[MethodRun, Path]) -> Trial:
    assert spec.tuning is not None
    found = [read_summary(homes[MethodRun(settings, seed)])["metrics"] for seed in spec.tuning.seeds]
    if not all(found):
        raise InputError(f"{spec.path}: tuning needs test records to measure on, but there are none")
    first = next(iter(found[0]))
    return Trial(settings, deciding_metric(spec, first), tuple(one[first]["value"] for one in found))
