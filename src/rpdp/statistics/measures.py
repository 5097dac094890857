"""What a record adds to the vector of a request: the measures, their public settings and the cells of a record.

| kind | a record's part | norm |
|---|---|---|
| `count` | 1 | 1 |
| `sum` | its value divided by the largest magnitude in the range | ≤ 1 |
| `moments` | products of powers of its values, in the cells of its group | ≤ 1 |
| `histogram` | 1 in the cell of its value, or of its two values | 1 |
| `running` | falling parts in the bin of its value and in all bins above (`score_counts`) | ≤ 1 |

A measure reads its own settings strictly: what it does not know, it refuses, from the settings alone.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rpdp.checks import require_count
from rpdp.errors import InputError
from rpdp.federation.cells import NO_CELL
from rpdp.planning.request import MeasureSpec
from rpdp.statistics.axis import Axis, column_facts, column_name, mapping
from rpdp.statistics.columns import Levels, NumberRange
from rpdp.statistics.score_counts import contribution

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.statistics.columns import Columns, Declared

MOST_DEGREE = 4
MOST_RUNNING_BINS = 512
_OF_INTEREST = (1.0, 3.0**0.25, 1.1)
_FOR_INTERVALS = 0.4
"""How much of a record's norm each power gets, against that of the count. The ratio 1 : 3^¼ of a count and a sum has
the least mean square error of their ratio if that may lie anywhere in the range. Powers that serve for intervals alone
get less: a second moment beside a mean adds 1 % to the mean's noise."""


