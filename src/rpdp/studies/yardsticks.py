"""Yardsticks: a score that the table already holds, measured on the test records that the models of a comparison get.

An established risk score is what a new model has to beat. It is a column of numbers, larger for the second class, and
never a feature. What it is worth is measured as models are in simulations: openly, on the silos' test records.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rpdp.errors import InputError
from rpdp.metrics import METRICS, Predictions
from rpdp.tables.table_columns import IgnoredColumn, NumberColumn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rpdp.studies.study_file import StudyFile
    from rpdp.studies.study_tables import StudyTable

_ANY_NUMBER = NumberColumn(range=(-1e30, 1e30))


@dataclass(frozen=True)
class Yardstick:
    """What a column is worth as a score.

    Attributes:
        column: The name of the column.
        values: By metric, the value on all test records together, one per seed.
    """

    column: str
    values: dict[str, tuple[float | None, ...]]

    def of(self, metric: str) -> tuple[float | None, ...]:
        """The values of a metric; none if a score alone cannot have it."""
        return self.values.get(metric, ())


def measure_yardsticks(spec: StudyFile, seeds: Sequence[int]) -> tuple[Yardstick, ...]:
    """Measure the columns that `evaluation.yardsticks` names, on the test records of every seed."""
    names = spec.evaluation.yardsticks or ()
    if not names:
        return ()
    assert spec.table is not None
    ranking = [name for name in spec.evaluation.metrics or ("auc",) if name in METRICS and _ranks(name)]
    found = [_measured(spec, spec.table, names, seed, ranking) for seed in _splits(spec, seeds)]
    return tuple(
        Yardstick(name, {metric: tuple(one[name, metric] for one in found) for metric in ranking}) for name in names
    )


def require_yardsticks(table: StudyTable | None, names: Sequence[str], metrics: Sequence[str] | None) -> None:
    """Refuse yardsticks that cannot be measured."""
    if table is None:
        raise InputError(f"evaluation.yardsticks={list(names)} names columns, so it needs a [table]")
    target = table.schema.target
    if target.kind != "classification" or target.outputs != 1:
        raise InputError(
            f"evaluation.yardsticks={list(names)} needs a target with two classes: a score orders records between them"
        )
    for name in names:
        if not isinstance(table.schema.columns.get(name, IgnoredColumn()), IgnoredColumn):
            raise InputError(
                f"evaluation.yardsticks: {name} is a feature as well; a model that uses it cannot be compared with it"
            )
    if metrics is not None and not any(name in METRICS and _ranks(name) for name in metrics):
        raise InputError(
            f"evaluation.yardsticks={list(names)} needs a metric of order: add auc or average_precision to metrics"
        )


def _ranks(metric: str) -> bool:
    return METRICS[metric].needs == "ranking"


def _splits(spec: StudyFile, seeds: Sequence[int]) -> list[int]:
    """The split of every seed; a fixed one counts once."""
    return list(seeds) if spec.run.split == "by_seed" else [0]


def _measured(
    spec: StudyFile, table: StudyTable, names: Sequence[str], split: int, metrics: Sequence[str]
) -> dict[tuple[str, str], Any]:
    columns = {**table.schema.columns, **dict.fromkeys(names, _ANY_NUMBER)}
    silos = replace(table, schema=replace(table.schema, columns=columns)).load(spec.directory, split).values()
    tests = [silo.take(silo.is_test) for silo in silos]
    targets = np.concatenate([test.targets for test in tests])
    found = {}
    for name in names:
        scores = np.concatenate([test.values[name] for test in tests])
        missing = int(np.isnan(scores).sum())
        if missing:
            raise InputError(
                f"evaluation.yardsticks: {missing:,} of {len(scores):,} test records have no number in {name}; a score "
                "is compared on the same records as the models, so leave such rows out with [keep], or the yardstick"
            )
        for metric in metrics:
            found[name, metric] = METRICS[metric](Predictions(scores[:, None], targets))
    return found
