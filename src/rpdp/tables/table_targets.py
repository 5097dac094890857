"""Targets: what a model learns from a table, and what the targets of one row are.

| kind             | declared                                   | the model's outputs                    |
|------------------|--------------------------------------------|----------------------------------------|
| `classification` | `column`, `classes`                        | one logit for two classes, else one each |
| `regression`     | `column`, `range`                          | one number, −1 at low and 1 at high    |
| `multi_label`    | `columns`, and texts that mean yes and no  | one logit for each column              |
| `survival`       | `time`, `event`, `edges` of the intervals  | one logit of the hazard of each interval |

Survival times are learnt as discrete-time hazards: the chance to die (or whatever `event` says) in each interval, given
survival until it begins. A record counts in the intervals that it survived as a whole, and in the one in which the
event happened; after the time of last contact it says nothing.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rpdp.checks import require_number
from rpdp.errors import InputError
from rpdp.setting_fields import list_of, nearest, read_section, setting, text
from rpdp.tables.table_columns import NO, YES, NumberColumn, YesNoColumn, level_or_levels, levels, number_range

if TYPE_CHECKING:
    from collections.abc import Mapping


_CLASSES = 'the public classes, such as ["no", "yes"] or { well = [3, 4], ill = [1, 2] }'


class TableTarget(ABC):
    """What a model learns."""

    kind: ClassVar[str]
    is_whole: ClassVar[bool]
    """Whether targets are whole numbers."""

    @property
    @abstractmethod
    def sources(self) -> tuple[str, ...]:
        """The columns that it is read from."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """How many outputs a model has."""

    @abstractmethod
    def encode(self, cells: tuple[str, ...]) -> tuple[float, ...] | None:
        """The target of a row from its cells in `sources`; None if the row has none."""

    @property
    @abstractmethod
    def wanted(self) -> str:
        """What the cells must be, for messages."""


def _classes(name: str, value: object) -> dict[str, tuple[str, ...]]:
    if isinstance(value, list):
        classes: dict[str, tuple[str, ...]] = {each: (each,) for each in levels(name, value)}
    elif isinstance(value, dict):
        classes = {key: level_or_levels(f"{name}.{key}", each) for key, each in value.items()}
    else:
        raise InputError(f'{name}={value!r} must list the classes, such as ["no", "yes"]')
    every = [each for values in classes.values() for each in values]
    if len(classes) < 2 or len(set(every)) != len(every):
        raise InputError(f"{name}={value!r} must have two or more classes, and no value in two of them")
    return classes


def _edges(name: str, value: object) -> tuple[float, ...]:
    edges: tuple[float, ...] = list_of(require_number)(name, value)
    if edges[0] <= 0 or list(edges) != sorted(edges):
        raise InputError(f"{name}={value!r} must rise from above 0: the times at which intervals end")
    return edges


def _answers(name: str, value: object) -> tuple[str, ...]:
    return tuple(each.casefold() for each in level_or_levels(name, value))


@dataclass(frozen=True)
class ColumnTarget(TableTarget):
    """What is read from one column."""

    column: str = setting(text, meaning="the column to learn")

    @property
    def sources(self) -> tuple[str, ...]:
        """See `TableTarget.sources`."""
        return (self.column,)


@dataclass(frozen=True)
class ClassTarget(ColumnTarget):
    """One of several classes; the second of two is the one that a single logit speaks for."""

    kind: ClassVar[str] = "classification"
    is_whole: ClassVar[bool] = True
    classes: Mapping[str, tuple[str, ...]] = setting(_classes, meaning=_CLASSES)

    @property
    def outputs(self) -> int:
        """See `TableTarget.outputs`."""
        return 1 if len(self.classes) == 2 else len(self.classes)

    def encode(self, cells: tuple[str, ...]) -> tuple[float, ...] | None:
        """See `TableTarget.encode`."""
        found = [place for place, values in enumerate(self.classes.values()) if cells[0] in values]
        return (float(found[0]),) if found else None

    @property
    def wanted(self) -> str:
        """See `TableTarget.wanted`."""
        return f"one of {', '.join(each for values in self.classes.values() for each in values)}"


@dataclass(frozen=True)
class NumberTarget(ColumnTarget):
    """A number with a public range; values outside are clipped."""

    kind: ClassVar[str] = "regression"
    is_whole: ClassVar[bool] = False
    range: tuple[float, float] = setting(number_range, meaning="the public range of the target, such as [0, 60]")

    @property
    def outputs(self) -> int:
        """See `TableTarget.outputs`."""
        return 1

    def encode(self, cells: tuple[str, ...]) -> tuple[float, ...] | None:
        """See `TableTarget.encode`."""
        column = NumberColumn(range=self.range, missing=None)
        return column.encode(cells[0])[0] if math.isfinite(column.number(cells[0])) else None

    @property
    def wanted(self) -> str:
        """See `TableTarget.wanted`."""
        return "a number"


@dataclass(frozen=True)
class LabelsTarget(TableTarget):
    """Several questions with answers yes and no."""

    kind: ClassVar[str] = "multi_label"
    is_whole: ClassVar[bool] = False
    columns: tuple[str, ...] = setting(list_of(text), meaning="the columns to learn")
    yes: tuple[str, ...] = setting(_answers, YES)
    no: tuple[str, ...] = setting(_answers, NO)

    @property
    def sources(self) -> tuple[str, ...]:
        """See `TableTarget.sources`."""
        return self.columns

    @property
    def outputs(self) -> int:
        """See `TableTarget.outputs`."""
        return len(self.columns)

    def encode(self, cells: tuple[str, ...]) -> tuple[float, ...] | None:
        """See `TableTarget.encode`."""
        answers = [cell.casefold() for cell in cells]
        if any(answer not in self.yes and answer not in self.no for answer in answers):
            return None
        return tuple(float(answer in self.yes) for answer in answers)

    @property
    def wanted(self) -> str:
        """See `TableTarget.wanted`."""
        return f"{', '.join(self.yes)} or {', '.join(self.no)}"


@dataclass(frozen=True)
class SurvivalTarget(TableTarget):
    """The time until an event, or until last contact."""

    kind: ClassVar[str] = "survival"
    is_whole: ClassVar[bool] = True
    time: str = setting(text, meaning="the column with the time of the event or of last contact")
    event: str = setting(text, meaning="the column that says whether the event happened")
    edges: tuple[float, ...] = setting(_edges, meaning="the times at which intervals end, such as [1, 7, 30, 180]")
    yes: tuple[str, ...] = setting(_answers, YES)
    no: tuple[str, ...] = setting(_answers, NO)

    @property
    def sources(self) -> tuple[str, ...]:
        """See `TableTarget.sources`."""
        return (self.time, self.event)

    @property
    def outputs(self) -> int:
        """See `TableTarget.outputs`."""
        return len(self.edges)

    def encode(self, cells: tuple[str, ...]) -> tuple[float, ...] | None:
        """The number of intervals survived as a whole, and whether the event happened in the next one."""
        column = YesNoColumn(yes=self.yes, no=self.no, missing=False)
        time = NumberColumn(range=(0.0, 1.0), missing=None).number(cells[0])
        answer = column.encode(cells[1])[0][0]
        if not 0.0 <= time < math.inf or answer not in (0.0, 1.0):
            return None
        if answer and time <= self.edges[-1]:
            return float(sum(edge < time for edge in self.edges)), 1.0
        return float(sum(edge <= time for edge in self.edges)), 0.0

    @property
    def wanted(self) -> str:
        """See `TableTarget.wanted`."""
        return f"a time of at least 0, and {', '.join(self.yes)} or {', '.join(self.no)}"


TARGETS: dict[str, type[TableTarget]] = {
    target.kind: target for target in (ClassTarget, NumberTarget, LabelsTarget, SurvivalTarget)
}


def read_target(name: str, value: Any) -> TableTarget:
    """Check `[target]`."""
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        raise InputError(f"{name}={value!r} must say its kind: {', '.join(TARGETS)}")
    kind = value["kind"]
    if kind not in TARGETS:
        raise InputError(f"{name}.kind={kind!r} is not a kind of target{nearest(kind, list(TARGETS))}")
    made: TableTarget = read_section(TARGETS[kind], name, {key: each for key, each in value.items() if key != "kind"})
    return made
