"""The attack of the model-only audit: from losses of many runs to scores, ROC curves and advantages.

The score of a record in a run is how much lower its loss is than in the *other* runs without it, in standard deviations
of those (Carlini et al. 2022, arXiv 2112.03570, offline). Records of one run share a model, so they are not
independent; runs are. All intervals are therefore over runs: the mean of one number per run, with Student's t.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from rpdp.display import counts_repr

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

CONFIDENCE = 0.95
_ROC_POINTS = 101
_CANDIDATES = np.linspace(0.02, 0.98, 97)


@dataclass(frozen=True)
class Interval:
    """A mean over runs with its confidence interval."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float] | NDArray[np.float64], confidence: float = CONFIDENCE) -> Interval:
        """Student's t over independent runs."""
        found = np.asarray(values, dtype=np.float64)
        mean = float(found.mean())
        reach = float(stats.t.ppf((1.0 + confidence) / 2.0, found.size - 1)) * float(stats.sem(found))
        return cls(mean, mean - reach, mean + reach)

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True)
class Trials:
    """What happened, run by run: rows are runs, columns are records.

    Attributes:
        losses: Of the final model on each record.
        taken: Whether the record was in.
        group: Its budget, as a number of its group.
    """

    losses: NDArray[np.float64]
    taken: NDArray[np.bool_]
    group: NDArray[np.int64]

    __repr__ = counts_repr

    def scores(self) -> NDArray[np.float64]:
        """For each run and record, how much lower its loss is than in the other runs without it."""
        scores = np.zeros_like(self.losses)
        for run in range(len(self.losses)):
            without = ~self.taken
            without[run] = False
            count = np.maximum(without.sum(0), 1)
            mean = np.where(without, self.losses, 0.0).sum(0) / count
            deviation = np.sqrt(np.where(without, (self.losses - mean) ** 2, 0.0).sum(0) / count)
            scores[run] = np.divide(mean - self.losses[run], deviation, out=np.zeros_like(mean), where=deviation > 0.0)
        return scores


def areas(scores: NDArray[np.float64], trials: Trials, group: int) -> list[float]:
    """The area under the ROC curve, run by run."""
    return [
        _area(score[taken & (which == group)], score[~taken & (which == group)])
        for score, taken, which in zip(scores, trials.taken, trials.group, strict=True)
    ]


def _area(inside: NDArray[np.float64], outside: NDArray[np.float64]) -> float:
    if inside.size == 0 or outside.size == 0:
        return 0.5
    return float(stats.mannwhitneyu(inside, outside).statistic) / (inside.size * outside.size)


def advantages(scores: NDArray[np.float64], trials: Trials, group: int) -> list[float]:
    """True minus false positive rate, run by run, at the threshold that is best on the other runs."""
    found = []
    own = trials.group == group
    for run in range(len(scores)):
        others = own.copy()
        others[run] = False
        threshold = _best_threshold(scores[others & trials.taken], scores[others & ~trials.taken])
        inside, outside = (scores[run][own[run] & coin] for coin in (trials.taken[run], ~trials.taken[run]))
        rates = [float((part > threshold).mean()) if part.size else 0.0 for part in (inside, outside)]
        found.append(rates[0] - rates[1])
    return found


def _best_threshold(inside: NDArray[np.float64], outside: NDArray[np.float64]) -> float:
    candidates = np.quantile(np.concatenate([inside, outside]), _CANDIDATES)
    gain = _above(inside, candidates) - _above(outside, candidates)
    return float(candidates[int(gain.argmax())])


def _above(values: NDArray[np.float64], thresholds: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1.0 - np.searchsorted(np.sort(values), thresholds, side="right") / max(1, values.size)


def roc(scores: NDArray[np.float64], trials: Trials, group: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """False and true positive rates, pooled over runs."""
    inside, outside = (scores[coin & (trials.group == group)] for coin in (trials.taken, ~trials.taken))
    thresholds = np.quantile(outside, np.linspace(1.0, 0.0, _ROC_POINTS)) if outside.size else np.zeros(1)
    false, true = _above(outside, thresholds), _above(inside, thresholds)
    return (0.0, *false.tolist(), 1.0), (0.0, *true.tolist(), 1.0)
