"""Kinds of columns: each turns the text of one cell into features, by public declarations only.

| kind       | declared                            | features                                                        |
|------------|-------------------------------------|-----------------------------------------------------------------|
| `number`   | `range = [low, high]`               | one, −1 at low and 1 at high; values outside are clipped        |
| `date`     | `range = ["1991-01-01", …]`         | the same, in days                                               |
| `category` | `levels = ["a", "b"]`               | one for each level, and one for every other value               |
| `yes_no`   | `yes`, `no`: the texts that mean it | one, 1 for yes and 0 for no                                     |
| `ignore`   | nothing                             | none                                                            |

The `base` of a category is a level without a feature of its own: all features of the column are 0. Declare the usual
level: then less of what clipping leaves of a gradient is spent on what everybody has in common, and noise matters less.

`missing` declares what a missing value becomes: a number or date (the public fill), or `true` for the other kinds. Such
a column has one more feature, 1 where the value is missing. Without `missing`, a missing number or date takes the
middle of its range, a missing category counts as another value, and a missing yes or no is 0.5.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import date, datetime
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar

from rpdp.checks import require_number
from rpdp.errors import InputError
from rpdp.setting_fields import either, flag, list_of, nearest, read_section, setting, text
from rpdp.tables.cell_text import cell_text

if TYPE_CHECKING:
    from collections.abc import Mapping

YES = ("yes", "y", "true", "t", "1")
NO = ("no", "n", "false", "f", "0")
OTHER, MISSING_FLAG = "other", "missing"
SPARE_FEATURES = (f" = {OTHER}", f" {MISSING_FLAG}")
"""Endings of features that are 0 as long as every value is as declared."""

_EXAMPLE = '{ kind = "number", range = [0, 120] }'


class Reading(IntEnum):
    """How a cell was read; only the holder of the table sees how often each happened."""

    AS_DECLARED = 0
    CLIPPED = 1
    UNKNOWN = 2
    MISSING = 3
    UNREADABLE = 4


class TableColumn(ABC):
    """A column of features."""

    kind: ClassVar[str]

    @abstractmethod
    def features(self, name: str) -> list[str]:
        """The names of its features."""

    @abstractmethod
    def meanings(self) -> list[str]:
        """What the values of its features mean, from the declaration alone: the way back from numbers to cells."""

    @abstractmethod
    def encode(self, cell: str) -> tuple[tuple[float, ...], Reading]:
        """The features of one cell; an empty text is a missing value."""

    @abstractmethod
    def value(self, cell: str) -> float:
        """The value of one cell, for statistics: a number in its range or the place of its level; NaN if missing."""


def level(name: str, value: object) -> str:
    """Check a value of a column: a text, a whole number or a truth value. All are compared as texts."""
    if not isinstance(value, str | int | float) or not cell_text(value):
        raise InputError(f"{name}={value!r} must be a text or a number that is not empty")
    return cell_text(value)


levels = list_of(level)


def _one_level(name: str, value: object) -> tuple[str, ...]:
    return (level(name, value),)


level_or_levels = either((list, levels), ((str, int, float), _one_level), otherwise="a value or a list of values")


def number_range(name: str, value: object) -> tuple[float, float]:
    """Check a public range [low, high]."""
    if not isinstance(value, list) or len(value) != 2:
        raise InputError(f"{name}={value!r} must be two numbers, such as [0, 120]")
    low, high = (require_number(name, each) for each in value)
    if not low < high:
        raise InputError(f"{name}={value!r} must rise: the first number is the smallest value, the second the largest")
    return low, high


def _day(name: str, value: object) -> float:
    given = value.isoformat() if isinstance(value, date) else value
    try:
        return float(date.fromisoformat(str(given)[:10]).toordinal())
    except ValueError:
        raise InputError(f'{name}={value!r} must be a date such as "1996-04-30"') from None


def _day_range(name: str, value: object) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2:
        raise InputError(f'{name}={value!r} must be two dates, such as ["1991-01-01", "1996-12-31"]')
    low, high = (_day(name, each) for each in value)
    if not low < high:
        raise InputError(f"{name}={value!r} must rise: the first date is the earliest, the second the latest")
    return low, high


def _answers(name: str, value: object) -> tuple[str, ...]:
    given = value if isinstance(value, list) else [value]
    return tuple(each.casefold() for each in levels(name, given))


@dataclass(frozen=True)
class _Ranged(TableColumn):
    """A value on a declared range."""

    range: tuple[float, float]
    missing: float | None

    def __post_init__(self) -> None:
        if self.missing is not None and not self.range[0] <= self.missing <= self.range[1]:
            raise InputError("missing must lie in the range: it is the public value that stands for a missing one")

    def features(self, name: str) -> list[str]:
        """See `TableColumn.features`."""
        return [name] if self.missing is None else [name, f"{name} {MISSING_FLAG}"]

    def meanings(self) -> list[str]:
        """See `TableColumn.meanings`."""
        low, high = map(self.shown, self.range)
        found = [f"−1 at {low}, 1 at {high}"]
        return found if self.missing is None else [*found, f"1 if missing, which counts as {self.shown(self.missing)}"]

    def encode(self, cell: str) -> tuple[tuple[float, ...], Reading]:
        """See `TableColumn.encode`."""
        value = self.number(cell) if cell else math.nan
        absent = not math.isfinite(value)
        low, high = self.range
        if absent:
            value = (low + high) / 2 if self.missing is None else self.missing
        clipped = min(max(value, low), high)
        scaled = 2.0 * (clipped - low) / (high - low) - 1.0
        features = (scaled,) if self.missing is None else (scaled, float(absent))
        if absent:
            return features, Reading.UNREADABLE if cell else Reading.MISSING
        return features, Reading.AS_DECLARED if clipped == value else Reading.CLIPPED

    def value(self, cell: str) -> float:
        """See `TableColumn.value`."""
        number = self.number(cell) if cell else math.nan
        low, high = self.range
        return min(max(number, low), high) if math.isfinite(number) else math.nan

    @abstractmethod
    def number(self, cell: str) -> float:
        """The number of a cell that is not empty; NaN if it has none."""

    def shown(self, number: float) -> str:
        """The text of a number of the range."""
        return f"{number:g}"


@dataclass(frozen=True)
class NumberColumn(_Ranged):
    """A number with a public range."""

    kind: ClassVar[str] = "number"
    range: tuple[float, float] = setting(number_range, meaning="the public range of the column, such as [0, 120]")
    missing: float | None = setting(require_number, None)

    def number(self, cell: str) -> float:
        """See `_Ranged.number`."""
        try:
            return float(cell) if cell.isascii() and "_" not in cell else math.nan
        except ValueError:
            return math.nan


@dataclass(frozen=True)
class DateColumn(_Ranged):
    """A date with a public range; `format` as in Python's strptime, if it is not ISO (1996-04-30)."""

    kind: ClassVar[str] = "date"
    range: tuple[float, float] = setting(_day_range, meaning='the public range, such as ["1991-01-01", "1996-12-31"]')
    missing: float | None = setting(_day, None)
    format: str | None = setting(text, None)

    def number(self, cell: str) -> float:
        """See `_Ranged.number`."""
        try:
            found = datetime.fromisoformat(cell) if self.format is None else datetime.strptime(cell, self.format)
        except ValueError:
            return math.nan
        return float(found.date().toordinal())

    def shown(self, number: float) -> str:
        """See `_Ranged.shown`."""
        return date.fromordinal(int(number)).isoformat()