class Measure(ABC):
    """A part of a request."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of cells."""

    @property
    def entries(self) -> int:
        """To how many cells one record adds, at most."""
        return 1

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """All else that is to know of it."""

    @classmethod
    @abstractmethod
    def read(cls, settings: dict[str, Any]) -> Measure:
        """The measure of these settings; takes out what it knows."""

    @abstractmethod
    def require(self, columns: Columns) -> None:
        """Refuse it if these columns do not fit."""

    @abstractmethod
    def cells(self, columns: Columns, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The cells of these records within the measure, and what they add there."""

    def serves(self, other: Measure) -> bool:
        """Whether a statistic that asks for the other measure can be computed from this one."""
        return self == other

    @property
    def spec(self) -> MeasureSpec:
        """The measure as a part of a request."""
        return MeasureSpec(self.kind, self.size, self.settings())


@dataclass(frozen=True)
class CountMeasure(Measure):
    """How many records there are."""

    kind: ClassVar[str] = "count"

    @property
    def size(self) -> int:
        """See `Measure.size`."""
        return 1

    def settings(self) -> dict[str, Any]:
        """See `Measure.settings`."""
        return {}

    @classmethod
    def read(cls, settings: dict[str, Any]) -> CountMeasure:
        """See `Measure.read`."""
        return cls()

    def require(self, columns: Columns) -> None:
        """See `Measure.require`."""

    def cells(self, columns: Columns, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """See `Measure.cells`."""
        return np.zeros((len(rows), 1), dtype=np.int64), np.ones((len(rows), 1))


@dataclass(frozen=True)
class SumMeasure(Measure):
    """The sum of a column, divided by the largest magnitude in its range; a missing value adds nothing."""

    kind: ClassVar[str] = "sum"
    column: str
    facts: NumberRange

    @property
    def size(self) -> int:
        """See `Measure.size`."""
        return 1

    def settings(self) -> dict[str, Any]:
        """See `Measure.settings`."""
        return {"column": self.column, **self.facts.plain()}

    @classmethod
    def read(cls, settings: dict[str, Any]) -> SumMeasure:
        """See `Measure.read`."""
        column, facts = column_name(settings), column_facts(settings)
        return cls(column, _number(column, facts))

    def require(self, columns: Columns) -> None:
        """See `Measure.require`."""
        columns.require(self.column, self.facts)

    def cells(self, columns: Columns, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """See `Measure.cells`."""
        values = self.facts.clipped(columns.values[self.column][rows]) / self.facts.bound
        absent = np.isnan(values)
        index = np.where(absent, NO_CELL, 0)
        return index[:, None], np.where(absent, 0.0, values)[:, None]


@dataclass(frozen=True)
class MomentsMeasure(Measure):
    """Sums of products of powers of one or two columns, by group if `by` is given.

    Values are scaled to [−1, 1]. A record adds cₖ·(xᵃyᵇ − mₖ) for every power up to the degree, where mₖ is ½ if a and
    b are even, else 0, and the public cₖ keep the norm at most 1. A record that lacks one of the values adds nothing.

    Attributes:
        columns: The names of one column or two.
        facts: Their ranges.
        interest: The highest power that is asked for.
        degree: The highest power that is summed; those above `interest` serve for intervals.
        by: The groups.
    """

    kind: ClassVar[str] = "moments"
    columns: tuple[str, ...]
    facts: tuple[NumberRange, ...]
    interest: int
    degree: int
    by: Axis | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.columns) <= 2 or len(self.columns) != len(self.facts):
            raise InputError(f"moments are of one column or two, not of {list(self.columns)}")
        if len(set(self.columns)) < len(self.columns):
            raise InputError(f"moments of two columns need two different ones, not {self.columns[0]!r} twice")
        require_count("interest", self.interest, most=len(_OF_INTEREST) - 1)
        require_count("degree", self.degree, least=self.interest, most=MOST_DEGREE)

    @cached_property
    def exponents(self) -> tuple[tuple[int, ...], ...]:
        """The powers, in the order of the cells: the count comes first."""
        every = itertools.product(range(self.degree + 1), repeat=len(self.columns))
        return tuple(sorted((each for each in every if sum(each) <= self.degree), key=lambda each: (sum(each), each)))

    @cached_property
    def centres(self) -> NDArray[np.float64]:
        """What is taken off each power."""
        return np.array([0.5 if sum(each) and all(a % 2 == 0 for a in each) else 0.0 for each in self.exponents])

    @cached_property
    def factors(self) -> NDArray[np.float64]:
        """By what each power is multiplied: Σ (cₖ · sup|xᵃyᵇ − mₖ|)² = 1."""
        wanted = (*_OF_INTEREST[: self.interest + 1], *[_FOR_INTERVALS] * (self.degree - self.interest))
        levels = np.array([wanted[sum(each)] for each in self.exponents])
        return np.asarray(levels / np.linalg.norm(levels * (1.0 - self.centres)), dtype=np.float64)

    @property
    def groups(self) -> int:
        """The number of groups."""
        return 1 if self.by is None else len(self.by.labels)

    @property
    def size(self) -> int:
        """See `Measure.size`."""
        return self.groups * len(self.exponents)

    @property
    def entries(self) -> int:
        """See `Measure.entries`."""
        return len(self.exponents)

    def settings(self) -> dict[str, Any]:
        """See `Measure.settings`."""
        columns = [{"column": name, **facts.plain()} for name, facts in zip(self.columns, self.facts, strict=True)]
        return {"columns": columns, "interest": self.interest, "degree": self.degree} | (
            {} if self.by is None else {"by": self.by.plain()}
        )

    @classmethod
    def read(cls, settings: dict[str, Any]) -> MomentsMeasure:
        """See `Measure.read`."""
        given = [mapping(each, "a column") for each in settings.pop("columns")]
        names = tuple(column_name(each) for each in given)
        facts = tuple(_number(name, column_facts(each)) for name, each in zip(names, given, strict=True))
        if any(given):
            raise InputError(f"a column of moments has a name and a range, not {given}")
        by = Axis.of(settings.pop("by")) if "by" in settings else None
        return cls(names, facts, settings.pop("interest"), settings.pop("degree"), by)

    def require(self, columns: Columns) -> None:
        """See `Measure.require`."""
        for name, facts in zip(self.columns, self.facts, strict=True):
            columns.require(name, facts)
        if self.by is not None:
            columns.require(self.by.column, self.by.facts)

    def cells(self, columns: Columns, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """See `Measure.cells`."""
        scaled = [
            facts.scaled(columns.values[name][rows]) for name, facts in zip(self.columns, self.facts, strict=True)
        ]
        value = self.of_values(*scaled)
        group = np.zeros(len(rows), dtype=np.int64)
        if self.by is not None:
            group = self.by.places(columns.values[self.by.column][rows])
        absent = np.isnan(value).any(axis=1) | (group == NO_CELL)
        index = group[:, None] * len(self.exponents) + np.arange(len(self.exponents))
        return np.where(absent[:, None], NO_CELL, index), np.where(absent[:, None], 0.0, value)

    def serves(self, other: Measure) -> bool:
        """Whether it holds all that another one does: more powers of the same columns in the same groups."""
        if not isinstance(other, MomentsMeasure):
            return self == other
        same = (self.columns, self.facts, self.by) == (other.columns, other.facts, other.by)
        return same and self.interest >= other.interest and self.degree >= other.degree

    def of_values(self, *scaled: NDArray[np.float64]) -> NDArray[np.float64]:
        """What records with these scaled values add to the cells of their group."""
        powers = np.ones((len(scaled[0]), len(self.exponents)))
        for place, each in enumerate(self.exponents):
            for values, power in zip(scaled, each, strict=True):
                powers[:, place] *= values**power if power else np.where(np.isnan(values), np.nan, 1.0)
        return (powers - self.centres) * self.factors


@dataclass(frozen=True)
class HistogramMeasure(Measure):
    """How many records fall into each cell of one axis, or of two."""

    kind: ClassVar[str] = "histogram"
    axes: tuple[Axis, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.axes) <= 2:
            raise InputError(f"a histogram has one axis or two, not {len(self.axes)}")

    @property
    def size(self) -> int:
        """See `Measure.size`."""
        return int(np.prod([len(axis.labels) for axis in self.axes]))

    def settings(self) -> dict[str, Any]:
        """See `Measure.settings`."""
        return {"axes": [axis.plain() for axis in self.axes]}

    @classmethod
    def read(cls, settings: dict[str, Any]) -> HistogramMeasure:
        """See `Measure.read`."""
        return cls(tuple(Axis.of(each) for each in settings.pop("axes")))

    def require(self, columns: Columns) -> None:
        """See `Measure.require`."""
        for axis in self.axes:
            columns.require(axis.column, axis.facts)

    def cells(self, columns: Columns, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """See `Measure.cells`."""
        index = np.zeros(len(rows), dtype=np.int64)
        absent = np.zeros(len(rows), dtype=np.bool_)
        for axis in self.axes:
            places = axis.places(columns.values[axis.column][rows])
            absent |= places == NO_CELL
            index = index * len(axis.labels) + places
        return np.where(absent, NO_CELL, index)[:, None], np.where(absent, 0.0, 1.0)[:, None]


@dataclass(frozen=True)
class RunningMeasure(Measure):
    """How many records lie below each edge of an axis; a missing value has a cell of its own.

    Noise hardly grows with the number of bins (`score_counts`), where an ordinary histogram's adds up.
    """

    kind: ClassVar[str] = "running"
    axis: Axis

    def __post_init__(self) -> None:
        if isinstance(self.axis.facts, Levels):
            raise InputError(f"column {self.axis.column!r} has levels, which have no order")
        require_count(f"bins of column {self.axis.column!r}", self.bins, most=MOST_RUNNING_BINS)

    @property
    def bins(self) -> int:
        """The number of bins."""
        return len(self.axis.known)

    @property
    def size(self) -> int:
        """See `Measure.size`."""
        return self.bins + 1

    @property
    def entries(self) -> int:
        """See `Measure.entries`."""
        return self.bins

    def settings(self) -> dict[str, Any]:
        """See `Measure.settings`."""
        return {"axis": self.axis.plain()}

    @classmethod
    def read(cls, settings: dict[str, Any]) -> RunningMeasure:
        """See `Measure.read`."""
        return cls(Axis.of(settings.pop("axis")))

    def require(self, columns: Columns) -> None:
        """See `Measure.require`."""
        columns.require(self.axis.column, self.axis.facts)

    def cells(self, columns: Columns, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """See `Measure.cells`."""
        places = self.axis.places(columns.values[self.axis.column][rows])[:, None]
        index = places + np.arange(self.bins)
        missing = places == self.bins
        value = np.where(missing, 1.0, contribution(self.bins))
        used = index < self.bins + missing
        return np.where(used, index, NO_CELL), np.where(used, value, 0.0)

    def of_shares(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """What records with these shares of each bin, and none missing, add on average."""
        return np.append(np.convolve(shares, contribution(self.bins))[: self.bins], 0.0)


MEASURES: dict[str, type[Measure]] = {
    each.kind: each for each in (CountMeasure, SumMeasure, MomentsMeasure, HistogramMeasure, RunningMeasure)
}


def read_measure(spec: MeasureSpec) -> Measure:
    """The measure that a request describes; refused unless this is exactly how it describes itself."""
    if spec.kind not in MEASURES:
        raise InputError(f"kind={spec.kind!r} is not a measure known here: {', '.join(MEASURES)}")
    settings = dict(spec.settings)
    try:
        made = MEASURES[spec.kind].read(settings)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"settings of measure {spec.kind!r}: {type(error).__name__}: {error}") from None
    if settings or made.spec != spec:
        raise InputError(f"measure {spec.kind!r} has settings or a size that are not its own: {spec.plain()}")
    return made


def _number(column: str, facts: Declared) -> NumberRange:
    if not isinstance(facts, NumberRange):
        raise InputError(f"column {column!r} has levels, so it has no mean; ask for proportions")
    return facts
