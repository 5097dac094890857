"""Every method on every seed, as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rpdp.errors import InputError
from rpdp_lab.central.central_methods import METHODS
from rpdp_lab.central.central_settings import NOT_COVERED, SETTINGS, CentralSettings, shortened
from rpdp_lab.central.pooled_task import PooledTask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rpdp_lab.central.pooled_task import CentralOutcome


@dataclass(frozen=True)
class CentralRow:
    """What one method reached."""

    method: str
    promise: str
    accuracy: float
    spread: float
    accuracies: list[float]
    milliseconds_per_step: float
    steps: int
    gradients_per_step: float
    note: str | None


@dataclass(frozen=True)
class CentralComparison:
    """All methods on one task."""

    task: str
    delta: float
    records: int
    seeds: list[int]
    vary_split: bool
    settings: CentralSettings
    rows: list[CentralRow]
    notes: tuple[str, ...]

    def to_text(self) -> str:
        """A table for people."""
        split = "a split for each seed" if self.vary_split else "one split (the loader's first) for all seeds"
        lines = [
            f"{self.task}: {self.records:,} training records, ε = 2.0 / 4.7 / 11.8 (70 / 20 / 10 %), "
            f"δ = {self.delta:g}, {len(self.seeds)} seeds, {split}",
            f"{'method':<28}{'test accuracy':>18}{'steps':>7}{'records/step':>14}{'ms/step':>10}  promise",
        ]
        lines += [
            f"{row.method:<28}{row.accuracy:>9.4f} ± {row.spread:.4f}{row.steps:>7}{row.gradients_per_step:>14.1f}"
            f"{row.milliseconds_per_step:>10.2f}  {row.promise}"
            for row in self.rows
        ]
        return "\n".join([*lines, *(f"- {note}" for note in self.notes)])


def compare(
    name: str,
    seeds: Sequence[int],
    *,
    methods: Sequence[str] | None = None,
    vary_split: bool = False,
    quick: bool = False,
) -> CentralComparison:
    """Every method on every seed. A seed decides who has which budget, the first model, draws and noise.

    The split into training and test records stays the same, as in the paper, unless `vary_split`.
    """
    if name not in SETTINGS:
        raise InputError(f"task {name!r} is not known here; there are {', '.join(SETTINGS)}")
    if not seeds:
        raise InputError("give at least one seed")
    chosen = list(METHODS) if methods is None else list(methods)
    unknown = [method for method in chosen if method not in METHODS]
    if unknown:
        raise InputError(f"method {unknown[0]!r} is not known; there are {', '.join(METHODS)}")
    settings = shortened(SETTINGS[name]) if quick else SETTINGS[name]
    fixed = PooledTask(settings)
    tasks = {seed: PooledTask(settings, seed) if vary_split and seed else fixed for seed in seeds}
    rows = [_row(method, [METHODS[method][1](pooled, seed) for seed, pooled in tasks.items()]) for method in chosen]
    notes = (*NOT_COVERED, *(row.note for row in rows if row.note))
    return CentralComparison(name, fixed.delta, len(fixed.train), list(seeds), vary_split, settings, rows, notes)


def _row(method: str, outcomes: list[CentralOutcome]) -> CentralRow:
    accuracies = [outcome.accuracy for outcome in outcomes]
    return CentralRow(
        method=method,
        promise=METHODS[method][0],
        accuracy=float(np.mean(accuracies)),
        spread=float(np.std(accuracies, ddof=1)) if len(accuracies) > 1 else 0.0,
        accuracies=accuracies,
        milliseconds_per_step=float(np.median([outcome.milliseconds_per_step for outcome in outcomes])),
        steps=outcomes[0].steps,
        gradients_per_step=float(np.mean([outcome.gradients_per_step for outcome in outcomes])),
        note=outcomes[0].note,
    )
