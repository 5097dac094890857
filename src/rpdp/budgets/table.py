"""The budget table of a silo: what each record allows over its lifetime.

A table has one row per record: a stable id, ε and optionally a lifetime δ and a subject (the person behind the record).
The constructor checks the whole table, so every `BudgetTable` that exists is valid, and no file is read in part.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rpdp.budgets import validation
from rpdp.budgets.bands import BAND_NAMES, counts_by_band
from rpdp.budgets.budget_files import is_by_person, read_columns, write_columns
from rpdp.budgets.person_budgets import columns_by_person
from rpdp.budgets.validation import ROWS, Place
from rpdp.checks import require_delta
from rpdp.display import counts_repr, html_table
from rpdp.errors import BudgetError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    Texts: TypeAlias = Sequence[str] | pa.Array | pa.ChunkedArray


@dataclass(frozen=True)
class RecordBudgets:
    """What each record allows after the budgets of subjects have been split: arrays in the order of the table."""

    epsilon: NDArray[np.float64]
    delta: NDArray[np.float64] | None

    __repr__ = counts_repr


@dataclass(frozen=True, init=False, eq=False, repr=False)
class BudgetTable:
    """Record ids with their ε and optionally their lifetime δ and subject.

    With a `subject` column, ε and δ belong to the *subject* and are the same in all of its rows. Each of the k records
    of a subject gets ε/k and δ (e^{ε/k} − 1)/(e^ε − 1). By group composition the promise (ε, δ) then holds for the
    subject as a whole, within this silo. Subjects with records in several silos are not covered by this.

    >>> table = BudgetTable(["a", "b", "c"], [1.0, 2.0, 2.0], delta=[1e-3] * 3, subjects=["p", "q", "q"])
    >>> table.per_record().epsilon
    array([1., 1., 1.])
    """

    ids: pa.ChunkedArray
    epsilon: NDArray[np.float64]
    delta: NDArray[np.float64] | None
    subjects: pa.ChunkedArray | None

    def __init__(
        self, ids: Texts, epsilon: ArrayLike, *, delta: ArrayLike | None = None, subjects: Texts | None = None
    ) -> None:
        self._fill(ids, epsilon, delta, subjects, ROWS)

    @classmethod
    def read(
        cls, path: str | Path, *, records: str | Path | tuple[Sequence[str], Sequence[str]] | None = None
    ) -> BudgetTable:
        """Read a CSV or Parquet file with the columns record, epsilon and optionally delta and subject.

        Args:
            path: The file. Without a column record it holds budgets by person: subject, epsilon and optionally delta.
            records: For budgets by person: a file with the columns record and subject, or the ids of the records and
                the person of each.
        """
        if is_by_person(path) and records is not None:
            columns, place = columns_by_person(path, records)
        elif isinstance(records, str | Path):
            raise BudgetError(f"{path}: budgets by record go without a table of records; leave {records} out")
        else:
            columns, place = read_columns(path)
        table = cls.__new__(cls)
        try:
            table._fill(columns["record"], columns["epsilon"], columns.get("delta"), columns.get("subject"), place)
        except BudgetError as error:
            raise BudgetError(f"{path}: {error}") from None
        return table

    def _fill(
        self, ids: Texts, epsilon: ArrayLike, delta: ArrayLike | None, subjects: Texts | None, place: Place
    ) -> None:
        """Set all columns and check them; `place` says how messages name a row."""
        assign = object.__setattr__
        assign(self, "ids", _strings("record", ids))
        assign(self, "epsilon", _frozen("epsilon", epsilon))
        assign(self, "delta", None if delta is None else _frozen("delta", delta))
        assign(self, "subjects", None if subjects is None else _strings("subject", subjects))
        _check_lengths(self)
        validation.check_ids(self.ids, place)
        validation.check_epsilon(self.epsilon, self.ids, place)
        numbers = {"epsilon": self.epsilon}
        if self.delta is not None:
            validation.check_delta(self.delta, self.ids, place)
            numbers["delta"] = self.delta
        if self.subjects is not None:
            validation.check_subjects_named(self.subjects, place)
            validation.check_subjects_agree(self.subjects, self.subject_codes(), numbers, place)

    def write(self, path: str | Path) -> None:
        """Write CSV or Parquet, depending on the file name."""
        columns: dict[str, pa.Array | pa.ChunkedArray] = {
            "record": self.ids,
            "epsilon": pa.array(self.epsilon),
        }
        if self.delta is not None:
            columns["delta"] = pa.array(self.delta)
        if self.subjects is not None:
            columns["subject"] = self.subjects
        write_columns(path, columns)

    def __len__(self) -> int:
        return len(self.epsilon)

    def __repr__(self) -> str:
        columns = [name for name in ("delta", "subjects") if getattr(self, name) is not None]
        return f"BudgetTable({', '.join([f'{len(self):,} records', *columns])})"

    def _repr_html_(self) -> str:
        rows = zip(BAND_NAMES, counts_by_band(self.epsilon), strict=True)
        return html_table(repr(self), rows, ("budget", "records"))

    def position(self, record: str) -> int:
        """The row of a record, counted from 0."""
        row = int(pc.index(self.ids, pa.scalar(str(record), self.ids.type)).as_py())
        if row < 0:
            raise BudgetError(f"no record {record!r} among {len(self):,}; ids are compared exactly")
        return row

    def arranged(self, ids: Sequence[str]) -> BudgetTable:
        """The same budgets in the order of `ids`. Refuses unless table and `ids` name exactly the same records."""
        records = _strings("record", list(ids))
        rows = pc.index_in(records, value_set=self.ids.combine_chunks())
        validation.check_ids(records, ROWS)
        if rows.null_count:
            missing = records.filter(pc.is_null(rows))
            raise BudgetError(
                f"{len(missing):,} of {len(records):,} records have no budget, the first is {missing[0].as_py()!r}; "
                "every record needs one: add them to the table"
            )
        if len(self) != len(records):
            spare = self.ids.filter(pc.invert(pc.is_in(self.ids, value_set=records.combine_chunks())))
            raise BudgetError(
                f"{len(spare):,} budgets belong to no record, the first is {spare[0].as_py()!r}; the table must match "
                "the data: remove these budgets or add the records"
            )
        order = rows.combine_chunks()
        positions = np.asarray(order)
        delta = None if self.delta is None else self.delta[positions]
        subjects = None if self.subjects is None else self.subjects.take(order)
        return BudgetTable(self.ids.take(order), self.epsilon[positions], delta=delta, subjects=subjects)

    def subject_sizes(self) -> NDArray[np.int64]:
        """For each record, how many records its subject has."""
        if self.subjects is None:
            return np.ones(len(self), dtype=np.int64)
        codes = self.subject_codes()
        return np.bincount(codes)[codes]

    def per_record(self, lifetime_delta: float | None = None, *, parts: int = 1) -> RecordBudgets:
        """What each single record allows. `lifetime_delta` is used for all records if there is no δ column.

        Args:
            lifetime_delta: The δ of records without one of their own.
            parts: Into how many equal parts (ε/k, δ/k) each budget is split first, of which this silo holds one: the
                number of silos in which a person may have a sum account.
        """
        if parts > 1:
            delta = None if self.delta is None else self.delta / parts
            one = BudgetTable(self.ids, self.epsilon / parts, delta=delta, subjects=self.subjects)
            return one.per_record(None if lifetime_delta is None else lifetime_delta / parts)
        delta = self.delta
        if lifetime_delta is not None:
            require_delta("lifetime_delta", lifetime_delta)
            delta = np.full(len(self), lifetime_delta) if delta is None else delta
        if self.subjects is None:
            return RecordBudgets(self.epsilon, delta)
        sizes = self.subject_sizes()
        share = self.epsilon / sizes
        if delta is not None:
            delta = delta * delta_share(self.epsilon, sizes)
        return RecordBudgets(share, delta)

    def subject_codes(self) -> NDArray[np.int64]:
        """For each record, its subject, numbered from 0. The table must have subjects."""
        assert self.subjects is not None
        encoded = pc.dictionary_encode(self.subjects.combine_chunks())
        return np.asarray(encoded.indices, dtype=np.int64)


def delta_share(epsilon: NDArray[np.float64], sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """The part of a person's δ that each of the person's k records gets, if each has ε/k.

    Group composition of k records at (ε/k, δ') gives δ = δ' (1 + e^{ε/k} + … + e^{(k−1)ε/k}). This is solved for δ' and
    written with negative exponents only, which cannot overflow. At ε = 0 it is 1/k.
    """
    share = epsilon / sizes
    with np.errstate(invalid="ignore"):  # 0/0 at ε = 0
        part = np.exp(share - epsilon) * np.expm1(-share) / np.expm1(-epsilon)
    return np.where(epsilon == 0.0, 1.0 / sizes, np.where(sizes == 1, 1.0, part))


def _frozen(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """A read-only copy, so that no number can change after it has been checked."""
    try:
        array = np.array(values, dtype=np.float64, ndmin=1)
    except (TypeError, ValueError) as error:
        raise BudgetError(f"{name} must be a list of numbers: {error}") from None
    if array.ndim != 1:
        raise BudgetError(f"{name} must be a list of numbers, got an array of shape {array.shape}")
    array.flags.writeable = False
    return array


def _strings(name: str, values: Texts) -> pa.ChunkedArray:
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        wrong = values if isinstance(values, str) else _first_not_text(values)
        if wrong is not None:
            raise BudgetError(f"{name} ids must be a list of strings, got {wrong!r}")
        try:
            values = pa.array(values, type=pa.string())
        except UnicodeEncodeError as error:
            raise BudgetError(f"{name} ids must be valid Unicode: {error}") from None
    if isinstance(values, pa.Array):
        values = pa.chunked_array([values])
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        raise BudgetError(f"{name} ids must be text, got {values.type}")
    return values


def _first_not_text(values: Sequence[object]) -> object:
    return next((value for value in values if value is not None and not isinstance(value, str)), None)


def _check_lengths(table: BudgetTable) -> None:
    if len(table.epsilon) == 0:
        raise BudgetError(validation.NO_RECORDS)
    columns = {"record": table.ids, "delta": table.delta, "subject": table.subjects}
    for name, column in columns.items():
        if column is not None and len(column) != len(table.epsilon):
            raise BudgetError(
                f"{len(column):,} values of {name} for {len(table.epsilon):,} of epsilon; give one for each record"
            )
