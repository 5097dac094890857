"""Tuning the learning rate and clip norm of each method, with the same grid and number of trials for all of them.

The best settings are those with the highest accuracy on the silos' test records, on seeds that are not reported. No
privacy promise covers that choice, and every plan made from it says so.
"""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rpdp.errors import InputError
from rpdp.studies.comparison import run_cells
from rpdp.studies.execution import MethodRun
from rpdp.studies.run_directory import read_summary

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rpdp.studies.study_file import MethodSettings, StudyFile

NAME = "tuning.json"
TRIALS = "tuning"


@dataclass(frozen=True)
class Trial:
    """One point of the grid.

    Attributes:
        settings: The settings that were tried.
        accuracies: The accuracies on all test records together, one value per tuning seed.
    """

    settings: MethodSettings
    accuracies: tuple[float, ...]

    @property
    def accuracy(self) -> float:
        """The mean over the tuning seeds."""
        return statistics.fmean(self.accuracies)


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
    best = [max(tried, key=lambda trial: trial.accuracy).settings for tried in trials.values()]
    listed = {
        method: [{**asdict(trial.settings), "accuracies": trial.accuracies} for trial in tried]
        for method, tried in trials.items()
    }
    kept = {"seeds": spec.tuning.seeds, "trials": listed, "best": [asdict(settings) for settings in best]}
    (directory / NAME).write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    return best


def _grid(spec: StudyFile, method: str) -> list[MethodSettings]:
    if spec.tuning is None:
        raise InputError(f"{spec.path}: there is no section [tuning]; give at least its seeds, such as [1001, 1002]")
    own = spec.settings(method)
    return [
        replace(own, learning_rate=rate, clip_norm=norm, tuned=True)
        for rate in spec.tuning.learning_rates
        for norm in spec.tuning.clip_norms
    ]


def _trial(spec: StudyFile, settings: MethodSettings, homes: dict[MethodRun, Path]) -> Trial:
    assert spec.tuning is not None
    found = [read_summary(homes[MethodRun(settings, seed)])["accuracy"] for seed in spec.tuning.seeds]
    if any(accuracy is None for accuracy in found):
        raise InputError(f"{spec.path}: tuning needs test records to measure accuracy, but there are none")
    return Trial(settings, tuple(found))
