"""Statistics by name: which measure each needs, and how its numbers and intervals come from the noisy cells.

| statistic | everyone | representative |
|---|---|---|
| `Count` | exact interval | needs no release: personal weights do not say how many records there are |
| `Sum` | exact interval | the mean times a declared number of records |
| `Mean`, by group too | Fieller | Fieller, with the weights' sampling spread |
| `Variance`, `StandardDeviation`, by group too | Fieller | the same |
| `Correlation` | delta method on Fisher's scale | the same |
| `Histogram` | counts, exact intervals; shares, Fieller | shares, Fieller |
| `Quantiles` | inversion of tests | the same |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from rpdp.checks import require_choice, require_positive
from rpdp.errors import InputError
from rpdp.statistics import power_sums
from rpdp.statistics.columns import Levels, NumberRange
from rpdp.statistics.estimate import Intervals
from rpdp.statistics.intervals import Quadratic, exact, fieller, quantile, scaled, square_root
from rpdp.statistics.measures import (
    CountMeasure,
    HistogramMeasure,
    MomentsMeasure,
    RunningMeasure,
    SumMeasure,
)
from rpdp.statistics.power_sums import PowerSums
from rpdp.statistics.score_counts import adding_up

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.planning.request import RequestEstimator
    from rpdp.statistics.axis import Axis
    from rpdp.statistics.intervals import Noise
    from rpdp.statistics.measures import Measure


EXACT = "exact: the noise is Gaussian, its deviation public"
FIELLER = "Fieller's interval of a ratio; coverage checked by simulation"
FIELLER_OF_VARIANCE = "Fieller's interval, the mean's error carried along; coverage checked by simulation"
DELTA = "delta method on Fisher's scale; coverage checked by simulation"
INVERSION = "inversion of tests on noisy counts below each edge; exact but for the width of a bin"
CLIPPED = "values of {0} outside {1:g} to {2:g} count as the nearest end"
COMPLETE = "records without a value of {0} are left out"
BINNED = "within a bin of {0}, values are taken to be spread evenly; the interval does not rest on that"
NORMALISED = "shares are of records with a value; the share of missing values is of all"


class Statistic(ABC):
    """A statistic of columns.

    Its intervals are functions of noisy cells and public numbers alone, so they are as private as the cells.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """What it is called."""

    @abstractmethod
    def measure(self, estimator: RequestEstimator) -> Measure:
        """The measure that it needs."""

    @abstractmethod
    def labels(self, estimator: RequestEstimator) -> tuple[str, ...]:
        """What each of its numbers is called."""

    @abstractmethod
    def method(self, estimator: RequestEstimator) -> str:
        """How its intervals are made."""

    @abstractmethod
    def assumptions(self, estimator: RequestEstimator) -> tuple[str, ...]:
        """What is taken for granted besides what the estimator does, in sentences."""

    @abstractmethod
    def intervals(
        self, estimator: RequestEstimator, measure: Measure, cells: NDArray[np.float64], noise: Noise
    ) -> Intervals:
        """Its numbers with intervals: releases × numbers.

        Args:
            estimator: "everyone" or "representative".
            measure: Its measure, or one that serves for it.
            cells: The noisy cells of that measure.
            noise: What is known of their error.
        """


def clipped(column: str, facts: NumberRange) -> str:
    """The sentence on clipping."""
    return CLIPPED.format(column, facts.low, facts.high)


def _moments(measure: Measure) -> MomentsMeasure:
    assert isinstance(measure, MomentsMeasure)
    return measure


@dataclass(frozen=True)
class Count(Statistic):
    """How many records take part: with "everyone", those above the public floor."""

    @property
    def name(self) -> str:
        """See `Statistic.name`."""
        return "records"

    def measure(self, estimator: RequestEstimator) -> Measure:
        """See `Statistic.measure`."""
        if estimator == "representative":
            raise InputError(
                'the estimator "representative" cannot count records, because a personal weight is not a record; ask '
                'for proportions, or count with "everyone"'
            )
        return CountMeasure()

    def labels(self, estimator: RequestEstimator) -> tuple[str, ...]:
        """See `Statistic.labels`."""
        return (self.name,)

    def method(self, estimator: RequestEstimator) -> str:
        """See `Statistic.method`."""
        return EXACT

    def assumptions(self, estimator: RequestEstimator) -> tuple[str, ...]:
        """See `Statistic.assumptions`."""
        return ()

    def intervals(
        self, estimator: RequestEstimator, measure: Measure, cells: NDArray[np.float64], noise: Noise
    ) -> Intervals:
        """See `Statistic.intervals`."""
        return exact(cells, np.asarray(noise.deviation), noise.z)


