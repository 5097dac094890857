"""Budgets by person: a file of persons with their budgets, and beside it which records each of them has.

Both must name exactly the same persons. Dividing a budget among a person's records is `BudgetTable.per_record`'s.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rpdp.budgets import validation
from rpdp.budgets.budget_files import BY_PERSON, NUMBERS, RECORDS, read_columns
from rpdp.budgets.duplicate_ids import repeated_ids
from rpdp.budgets.validation import ROWS, Place
from rpdp.errors import BudgetError

if TYPE_CHECKING:
    from collections.abc import Sequence


def columns_by_person(
    path: str | Path, records: str | Path | tuple[Sequence[str], Sequence[str]]
) -> tuple[dict[str, Any], Place]:
    """The columns of a budget table, one row for each record, and how messages name its rows: those of the records."""
    persons, place = read_columns(path, BY_PERSON)
    try:
        _check_persons(persons, place)
    except BudgetError as error:
        raise BudgetError(f"{path}: {error}") from None
    name, columns, record_place = _records_of(records)
    owners = columns["subject"]
    empty = validation.first_empty(owners)
    if empty is not None:
        raise BudgetError(f"{name}: {record_place(empty)} has no subject; name the person of every record")
    rows = pc.index_in(owners, value_set=persons["subject"].combine_chunks())
    if rows.null_count:
        missing = pc.unique(owners.filter(pc.is_null(rows)))
        raise BudgetError(
            f"{len(missing):,} of {len(pc.unique(owners)):,} persons in {name} have no budget in {path}; the first is "
            f"{missing[0].as_py()!r}. Give every person a budget, or leave their records out"
        )
    spare = persons["subject"].filter(pc.invert(pc.is_in(persons["subject"], value_set=pc.unique(owners))))
    if len(spare):
        raise BudgetError(
            f"{len(spare):,} of {len(persons['subject']):,} persons in {path} have no record in {name}; the first is "
            f"{spare[0].as_py()!r}. Leave them out, or add their records"
        )
    at = np.asarray(rows.combine_chunks() if isinstance(rows, pa.ChunkedArray) else rows)
    numbers: dict[str, Any] = {one: persons[one][at] for one in NUMBERS if one in persons}
    return {"record": columns["record"], "subject": owners, **numbers}, record_place


def _check_persons(persons: dict[str, Any], place: Place) -> None:
    subjects = persons["subject"]
    if not len(subjects):
        raise BudgetError("there are no persons; give at least one")
    empty = validation.first_empty(subjects)
    if empty is not None:
        raise BudgetError(f"{place(empty)} has no subject; name every person, and remove empty lines")
    twice = repeated_ids(subjects)
    if twice:
        rows = np.flatnonzero(pc.equal(subjects, twice[0]).to_numpy())
        raise BudgetError(
            f"person {twice[0]!r} occurs in {place(rows[0])} and again in {place(rows[1])}; a person has one budget, "
            "whatever the number of records"
        )
    validation.check_epsilon(persons["epsilon"], subjects, place, what="person")
    if "delta" in persons:
        validation.check_delta(persons["delta"], subjects, place, what="person")


def _records_of(
    records: str | Path | tuple[Sequence[str], Sequence[str]],
) -> tuple[str, dict[str, Any], Place]:
    """What messages call the table of records, its columns, and how its rows are named."""
    if not isinstance(records, tuple):
        columns, place = read_columns(records, RECORDS)
        return str(records), columns, place
    ids, subjects = (pa.chunked_array([pa.array(list(texts), pa.string())]) for texts in records)
    if len(ids) != len(subjects):
        raise BudgetError(f"{len(ids):,} records and {len(subjects):,} subjects; give one person for each record")
    return "the data", {"record": ids, "subject": subjects}, ROWS
