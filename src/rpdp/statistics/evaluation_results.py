"""From the noisy sums of an evaluation to metrics with intervals, a confusion matrix and curves.

All of it is computed from what silos released and from public settings, so it costs nothing more. What an interval
speaks of depends on the estimator:

| estimator | covers the metric of this model on |
|---|---|
| everyone | exactly those held-out records whose budget pays for weight 1: a public floor |
| representative | all held-out records, and the population they are from, if outputs do not depend on budgets |
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rpdp.errors import InputError
from rpdp.statistics import score_metrics
from rpdp.statistics.estimate import LEVEL, NoisyEstimate, normal_quantile
from rpdp.statistics.evaluation_measures import CLASSES, ERRORS, SCORES, EvaluationMeasure
from rpdp.statistics.inquiry import INDEPENDENT, SPREAD
from rpdp.statistics.score_counts import NoisyCounts
from rpdp.statistics.score_intervals import MetricInterval, ratio
from rpdp.statistics.score_metrics import CurvePoint, ScoreCounts
from rpdp.statistics.score_precision import average_precision

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from rpdp.planning.request import RequestEstimator
    from rpdp.statistics.noisy_sums import NoisySums

SPEAKS_OF: dict[RequestEstimator, str] = {
    "everyone": "the held-out records above the public floor: those whose budget pays for weight 1",
    "representative": "all held-out records, and the population that they are a sample of",
}
FIELLER = "Fieller's interval of a ratio; coverage checked by simulation"
METHODS = {
    "auc": "Fieller's interval of a ratio, pairs within a bin counted as wrong at one end and right at the other",
    "average_precision": "bounds over all curves within a simultaneous band; they are wide",
    "balanced_accuracy": "Fieller's interval of each class, combined by their lengths",
    "rmse": "Fieller's interval of the mean square, and its root",
}
WRONG = "a record for which the model fails or gives NaN counts as wrong"
LEFT_OUT = "records with another value of {}, or none, are left out"
CUT = "errors above {:g} count as {:g}"


@dataclass(frozen=True)
class PrivateScore:
    """What a private evaluation says of a model, on all records or on one declared group.

    Attributes:
        group: The group; empty for all records.
        metrics: One estimate for every metric that was asked for; the first one decides.
        confusion: By true class, the share of all records that each predicted class has.
        roc: Points of the ROC curve.
        calibration: Points of the calibration curve.
    """

    group: str
    metrics: tuple[NoisyEstimate, ...]
    confusion: tuple[tuple[MetricInterval, ...], ...] = ()
    roc: tuple[CurvePoint, ...] = ()
    calibration: tuple[CurvePoint, ...] = ()

    @property
    def first(self) -> NoisyEstimate:
        """The metric that decides."""
        return self.metrics[0]

    def plain(self) -> dict[str, Any]:
        """As plain values for JSON."""
        return {**asdict(self), "metrics": [one.plain() for one in self.metrics]}


def evaluate(released: NoisySums, *, level: float = LEVEL, details: bool = True) -> tuple[PrivateScore, ...]:
    """The scores of a model: on all records, then on every declared group.

    Groups have noise of their own, which adds up for all records: with few large groups that matters little. Without
    `details`, only the metrics on all records.
    """
    measure = EvaluationMeasure.of(released.request.measures[0])
    if len(released.request.measures) != 1:
        raise InputError("these sums are not of a private evaluation, which has one measure")
    parts = released.cells.reshape(max(1, len(measure.levels)), measure.size)
    whole = _Reading(measure, released.request.estimator, released.deviation * np.sqrt(len(parts)), level)
    if not details:
        return (PrivateScore("", whole.metrics(parts.sum(axis=0))),)
    each = _Reading(measure, released.request.estimator, released.deviation, level)
    groups = [each.score(name, cells) for name, cells in zip(measure.levels, parts, strict=False)]
    return (whole.score("", parts.sum(axis=0)), *groups)


@dataclass(frozen=True)
class _Reading:
    """How cells are read: of what measure, with what noise."""

    measure: EvaluationMeasure
    estimator: RequestEstimator
    deviation: float
    level: float

    @property
    def spread(self) -> float:
        """κ of `NoisyCounts`: at most 1, because no weight is above 1; so no private number enters an interval."""
        return 1.0 if self.estimator == "representative" else 0.0

    def score(self, group: str, cells: NDArray[np.float64]) -> PrivateScore:
        metrics = self.metrics(cells)
        if self.measure.kind == ERRORS:
            return PrivateScore(group, metrics)
        shares = self._shares(self._confusion(cells))
        if self.measure.kind == CLASSES:
            return PrivateScore(group, metrics, shares)
        counts = self._scores(cells)
        roc = score_metrics.roc_curve(counts, self.measure.edges, self.level)
        calibration = score_metrics.calibration_curve(counts, self.measure.edges, self.level)
        return PrivateScore(group, metrics, shares, roc, calibration)

    def metrics(self, cells: NDArray[np.float64]) -> tuple[NoisyEstimate, ...]:
        """The metrics that were asked for."""
        if self.measure.kind == ERRORS:
            return self._named(self._errors(cells))
        table = self._confusion(cells)
        is_ranked = self.measure.kind == SCORES
        return self._named(self._ranking(self._scores(cells), table) if is_ranked else self._counting(table))

    def _scores(self, cells: NDArray[np.float64]) -> ScoreCounts:
        return ScoreCounts.of_cells(cells, self.deviation, self.spread)

    def _confusion(self, cells: NDArray[np.float64]) -> NoisyCounts:
        if self.measure.kind == SCORES:
            return self._scores(cells).confusion(self.measure.bins // 2)
        return NoisyCounts.plain(cells, self.deviation, self.spread)

    def _counting(self, table: NoisyCounts) -> dict[str, Callable[[], MetricInterval]]:
        return {
            "accuracy": lambda: score_metrics.accuracy(table, self.level),
            "balanced_accuracy": lambda: score_metrics.balanced_accuracy(table, self.level),
            "f1": lambda: score_metrics.f1(table, self.level),
        }

    def _ranking(self, counts: ScoreCounts, table: NoisyCounts) -> dict[str, Callable[[], MetricInterval]]:
        return {
            **self._counting(table),
            "auc": lambda: score_metrics.auc(counts, self.level),
            "average_precision": lambda: average_precision(counts.negatives, counts.positives, self.level),
        }

    def _errors(self, cells: NDArray[np.float64]) -> dict[str, Callable[[], MetricInterval]]:
        """Cells are the count and one sum for each metric, all divided by the root of their number."""
        scale, bound = float(np.sqrt(self.measure.size)), self.measure.bound
        places = {name: place for place, name in enumerate(self.measure.metrics, start=1)}

        def mean(name: str, largest: float) -> MetricInterval:
            sums = scale * cells[[0, places[name]]]
            return score_metrics.mean_error(sums, scale * self.deviation, largest, self.level, self.spread)

        return {
            "mae": lambda: mean("mae", bound),
            "rmse": lambda: score_metrics.scaled(mean("rmse", bound**2), lambda square: float(np.sqrt(square))),
        }

    def _shares(self, table: NoisyCounts) -> tuple[tuple[MetricInterval, ...], ...]:
        size = table.values.size
        shares = [ratio(table, one, np.ones(size), self.level) for one in np.eye(size)]
        classes = self.measure.classes
        return tuple(tuple(shares[row * classes : (row + 1) * classes]) for row in range(classes))

    def _named(self, known: Mapping[str, Callable[[], MetricInterval]]) -> tuple[NoisyEstimate, ...]:
        assumptions = (INDEPENDENT, SPREAD) if self.estimator == "representative" else ()
        bound = self.measure.bound
        cut = [CUT.format(bound, bound)] if self.measure.kind == ERRORS else []
        cut += [LEFT_OUT.format(self.measure.column)] if self.measure.levels else []
        found = []
        for name in self.measure.metrics:
            interval = known[name]()
            middle = (interval.low + interval.high) / 2.0
            found.append(
                NoisyEstimate(
                    name=name,
                    value=middle if interval.value is None else interval.value,
                    low=interval.low,
                    high=interval.high,
                    error=interval.half_width / normal_quantile(self.level),
                    level=self.level,
                    estimator=self.estimator,
                    method=METHODS.get(name, FIELLER),
                    speaks_of=SPEAKS_OF[self.estimator],
                    assumptions=(*assumptions, *cut, WRONG),
                )
            )
        return tuple(found)