@dataclass(frozen=True)
class Sum(Statistic):
    """The sum of a column.

    Attributes:
        column: Its name.
        facts: Its public range.
        records: How many records there are, if that is public: with "representative", the sum is so many times the
            mean.
    """

    column: str
    facts: NumberRange
    records: float | None = None

    def __post_init__(self) -> None:
        if self.records is not None:
            require_positive("records", self.records)

    @property
    def name(self) -> str:
        """See `Statistic.name`."""
        return f"sum of {self.column}"

    def measure(self, estimator: RequestEstimator) -> Measure:
        """See `Statistic.measure`."""
        if estimator == "everyone":
            return SumMeasure(self.column, self.facts)
        if self.records is None:
            raise InputError(
                f"{self.name}: personal weights do not say how many records there are; declare records=, ask for the "
                'mean, or sum with "everyone"'
            )
        return Mean(self.column, self.facts).measure(estimator)

    def labels(self, estimator: RequestEstimator) -> tuple[str, ...]:
        """See `Statistic.labels`."""
        return (self.name,)

    def method(self, estimator: RequestEstimator) -> str:
        """See `Statistic.method`."""
        return EXACT if estimator == "everyone" else FIELLER

    def assumptions(self, estimator: RequestEstimator) -> tuple[str, ...]:
        """See `Statistic.assumptions`."""
        declared = () if estimator == "everyone" else (f"{self.records:,g} records have a value, as declared",)
        return (clipped(self.column, self.facts), COMPLETE.format(self.column), *declared)

    def intervals(
        self, estimator: RequestEstimator, measure: Measure, cells: NDArray[np.float64], noise: Noise
    ) -> Intervals:
        """See `Statistic.intervals`."""
        if estimator == "everyone":
            return scaled(exact(cells, np.asarray(noise.deviation), noise.z), self.facts.bound)
        assert self.records is not None
        return scaled(Mean(self.column, self.facts).intervals(estimator, measure, cells, noise), self.records)


