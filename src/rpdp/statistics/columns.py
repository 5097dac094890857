"""The columns that statistics speak of: what is public of each, and a silo's own values.

A number has a public range, outside of which values count as its nearest end. A category or a question has public
levels. A missing number is NaN, and so is a missing level.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from rpdp.checks import require_number
from rpdp.display import counts_repr
from rpdp.errors import InputError
from rpdp.setting_fields import nearest
from rpdp.tables.table_columns import CategoryColumn, DateColumn, NumberColumn, YesNoColumn
from rpdp.tables.table_targets import ClassTarget, NumberTarget

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from rpdp.tables import EncodedTable, TableSchema
    from rpdp.tables.table_columns import TableColumn

OTHER, MISSING = "other", "missing"

_LEAST_WIDTH = 1e-12
"""The least width of a range against its numbers: below, rounding would move values between its ends."""


@dataclass(frozen=True)
class NumberRange:
    """A column of numbers, whose range is public."""

    low: float
    high: float

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            object.__setattr__(self, name, require_number(name, getattr(self, name)))
        if not self.low < self.high:
            raise InputError(f"range [{self.low:g}, {self.high:g}] must rise: from the smallest value to the largest")
        if not _LEAST_WIDTH * self.bound < self.half < np.inf or not np.isfinite(self.middle):
            raise InputError(f"range [{self.low!r}, {self.high!r}] is too narrow or too wide to compute with")

    @property
    def middle(self) -> float:
        """The middle of the range."""
        return (self.low + self.high) / 2

    @property
    def half(self) -> float:
        """Half of its width."""
        return (self.high - self.low) / 2

    @property
    def bound(self) -> float:
        """The largest magnitude of a value."""
        return max(abs(self.low), abs(self.high))

    def clipped(self, values: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """The values as they count; NaN stays."""
        return np.clip(values.astype(np.float64), self.low, self.high)

    def scaled(self, values: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """The values from −1 at the low end to 1 at the high end; NaN stays."""
        return np.clip((self.clipped(values) - self.middle) / self.half, -1.0, 1.0)

    def plain(self) -> dict[str, Any]:
        """As plain values for a request."""
        return {"range": [self.low, self.high]}


@dataclass(frozen=True)
class Levels:
    """A column with public levels; a value is the place of its level.

    Attributes:
        levels: The levels.
        has_other: Whether other values can occur; they share the place after the last level.
        has_missing: Whether values can be missing.
    """

    levels: tuple[str, ...]
    has_other: bool = True
    has_missing: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(self.levels))
        if not self.levels or not all(isinstance(each, str) for each in self.levels):
            raise InputError(f"levels={self.levels!r} must be a list of texts")
        if len(set(self.levels)) < len(self.levels):
            raise InputError(f"levels={self.levels!r} must all be different")

    def plain(self) -> dict[str, Any]:
        """As plain values for a request."""
        return {"levels": list(self.levels), "has_other": self.has_other, "has_missing": self.has_missing}


Declared: TypeAlias = NumberRange | Levels


def facts_of(column: TableColumn) -> Declared | None:
    """What a schema declares of a column; None for a column that it ignores."""
    if isinstance(column, NumberColumn | DateColumn):
        return NumberRange(*column.range)
    if isinstance(column, CategoryColumn):
        return Levels(column.levels)
    return Levels(("no", "yes"), has_other=False) if isinstance(column, YesNoColumn) else None


def declared_columns(schema: TableSchema) -> dict[str, Declared]:
    """What a schema declares of its columns, and of the target if that is a class or a number."""
    found = {name: facts_of(column) for name, column in schema.columns.items()}
    declared = {name: facts for name, facts in found.items() if facts is not None}
    if isinstance(schema.target, ClassTarget):
        classes = tuple(schema.target.classes)
        declared[schema.target.column] = Levels(classes, has_other=False, has_missing=False)
    elif isinstance(schema.target, NumberTarget):
        declared[schema.target.column] = NumberRange(*schema.target.range)
    return declared


@dataclass(frozen=True, eq=False)
class Columns:
    """A silo's own columns. Sensitive.

    | guarantee | how |
    |---|---|
    | a record's values depend on that record alone | the schema or a function of one record made them |
    | what is declared is public | it comes from the schema or from the caller, never from values |
    """

    declared: Mapping[str, Declared]
    values: Mapping[str, NDArray[np.floating[Any]]]

    __repr__ = counts_repr

    def __post_init__(self) -> None:
        if not self.declared or set(self.declared) != set(self.values):
            raise InputError("columns need at least one name, and the same names for what is declared and for values")
        lengths = {name: len(values) for name, values in self.values.items()}
        if len(set(lengths.values())) != 1:
            raise InputError(f"columns of different lengths: {', '.join(f'{n} {k:,}' for n, k in lengths.items())}")

    def __len__(self) -> int:
        return len(next(iter(self.values.values())))

    @classmethod
    def of_table(cls, table: EncodedTable, schema: TableSchema) -> Columns:
        """The columns of a table by its schema."""
        declared = declared_columns(schema)
        values: dict[str, NDArray[Any]] = dict(table.values)
        for name, facts in declared.items():
            if name not in values:
                targets = np.asarray(table.targets, dtype=np.float64)
                values[name] = targets if isinstance(facts, Levels) else targets * facts.half + facts.middle
        return cls(declared, values)

    @classmethod
    def of_arrays(
        cls,
        arrays: Mapping[str, ArrayLike],
        *,
        ranges: Mapping[str, tuple[float, float]] | None = None,
        levels: Mapping[str, Sequence[str]] | None = None,
    ) -> Columns:
        """Columns from arrays: numbers with a public range, and texts with public levels.

        >>> columns = Columns.of_arrays({"age": [61, 74], "sex": ["F", "M"]},
        ...                             ranges={"age": (18, 100)}, levels={"sex": ["F", "M"]})
        >>> len(columns), columns.declared["age"]
        (2, NumberRange(low=18.0, high=100.0))
        """
        declared: dict[str, Declared] = {name: NumberRange(*each) for name, each in (ranges or {}).items()}
        declared |= {name: Levels(tuple(each)) for name, each in (levels or {}).items()}
        for name in arrays:
            if name not in declared:
                raise InputError(f"column {name!r} needs a public range (ranges=) or public levels (levels=)")
        return cls(declared, {name: _values(name, arrays[name], facts) for name, facts in declared.items()})

    def with_function(
        self,
        name: str,
        function: Callable[[Any], float],
        records: Sequence[Any],
        bounds: tuple[float, float],
    ) -> Columns:
        """These columns and one more: a number that a function makes of each record by itself.

        Args:
            name: The name of the new column.
            function: Is called once for each record, and sees no other. Where it raises, the value is missing.
            records: The records, in the order of the columns.
            bounds: The public range; results outside count as its nearest end.
        """
        if name in self.declared or len(records) != len(self):
            raise InputError(f"column {name!r} must be new, and have {len(self):,} records, not {len(records):,}")
        made = np.array([_result(function, record) for record in records], dtype=np.float64)
        return Columns({**self.declared, name: NumberRange(*bounds)}, {**self.values, name: made})

    def only(self, names: Sequence[str]) -> Columns:
        """Some of these columns."""
        for name in names:
            if name not in self.declared:
                raise InputError(f"there is no column {name!r}{nearest(name, list(self.declared))}")
        return Columns({name: self.declared[name] for name in names}, {name: self.values[name] for name in names})

    def require(self, name: str, facts: Declared) -> None:
        """Refuse a column that these do not have, or of which something else is declared."""
        if name not in self.declared:
            raise InputError(f"there is no column {name!r} to measure{nearest(name, list(self.declared))}")
        if self.declared[name] != facts:
            raise InputError(f"column {name!r} is declared here as {self.declared[name]}, and not as {facts}")


def _values(name: str, given: ArrayLike, facts: Declared) -> NDArray[np.float64]:
    if isinstance(facts, Levels):
        places = {level: float(place) for place, level in enumerate(facts.levels)}
        texts = ["" if each is None else str(each) for each in np.asarray(given).tolist()]
        return np.array([places.get(each, float(len(places))) if each else np.nan for each in texts])
    values = np.asarray(given, dtype=np.float64)
    if values.ndim != 1:
        raise InputError(f"column {name!r} of shape {values.shape} must have one value for each record")
    return np.where(np.isfinite(values), values, np.nan)


def _result(function: Callable[[Any], float], record: Any) -> float:
    try:
        value = float(function(record))
    except Exception:  # whatever it raises says something of the record
        return np.nan
    return value if np.isfinite(value) else np.nan
