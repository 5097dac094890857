"""A table of patients and its schema, shared by tests."""

from __future__ import annotations

import copy
from typing import Any

import pyarrow as pa

from rpdp.tables import TableSchema

VALUES: dict[str, Any] = {
    "record": "PATIENT",
    "missing": ["NA", "?"],
    "columns": {
        "AGE": {"kind": "number", "range": [20, 100], "missing": 60},
        "PRESSURE": {"kind": "number", "range": [80, 240]},
        "SEX": {"kind": "category", "levels": ["F", "M"]},
        "TYPE": {"kind": "category", "levels": ["a", "b", 3], "missing": True},
        "ASPIRIN": {"kind": "yes_no", "missing": True},
        "SEEN": {"kind": "date", "range": ["1991-01-01", "1996-12-31"]},
        "COMMENT": {"kind": "ignore"},
    },
    "target": {"kind": "classification", "column": "OUTCOME", "classes": {"well": [3, 4], "ill": [1, 2]}},
    "keep": {"OUTCOME": [1, 2, 3, 4]},
    "split": {"test_share": 0.25, "key": "spring"},
}


def schema(**changes: Any) -> TableSchema:
    """The schema with some of its values changed."""
    return TableSchema.of({**copy.deepcopy(VALUES), **changes})


def patients(*rows: tuple[Any, ...]) -> pa.Table:
    """A table with these rows."""
    names = ("PATIENT", "AGE", "PRESSURE", "SEX", "TYPE", "ASPIRIN", "SEEN", "COMMENT", "OUTCOME")
    return pa.table(
        {name: pa.array([str(row[place]) for row in rows], pa.string()) for place, name in enumerate(names)}
    )


ANN = ("ann", 60, 160, "F", "a", "Y", "1994-01-01", "", 1)
BOB = ("bob", "NA", 400, "X", 3, "?", "1990-05-05", "late", 4)
EVE = ("eve", "old", "", "M", "", "no", "soon", "", 2)
LEFT = ("left", 70, 150, "F", "a", "Y", "1994-01-01", "", 9)