@dataclass(frozen=True)
class _OfOneColumn(Statistic):
    """What powers of one column say, for all records or by group."""

    column: str
    facts: NumberRange
    by: Axis | None = None

    @property
    def _interest(self) -> int:
        """The highest power that it is made of."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """See `Statistic.name`."""
        return f"{self._what} of {self.column}"

    @property
    def _what(self) -> str:
        raise NotImplementedError

    def measure(self, estimator: RequestEstimator) -> MomentsMeasure:
        """See `Statistic.measure`."""
        degree = self._interest if estimator == "everyone" else 2 * self._interest
        return MomentsMeasure((self.column,), (self.facts,), self._interest, degree, self.by)

    def labels(self, estimator: RequestEstimator) -> tuple[str, ...]:
        """See `Statistic.labels`."""
        if self.by is None:
            return (self.name,)
        return tuple(f"{self.name}, {self.by.column} {label}" for label in self.by.labels)

    def assumptions(self, estimator: RequestEstimator) -> tuple[str, ...]:
        """See `Statistic.assumptions`."""
        return (clipped(self.column, self.facts), COMPLETE.format(self.column))


@dataclass(frozen=True)
class Mean(_OfOneColumn):
    """The mean of a column."""

    @property
    def _what(self) -> str:
        return "mean"

    @property
    def _interest(self) -> int:
        return 1

    def method(self, estimator: RequestEstimator) -> str:
        """See `Statistic.method`."""
        return FIELLER

    def intervals(
        self, estimator: RequestEstimator, measure: Measure, cells: NDArray[np.float64], noise: Noise
    ) -> Intervals:
        """See `Statistic.intervals`."""
        sums = PowerSums(_moments(measure), cells, noise)
        return scaled(power_sums.mean(sums), self.facts.half, self.facts.middle)


@dataclass(frozen=True)
class Variance(_OfOneColumn):
    """The variance of a column."""

    @property
    def _what(self) -> str:
        return "variance"

    @property
    def _interest(self) -> int:
        return 2

    def method(self, estimator: RequestEstimator) -> str:
        """See `Statistic.method`."""
        return FIELLER_OF_VARIANCE

    def intervals(
        self, estimator: RequestEstimator, measure: Measure, cells: NDArray[np.float64], noise: Noise
    ) -> Intervals:
        """See `Statistic.intervals`."""
        sums = PowerSums(_moments(measure), cells, noise)
        return scaled(power_sums.variance(sums), self.facts.half**2)


@dataclass(frozen=True)
class StandardDeviation(Variance):
    """The standard deviation of a column."""

    @property
    def _what(self) -> str:
        return "standard deviation"

    def intervals(
        self, estimator: RequestEstimator, measure: Measure, cells: NDArray[np.float64], noise: Noise
    ) -> Intervals:
        """See `Statistic.intervals`."""
        return square_root(super().intervals(estimator, measure, cells, noise))


@dataclass(frozen=True)
class Correlation(Statistic):
    """The correlation of two columns."""

    columns: tuple[str, str]
    facts: tuple[NumberRange, NumberRange]

    @property
    def name(self) -> str:
        """See `Statistic.name`."""
        return f"correlation of {self.columns[0]} and {self.columns[1]}"

    def measure(self, estimator: RequestEstimator) -> MomentsMeasure:
        """See `Statistic.measure`."""
        return MomentsMeasure(self.columns, self.facts, 2, 2 if estimator == "everyone" else 4)

    def labels(self, estimator: RequestEstimator) -> tuple[str, ...]:
        """See `Statistic.labels`."""
        return (self.name,)

    def method(self, estimator: RequestEstimator) -> str:
        """See `Statistic.method`."""
        return DELTA

    def assumptions(self, estimator: RequestEstimator) -> tuple[str, ...]:
        """See `Statistic.assumptions`."""
        sentences = [clipped(name, facts) for name, facts in zip(self.columns, self.facts, strict=True)]
        return (*sentences, COMPLETE.format(" or ".join(self.columns)))

    def intervals(
        self, estimator: RequestEstimator, measure: Measure, cells: NDArray[np.float64], noise: Noise
    ) -> Intervals:
        """See `Statistic.intervals`."""
        return power_sums.correlation(PowerSums(_moments(measure), cells, noise))


@dataclass(frozen=True)
class Histogram(Statistic):
    """How records spread over the cells of one axis, or of two (a contingency table).

    Attributes:
        axes: The columns with their levels or edges.
        share_of: What cells are shares of: None for counts, "all" records that have a value, or their "groups" by the
            first of two columns.
    """

    axes: tuple[Axis, ...]
    share_of: Literal["all", "groups"] | None = None

    def __post_init__(self) -> None:
        if self.share_of is not None:
            require_choice("share_of", self.share_of, ("all", "groups"))
        if self.share_of == "groups" and len(self.axes) != 2:
            raise InputError('share_of="groups" needs two columns: the groups, and what is counted in them')

    @property
    def name(self) -> str:
        """See `Statistic.name`."""
        return " by ".join(axis.column for axis in reversed(self.axes))

    def measure(self, estimator: RequestEstimator) -> HistogramMeasure:
        """See `Statistic.measure`."""
        return HistogramMeasure(self.axes)

    def labels(self, estimator: RequestEstimator) -> tuple[str, ...]:
        """See `Statistic.labels`."""
        first = [f"{self.axes[0].column} {label}" for label in self.axes[0].labels]
        if len(self.axes) == 1:
            return tuple(first)
        return tuple(f"{one}, {self.axes[1].column} {other}" for one in first for other in self.axes[1].labels)

    def is_shares(self, estimator: RequestEstimator) -> bool:
        """Whether its numbers are shares; personal weights give no counts."""
        return self.share_of is not None or estimator == "representative"

    def method(self, estimator: RequestEstimator) -> str:
        """See `Statistic.method`."""
        return FIELLER if self.is_shares(estimator) else EXACT

    def assumptions(self, estimator: RequestEstimator) -> tuple[str, ...]:
        """See `Statistic.assumptions`."""
        sentences = [clipped(axis.column, axis.facts) for axis in self.axes if isinstance(axis.facts, NumberRange)]
        missing = any(axis.has_missing for axis in self.axes) and self.is_shares(estimator)
        return (*sentences, NORMALISED) if missing else tuple(sentences)

    def intervals(
        self, estimator: RequestEstimator, measure: Measure, cells: NDArray[np.float64], noise: Noise
    ) -> Intervals:
        """See `Statistic.intervals`."""
        if not self.is_shares(estimator):
            return exact(cells, np.asarray(noise.deviation), noise.z)
        wholes = self._wholes()
        below, parts = cells @ wholes, wholes.sum(axis=0)
        spread = noise.squared_weights(below, noise.deviation * np.sqrt(parts))
        one = noise.deviation**2
        # A cell is one of its whole, so cell and whole have the covariance `one`; p(1 − p) is a record's own variance.
        variance = Quadratic(np.full(cells.shape, one), spread - 2.0 * one, parts * one - spread)
        return fieller(cells, below, variance, noise.z, (0.0, 1.0))

    def _wholes(self) -> NDArray[np.float64]:
        """For every cell (column of the matrix), the cells that it is a share of."""
        shape = tuple(len(axis.labels) for axis in self.axes)
        known = [np.arange(len(axis.labels)) < len(axis.known) for axis in self.axes]
        full = np.logical_and.outer(*known).ravel() if len(known) == 2 else known[0]
        last = known[-1] if len(known) == 1 else np.tile(known[1], shape[0])
        if self.share_of == "groups":
            group = np.repeat(np.arange(shape[0]), shape[1])
            same = group[:, None] == group[None, :]
            wholes = same & np.where(last[None, :], last[:, None], True)
        else:
            wholes = np.where(full[None, :], full[:, None], True)
        return np.asarray(wholes, dtype=np.float64)


@dataclass(frozen=True)
class Quantiles(Statistic):
    """Quantiles of a column, from counts of the records below public edges."""

    axis: Axis
    shares: tuple[float, ...] = (0.25, 0.5, 0.75)

    def __post_init__(self) -> None:
        if isinstance(self.axis.facts, Levels):
            raise InputError(f"column {self.axis.column!r} has levels, so it has no quantiles; ask for proportions")
        if not self.shares or not all(0.0 < share < 1.0 for share in self.shares):
            raise InputError(f"shares={self.shares!r} of quantiles must lie strictly between 0 and 1")

    @property
    def name(self) -> str:
        """See `Statistic.name`."""
        return f"quantiles of {self.axis.column}"

    def measure(self, estimator: RequestEstimator) -> RunningMeasure:
        """See `Statistic.measure`."""
        return RunningMeasure(self.axis)

    def labels(self, estimator: RequestEstimator) -> tuple[str, ...]:
        """See `Statistic.labels`."""
        return tuple(f"{100 * share:g} % quantile of {self.axis.column}" for share in self.shares)

    def method(self, estimator: RequestEstimator) -> str:
        """See `Statistic.method`."""
        return INVERSION

    def assumptions(self, estimator: RequestEstimator) -> tuple[str, ...]:
        """See `Statistic.assumptions`."""
        column, facts = self.axis.column, self.axis.facts
        assert isinstance(facts, NumberRange)
        return (clipped(column, facts), COMPLETE.format(column), BINNED.format(column))

    def intervals(
        self, estimator: RequestEstimator, measure: Measure, cells: NDArray[np.float64], noise: Noise
    ) -> Intervals:
        """See `Statistic.intervals`."""
        edges = np.asarray(self.axis.edges)
        root = adding_up(len(self.axis.known))
        below = cells[..., : len(root)] @ root.T
        found = [quantile(below, root, share, edges, noise) for share in self.shares]
        value, low, high = (np.stack(each, axis=-1) for each in zip(*found, strict=True))
        return Intervals(value, low, high, (high - low) / (2.0 * noise.z))