@dataclass(frozen=True)
class CategoryColumn(TableColumn):
    """One of several public levels, or another value."""

    kind: ClassVar[str] = "category"
    levels: tuple[str, ...] = setting(levels, meaning='the public levels, such as ["a", "b"]')
    base: str | None = setting(level, None)
    missing: bool = setting(flag, False)

    def __post_init__(self) -> None:
        if self.base is not None and self.base not in self.levels:
            raise InputError(f"base={self.base!r} must be one of the levels: {', '.join(self.levels)}")

    def features(self, name: str) -> list[str]:
        """See `TableColumn.features`."""
        named = [f"{name} = {each}" for each in (*self.levels, OTHER) if each != self.base]
        return [*named, f"{name} {MISSING_FLAG}"] if self.missing else named

    def meanings(self) -> list[str]:
        """See `TableColumn.meanings`."""
        base = "" if self.base is None else f"; all 0: {self.base}"
        found = [*(f"1 if it is {each}{base}" for each in self.levels if each != self.base), "1 if it is another value"]
        return [*found, "1 if missing"] if self.missing else found

    def encode(self, cell: str) -> tuple[tuple[float, ...], Reading]:
        """See `TableColumn.encode`."""
        if cell == self.base:
            return (0.0,) * len(self.features("")), Reading.AS_DECLARED
        shown = [each for each in self.levels if each != self.base]
        features = [0.0] * len(self.features(""))
        if cell in shown:
            place, reading = shown.index(cell), Reading.AS_DECLARED
        elif cell:
            place, reading = len(shown), Reading.UNKNOWN
        else:
            place, reading = len(shown) + self.missing, Reading.MISSING
        features[place] = 1.0
        return tuple(features), reading

    def value(self, cell: str) -> float:
        """See `TableColumn.value`; after the levels comes the place of every other value."""
        if not cell:
            return math.nan
        return float(self.levels.index(cell) if cell in self.levels else len(self.levels))


