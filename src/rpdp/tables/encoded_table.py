"""A table after its schema was applied: features, targets and ids of the kept rows, and how cells were read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rpdp.display import counts_repr
from rpdp.tables.table_columns import Reading

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

_MANY = 0.02
"""From this share of a column's values on, clipping is worth a warning."""


@dataclass(frozen=True)
class TableSurvey:
    """How the cells of a table were read. Sensitive: it counts private values, so it stays with their holder.

    Attributes:
        rows: The number of rows.
        kept: The number of rows that the declared filter keeps.
        readings: For each column of features, how often each `Reading` happened in the rows that are kept.
        unused: Columns of the table that the schema does not declare.
    """

    rows: int
    kept: int
    readings: Mapping[str, NDArray[np.int64]]
    unused: tuple[str, ...]

    __repr__ = counts_repr

    def remarks(self) -> list[tuple[bool, str, str]]:
        """Sentences for the holder of the table: whether it needs attention, what was found, what to do about it."""
        found = []
        if self.kept < self.rows:
            found.append((False, f"{self.kept:,} of {self.rows:,} rows are kept by the declared filter", ""))
        if self.unused:
            found.append((False, f"columns that are not declared, and not used: {', '.join(self.unused)}", ""))
        for column, counts in self.readings.items():
            found += self._of_column(column, counts)
        return found

    def _of_column(self, column: str, counts: NDArray[np.int64]) -> list[tuple[bool, str, str]]:
        total = max(1, int(counts.sum()))
        clipped, unknown = int(counts[Reading.CLIPPED]), int(counts[Reading.UNKNOWN])
        missing, unreadable = int(counts[Reading.MISSING]), int(counts[Reading.UNREADABLE])
        found = []
        if clipped:
            advice = "declare a wider range, from knowledge" if clipped > _MANY * total else ""
            found.append((bool(advice), f"{column}: {clipped:,} of {total:,} values lie outside the range", advice))
        if unknown:
            found.append((True, f"{column}: {unknown:,} of {total:,} values are not declared", "declare their levels"))
        if unreadable:
            advice = "they count as missing; numbers are written like 1234.5"
            found.append((True, f"{column}: {unreadable:,} of {total:,} values cannot be read", advice))
        if missing == total:
            found.append((True, f"{column}: every value is missing", "ignore the column, or mend its export"))
        elif missing:
            found.append((False, f"{column}: {missing:,} of {total:,} values are missing", ""))
        return found


@dataclass(frozen=True, eq=False)
class EncodedTable:
    """Rows as numbers.

    Attributes:
        features: One row of features for each record.
        feature_names: The names of the features.
        targets: The target of each record: one number, or a row of numbers.
        ids: The id of each record.
        subjects: The person behind each record, if the schema names a column.
        is_test: Whether a record is for testing.
        silos: The text of the silo column of each record, if one was asked for.
        survey: How the cells were read.
        values: For each column of features the value of each record (`TableColumn.value`), for statistics.
    """

    features: NDArray[np.float32]
    feature_names: tuple[str, ...]
    targets: NDArray[Any]
    ids: NDArray[np.str_]
    subjects: NDArray[np.str_] | None
    is_test: NDArray[np.bool_]
    silos: NDArray[np.str_] | None
    survey: TableSurvey
    values: Mapping[str, NDArray[np.float32]]

    __repr__ = counts_repr

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: NDArray[Any]) -> EncodedTable:
        """The records at these positions, or where a mask is true."""
        return replace(
            self,
            features=self.features[rows],
            targets=self.targets[rows],
            ids=self.ids[rows],
            subjects=None if self.subjects is None else self.subjects[rows],
            is_test=self.is_test[rows],
            silos=None if self.silos is None else self.silos[rows],
            values={name: values[rows] for name, values in self.values.items()},
        )
