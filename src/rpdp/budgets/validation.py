"""The checks that every budget table passes. A refusal names the line or row, the record and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rpdp.budgets.duplicate_ids import repeated_ids
from rpdp.errors import BudgetError

if TYPE_CHECKING:
    from numpy.typing import NDArray

LARGEST_EPSILON = 1000.0
"""A larger ε promises nothing (e^1000) and is almost certainly a wrong unit."""

NO_RECORDS = "there are no records; give at least one"


@dataclass(frozen=True)
class Place:
    """How messages name a row: in a CSV file by its line in an editor, elsewhere by its number counted from 1."""

    noun: str
    first: int

    def __call__(self, row: int | np.integer) -> str:
        """The name of a row, which is counted from 0."""
        return f"{self.noun} {int(row) + self.first}"


ROWS = Place("row", 1)
LINES = Place("line", 2)
"""The header is line 1. No field contains a line break (`budget_files` refuses them), so each row is one line."""


def check_ids(ids: pa.ChunkedArray, place: Place) -> None:
    """Every record must have an id, and no two records the same one."""
    empty = first_empty(ids)
    if empty is not None:
        raise BudgetError(f"{place(empty)} has no record id; give every record one, and remove empty lines")
    twice = repeated_ids(ids)
    if twice:
        rows = np.flatnonzero(pc.equal(ids, twice[0]).to_numpy())
        more = f" ({len(twice):,} ids occur more than once)" if len(twice) > 1 else ""
        raise BudgetError(
            f"record id {twice[0]!r} occurs in {place(rows[0])} and again in {place(rows[1])}{more}; "
            "every record needs its own id. For several records of one person, use the column 'subject'"
        )


def check_epsilon(values: NDArray[np.float64], ids: pa.ChunkedArray, place: Place, what: str = "record") -> None:
    """Every ε must satisfy 0 < ε ≤ 1000; `what` is what the ids name."""
    good = (values > 0.0) & (values <= LARGEST_EPSILON)
    if good.all():
        return
    value = values[np.argmin(good)]
    advice = (
        f"; a larger ε promises nothing, so this looks like a wrong unit. Write {LARGEST_EPSILON:g} for 'no limit'"
        if value > LARGEST_EPSILON
        else "; leave out records that allow nothing"
    )
    _refuse("epsilon", values, good, ids, place, what, f"must be above 0 and at most {LARGEST_EPSILON:g}{advice}")


def check_delta(values: NDArray[np.float64], ids: pa.ChunkedArray, place: Place, what: str = "record") -> None:
    """Every δ must satisfy 0 < δ < 1."""
    good = (values > 0.0) & (values < 1.0)
    if not good.all():
        allowed = "must lie strictly between 0 and 1; omit the column to use the silo's lifetime δ for all records"
        _refuse("delta", values, good, ids, place, what, allowed)


def check_subjects_named(subjects: pa.ChunkedArray, place: Place) -> None:
    """Every record must have a subject."""
    empty = first_empty(subjects)
    if empty is not None:
        raise BudgetError(f"{place(empty)} has no subject; omit the column if every record is its own subject")


def check_subjects_agree(
    subjects: pa.ChunkedArray, codes: NDArray[np.int64], numbers: dict[str, NDArray[np.float64]], place: Place
) -> None:
    """All records of a subject must state the same budget; `codes` numbers the subjects."""
    first_rows = np.full(int(codes.max()) + 1, codes.size, dtype=np.int64)
    np.minimum.at(first_rows, codes, np.arange(codes.size))
    for name, values in numbers.items():
        differs = np.flatnonzero(values != values[first_rows[codes]])
        if differs.size:
            row = int(differs[0])
            before = int(first_rows[codes[row]])
            raise BudgetError(
                f"{place(row)}: subject {subjects[row].as_py()!r} has {name} {values[row]:g} here and "
                f"{values[before]:g} in {place(before)}; write the same {name} in all {place.noun}s of a subject "
                "(it is split over the records for you)"
            )


def first_empty(texts: pa.ChunkedArray) -> int | None:
    """The first row with an empty or missing text; None if there is none."""
    empty = pc.fill_null(pc.equal(texts, ""), True)
    row = int(pc.index(empty, pa.scalar(True)).as_py())
    return row if row >= 0 else None


def _refuse(
    name: str,
    values: NDArray[np.float64],
    good: NDArray[np.bool_],
    ids: pa.ChunkedArray,
    place: Place,
    owner: str,
    allowed: str,
) -> None:
    row = int(np.argmin(good))
    value = values[row]
    what = "is missing or not a number" if np.isnan(value) else f"is {value:g}"
    more = int((~good).sum()) - 1
    rest = f" ({more:,} more {place.noun}{'s are' if more > 1 else ' is'} wrong)" if more else ""
    raise BudgetError(f"{place(row)}, {owner} {ids[row].as_py()!r}: {name} {what}, {allowed}{rest}")
