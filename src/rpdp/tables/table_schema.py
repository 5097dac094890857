"""The schema of a table: what each column means, what is learnt, and which rows are kept. All of it is public.

A schema is a TOML file, or the same sections below `[table]` of a study file:

    from_data = false                 # true: ranges and levels were read from private data, not covered
    record = "PATIENT"                # the id of a record; real runs need one
    subject = "PERSON"                # optional: the person behind it
    missing = ["NA", "?"]             # texts that mean a missing value, besides an empty cell

    [columns]
    AGE = { kind = "number", range = [18, 100], missing = 60 }
    SEX = { kind = "category", levels = ["F", "M"] }

    [target]
    kind = "classification"
    column = "OUTCOME"
    classes = { well = [3, 4], ill = [1, 2] }

    [keep]                            # optional: only rows with these values
    OUTCOME = [1, 2, 3, 4]            # or true: rows in which it is not missing

    [split]                           # optional: records for testing
    test_share = 0.2
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from rpdp.errors import InputError
from rpdp.setting_fields import flag, nearest, read_section, text
from rpdp.tables.cell_text import column_texts, distinct_texts
from rpdp.tables.encoded_table import EncodedTable, TableSurvey
from rpdp.tables.table_columns import IgnoredColumn, Reading, TableColumn, level_or_levels, levels, read_columns
from rpdp.tables.table_split import TableSplit
from rpdp.tables.table_targets import TableTarget, read_target

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMAT = "rpdp-table-schema/1"
KEYS = ("from_data", "record", "subject", "missing", "columns", "target", "keep", "split")


@dataclass(frozen=True)
class TableSchema:
    """A schema that was checked.

    Guarantee: the features and the target of a row are a function of that row and of this object. No other row, no
    count and no statistic of a table has any influence, so the promise covers them.
    """

    columns: Mapping[str, TableColumn]
    target: TableTarget
    record: str | None = None
    subject: str | None = None
    missing: tuple[str, ...] = ()
    keep: Mapping[str, tuple[str, ...]] | None = None
    split: TableSplit | None = None
    from_data: bool = False
    """Whether ranges and levels were read from private data, which no promise covers."""

    @classmethod
    def of(cls, values: Mapping[str, Any], prefix: str = "") -> TableSchema:
        """Check the values of a schema; messages name keys below `prefix`."""
        for key in values:
            if key not in KEYS:
                raise InputError(f"{prefix}{key} is not part of a schema{nearest(key, list(KEYS), prefix)}")
        for key in ("columns", "target"):
            if key not in values:
                raise InputError(f"the section [{prefix}{key}] is missing; it says what the columns of the table mean")
        made = cls(
            columns=read_columns(f"{prefix}columns", values["columns"]),
            target=read_target(f"{prefix}target", values["target"]),
            record=text(f"{prefix}record", values["record"]) if "record" in values else None,
            subject=text(f"{prefix}subject", values["subject"]) if "subject" in values else None,
            missing=levels(f"{prefix}missing", values["missing"]) if "missing" in values else (),
            keep=_kept_values(f"{prefix}keep", values["keep"]) if "keep" in values else None,
            split=read_section(TableSplit, f"{prefix}split", values["split"]) if "split" in values else None,
            from_data=flag(f"{prefix}from_data", values.get("from_data", False)),
        )
        made._check(prefix)
        return made

    @classmethod
    def read(cls, path: str | Path) -> TableSchema:
        """Read a schema file, or the `[table]` of a study file. Errors name the file, the key and its value."""
        path = Path(path)
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
            if isinstance(values.get("table"), Mapping):
                return cls.of({key: each for key, each in values["table"].items() if key in KEYS}, "table.")
            return cls.of(values)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: not a TOML file: {error}") from None
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from None
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    def _check(self, prefix: str) -> None:
        roles = {self.record: "record", self.subject: "subject"}
        roles |= dict.fromkeys(self.target.sources, "target")
        for name, column in self.columns.items():
            if name in roles and not isinstance(column, IgnoredColumn):
                raise InputError(
                    f"{prefix}columns.{name} is the {roles[name]} of the table and must not be a feature as well; "
                    'remove the line, or write { kind = "ignore" }'
                )
        if not self.feature_names:
            raise InputError(f"{prefix}columns has no column of features; declare at least one that is not ignored")

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """The name of every feature, in order: `AGE`, `SEX = F`, `AGE missing`."""
        return tuple(feature for name, column in self.columns.items() for feature in column.features(name))

    @cached_property
    def feature_meanings(self) -> tuple[str, ...]:
        """What the values of every feature mean, in the order of `feature_names`: "−1 at 40, 1 at 100"."""
        return tuple(meaning for column in self.columns.values() for meaning in column.meanings())

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over all that decides how a row becomes numbers: columns in order, target, missing texts, filter."""
        columns = [[name, each.kind, vars(each)] for name, each in self._used.items()]
        target = [self.target.kind, vars(self.target)]
        parts = [FORMAT, columns, target, sorted(self.missing), sorted((self.keep or {}).items())]
        canonical = json.dumps(parts, sort_keys=False, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(canonical.encode()).hexdigest()

    @property
    def _used(self) -> dict[str, TableColumn]:
        return {name: each for name, each in self.columns.items() if not isinstance(each, IgnoredColumn)}

    def encode(self, table: pa.Table, *, seed: int = 0, silo: str | None = None) -> EncodedTable:
        """Turn every row that is kept into numbers.

        Args:
            table: The table.
            seed: A public seed of the split by a key.
            silo: A column whose texts are handed on, to divide one table into silos.
        """
        self._require_columns(table, silo)
        kept = self._kept(table)
        rows = table.filter(pa.array(kept)) if not kept.all() else table
        if not len(rows):
            raise InputError(f"none of {len(table):,} rows is left; check keep and the values of its columns")
        features, readings, values = self._features(rows)
        numbers = np.flatnonzero(kept) + 1
        ids = self._ids(rows, numbers)
        subjects = None if self.subject is None else _full(rows, self.subject, "subject", "person")
        return EncodedTable(
            features,
            self.feature_names,
            self._targets(rows),
            ids,
            subjects,
            self._tests(rows, ids if subjects is None else subjects, seed),
            None if silo is None else _texts(rows, silo),
            TableSurvey(len(table), len(rows), readings, self._unused(table, silo)),
            values,
        )

    def _require_columns(self, table: pa.Table, silo: str | None) -> None:
        names = list(table.column_names)
        for name in self._named(silo):
            if name not in names:
                raise InputError(f"the table has no column {name!r}{nearest(name, names)}")
            if names.count(name) > 1:
                raise InputError(f"the table has {names.count(name)} columns {name!r}; rename all but one")

    def _named(self, silo: str | None) -> list[str]:
        split = None if self.split is None else self.split.column
        others = [self.record, self.subject, split, silo, *self.target.sources, *(self.keep or {})]
        return [*self._used, *(name for name in others if name is not None)]

    def _unused(self, table: pa.Table, silo: str | None) -> tuple[str, ...]:
        declared = {*self._named(silo), *self.columns}
        return tuple(name for name in table.column_names if name not in declared)

    def _kept(self, table: pa.Table) -> NDArray[np.bool_]:
        kept = np.ones(len(table), dtype=np.bool_)
        for name, values in (self.keep or {}).items():
            texts, rows = distinct_texts(table.column(name))
            kept &= np.array([self._is_kept(each, values) for each in texts], dtype=np.bool_)[rows]
        return kept

    def _is_kept(self, cell: str, values: tuple[str, ...]) -> bool:
        return cell in values if values else self._present(cell) != ""

    def _features(
        self, rows: pa.Table
    ) -> tuple[NDArray[np.float32], dict[str, NDArray[np.int64]], dict[str, NDArray[np.float32]]]:
        """The features, how often each column was read how, and the columns' values."""
        parts, readings, values = [], {}, {}
        for name, column in self._used.items():
            texts, places = distinct_texts(rows.column(name))
            cells = [self._present(each) for each in texts]
            encoded = [column.encode(each) for each in cells]
            parts.append(np.array([features for features, _ in encoded], dtype=np.float32)[places])
            found = np.array([reading for _, reading in encoded], dtype=np.int64)[places]
            readings[name] = np.bincount(found, minlength=len(Reading))
            values[name] = np.array([column.value(each) for each in cells], dtype=np.float32)[places]
        return np.concatenate(parts, axis=1), readings, values

    def _present(self, cell: str) -> str:
        return "" if cell in self.missing else cell

    def _targets(self, rows: pa.Table) -> NDArray[Any]:
        cells = list(zip(*(column_texts(rows.column(name)) for name in self.target.sources), strict=True))
        encoded = {each: self.target.encode(tuple(map(self._present, each))) for each in set(cells)}
        bad = sum(encoded[each] is None for each in cells)
        if bad:
            first = next(each for each in cells if encoded[each] is None)
            shown = ", ".join(f"{name} = {cell!r}" for name, cell in zip(self.target.sources, first, strict=True))
            raise InputError(
                f"{bad:,} of {len(cells):,} rows have no target, the first with {shown}; it must be "
                f"{self.target.wanted}. Declare the value, or leave such rows out with [keep]"
            )
        made = np.array([encoded[each] for each in cells], dtype=np.int64 if self.target.is_whole else np.float32)
        return made[:, 0] if made.shape[1] == 1 else made

    def _ids(self, rows: pa.Table, numbers: NDArray[np.int64]) -> NDArray[np.str_]:
        if self.record is None:
            return np.array([f"row-{number:06d}" for number in numbers], dtype=np.str_)
        ids = _full(rows, self.record, "record", "record")
        unique, counts = np.unique(ids, return_counts=True)
        if len(unique) < len(ids):
            raise InputError(
                f"record = {self.record!r}: {int((counts > 1).sum()):,} ids occur more than once, the first is "
                f"{str(unique[counts > 1][0])!r}. Every row needs an id of its own; what names persons is a subject"
            )
        return ids

    def _tests(self, rows: pa.Table, units: NDArray[np.str_], seed: int) -> NDArray[np.bool_]:
        split = self.split
        if split is None:
            return np.zeros(len(rows), dtype=np.bool_)
        cells = [""] * len(rows) if split.column is None else column_texts(rows.column(split.column))
        return np.array(
            [split.is_test(str(unit), cell, seed) for unit, cell in zip(units, cells, strict=True)], dtype=np.bool_
        )


def _texts(rows: pa.Table, name: str) -> NDArray[np.str_]:
    return np.array(column_texts(rows.column(name)), dtype=np.str_)


def _full(rows: pa.Table, name: str, key: str, what: str) -> NDArray[np.str_]:
    found = _texts(rows, name)
    empty = int((found == "").sum())
    if empty:
        raise InputError(f"{key} = {name!r}: {empty:,} of {len(found):,} rows have no value; every {what} needs one")
    return found


def _kept_values(name: str, value: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, Mapping) or not value:
        raise InputError(f"{name}={value!r} must name columns with the values to keep, such as OUTCOME = [1, 2]")
    return {column: () if each is True else level_or_levels(f"{name}.{column}", each) for column, each in value.items()}