@dataclass(frozen=True)
class YesNoColumn(TableColumn):
    """A question with two answers, whose texts may be written in any case."""

    kind: ClassVar[str] = "yes_no"
    yes: tuple[str, ...] = setting(_answers, YES)
    no: tuple[str, ...] = setting(_answers, NO)
    missing: bool = setting(flag, False)

    def __post_init__(self) -> None:
        both = set(self.yes) & set(self.no)
        if both:
            raise InputError(f"yes and no both contain {sorted(both)[0]!r}; each text has one meaning")

    def features(self, name: str) -> list[str]:
        """See `TableColumn.features`."""
        return [name, f"{name} {MISSING_FLAG}"] if self.missing else [name]

    def meanings(self) -> list[str]:
        """See `TableColumn.meanings`."""
        yes = "yes" if self.yes == YES else " or ".join(self.yes)
        no = "no" if self.no == NO else " or ".join(self.no)
        found = [f"1 if {yes}, 0 if {no}, ½ otherwise"]
        return [*found, "1 if missing"] if self.missing else found

    def encode(self, cell: str) -> tuple[tuple[float, ...], Reading]:
        """See `TableColumn.encode`."""
        answer = cell.casefold()
        if answer in self.yes or answer in self.no:
            value, reading = float(answer in self.yes), Reading.AS_DECLARED
        else:
            value, reading = 0.5, Reading.UNKNOWN if cell else Reading.MISSING
        return ((value, float(reading is Reading.MISSING)) if self.missing else (value,)), reading

    def value(self, cell: str) -> float:
        """See `TableColumn.value`: 0 is no, 1 is yes, and any other text is missing."""
        answer = cell.casefold()
        return float(answer in self.yes) if answer in self.yes or answer in self.no else math.nan


@dataclass(frozen=True)
class IgnoredColumn(TableColumn):
    """A column that is not used."""

    kind: ClassVar[str] = "ignore"

    def features(self, name: str) -> list[str]:
        """See `TableColumn.features`."""
        return []

    def meanings(self) -> list[str]:
        """See `TableColumn.meanings`."""
        return []

    def encode(self, cell: str) -> tuple[tuple[float, ...], Reading]:
        """See `TableColumn.encode`."""
        return (), Reading.AS_DECLARED

    def value(self, cell: str) -> float:
        """See `TableColumn.value`."""
        return math.nan


KINDS: dict[str, type[TableColumn]] = {
    column.kind: column for column in (NumberColumn, CategoryColumn, YesNoColumn, DateColumn, IgnoredColumn)
}


def read_columns(name: str, values: object) -> dict[str, TableColumn]:
    """Check `[columns]`, one line for each column."""
    if not isinstance(values, dict) or not values:
        raise InputError(f"{name} must have one line for each column, such as AGE = {_EXAMPLE}")
    return {column: _read_column(f"{name}.{column}", each) for column, each in values.items()}


def _read_column(name: str, value: Any) -> TableColumn:
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        raise InputError(f"{name}={value!r} must say its kind, such as {_EXAMPLE}")
    kind = value["kind"]
    if kind not in KINDS:
        raise InputError(f"{name}.kind={kind!r} is not a kind of column{nearest(kind, list(KINDS))}")
    settings: Mapping[str, Any] = {key: each for key, each in value.items() if key != "kind"}
    try:
        return read_section(KINDS[kind], name, settings)
    except InputError as error:
        raise InputError(str(error) if str(error).startswith(name) else f"{name}.{error}") from None
