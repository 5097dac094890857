"""Proposing a schema from a table: kinds, ranges and levels as they are found.

What is read from private data is not covered by the promise. So a proposal says `from_data = true`, every plan made
with it carries a note. The note goes once somebody has declared ranges and levels from knowledge and removed the line.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING

import numpy as np

from rpdp.errors import InputError
from rpdp.setting_fields import nearest
from rpdp.tables.cell_text import column_texts
from rpdp.tables.late_columns import late_by_name, late_columns
from rpdp.tables.table_columns import NO, YES

if TYPE_CHECKING:
    import pyarrow as pa

MISSING_TEXTS = ("NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?", ".", "-")
"""Texts that often stand for a missing value."""

MOST_LEVELS = 30
FEWEST_NUMBERS = 10
"""A column with at most so many different whole numbers is proposed as a category."""

_FEWEST_AMOUNTS = 5
"""At least so many different whole numbers with unlike numbers of digits, such as 500 and 20000, are no codes."""

_DATE_FORMATS = ("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%Y/%m/%d")
"""What dates look like besides ISO. The first form that fits every cell is proposed."""

_MOSTLY = 0.95
_STEPS = (1, 2, 5, 10)

HEADER = """\
# What the columns of {table} mean. Everything here is public: it goes to all silos.
#
# Proposed from the data. What was read from private data is NOT covered by the promise: check every range and level
# against what you know without looking (a form, a protocol, a textbook), then remove the next line.
from_data = true
"""


_WIDE = """\
# The ranges of numbers below are wide ones, not read from the data: training asks for quantiles within them, in private
# and charged. Values outside count as the nearest end: give each column a range that surely holds it, from knowledge.
"""


@dataclass(frozen=True)
class Roles:
    """Which columns have a part of their own.

    Attributes:
        target: The column to learn.
        record: The id of a record.
        subject: The person behind it.
        silo: The column that divides the table into silos.
    """

    target: str
    record: str | None = None
    subject: str | None = None
    silo: str | None = None

    def check(self, names: list[str]) -> None:
        """Refuse a column that the table does not have."""
        for option, name in vars(self).items():
            if name is not None and name not in names:
                raise InputError(f"--{option} {name}: the table has no such column{nearest(name, names)}")


def find_record(table: pa.Table) -> str | None:
    """Return the first column that looks like an id: all values differ, none is empty, and its name says so."""
    for name in map(str, table.column_names):
        words = re.split(r"[^\w]|_", name.casefold())
        if not {"id", "record", "patient", "number", "nr", "no"} & set(words) and not name.casefold().endswith("id"):
            continue
        texts = column_texts(table.column(name))
        if all(texts) and len(set(texts)) == len(texts):
            return name
    return None


def propose_schema(
    table: pa.Table,
    roles: Roles,
    title: str,
    *,
    test_share: float = 0.2,
    wide: tuple[float, float] | None = None,
) -> str:
    """Return the text of a schema file. With a wide public range, no range of a feature is read from the data."""
    roles.check(table.column_names)
    texts, missing = _texts(table)
    parts = [HEADER.format(table=title) + ("" if wide is None else _WIDE)]
    parts.append(f"record = {_quoted(roles.record)}" if roles.record else _NO_RECORD)
    if roles.subject:
        parts.append(f"subject = {_quoted(roles.subject)}          # the person behind a record")
    if missing:
        parts.append(f"missing = {_quoted(missing)}    # texts that mean a missing value")
    parts.append("\n[columns]")
    for name, declared in _columns(texts, roles, wide).items():
        # From names alone: what rows tell does not belong into a file that goes to all silos.
        is_late = not _is_ignored(declared) and late_by_name(name, roles.target) is not None
        parts.append(f"{_key(name)} = {declared}{_LATE if is_late else ''}")
    present = [each for each in texts[roles.target] if each]
    parts += ["\n[target]", *_target(roles.target, present)]
    if len(present) < len(table):
        parts += _kept(roles.target, present)
    parts.append(f"\n[split]                     # records for testing, in simulations\ntest_share = {test_share}")
    return "\n".join(parts) + "\n"


def late_features(table: pa.Table, roles: Roles) -> dict[str, str]:
    """Return the features that may be known only after the decision, and why. It tells of rows: for their holder."""
    texts, _ = _texts(table)
    used = [name for name, declared in _columns(texts, roles).items() if not _is_ignored(declared)]
    return late_columns(texts, roles.target, used)


def _texts(table: pa.Table) -> tuple[dict[str, list[str]], list[str]]:
    """Return the texts of every column, empty where missing, and the texts that mean a missing value."""
    texts = {name: column_texts(table.column(name)) for name in table.column_names}
    missing = [each for each in MISSING_TEXTS if any(each in found for found in texts.values())]
    return {name: ["" if each in missing else each for each in found] for name, found in texts.items()}, missing


def _columns(texts: dict[str, list[str]], roles: Roles, wide: tuple[float, float] | None = None) -> dict[str, str]:
    """Return the declarations of the columns that have no part of their own."""
    return {name: _column(found, wide) for name, found in texts.items() if name not in vars(roles).values()}


def _is_ignored(declared: str) -> bool:
    return declared.startswith('{ kind = "ignore"')


_LATE = '    # known only later? Then { kind = "ignore" }'
_NO_RECORD = '# record = "ID"             # the column with the id of each record; real runs need one'


def _column(found: list[str], wide: tuple[float, float] | None) -> str:
    """Return the declaration of a column from its texts; an empty one is a missing value."""
    present = [each for each in found if each]
    distinct = sorted(set(present))
    is_partial = len(present) < len(found)
    if len(distinct) < 2:
        return '{ kind = "ignore" }    # at most one value'
    if {each.casefold() for each in distinct} <= {*YES, *NO}:
        return _declared("yes_no", "missing = true" if is_partial else "")
    numbers = _numbers(present)
    if numbers is not None and _is_measured(present):
        low, high = nice_range(float(numbers.min()), float(numbers.max())) if wide is None else wide
        fill = f"missing = {_number((low + high) / 2)}" if is_partial or len(numbers) < len(present) else ""
        return _declared("number", f"range = [{_number(low)}, {_number(high)}]", fill)
    if (dates := _dates(distinct)) is not None:
        return dates
    if len(distinct) <= MOST_LEVELS:
        usual = Counter(present).most_common(1)[0][0]
        settings = [f"levels = {_quoted(distinct)}", f"base = {_quoted(usual)}"]
        return _declared("category", *settings, "missing = true" if is_partial else "")
    return f'{{ kind = "ignore" }}    # {len(distinct):,} different texts; a category has at most {MOST_LEVELS}'


def _target(name: str, present: list[str]) -> list[str]:
    distinct = sorted(set(present))
    if len(distinct) < 2:
        raise InputError(f"--target {name}: every row has the same value; there is nothing to learn")
    column = f"column = {_quoted(name)}"
    if _is_measured(present):
        numbers = _numbers(present)
        assert numbers is not None
        low, high = nice_range(float(numbers.min()), float(numbers.max()))
        return ['kind = "regression"', column, f"range = [{_number(low)}, {_number(high)}]"]
    if len(distinct) > MOST_LEVELS:
        raise InputError(f"--target {name}: {len(distinct):,} different texts are no classes; choose another column")
    if {each.casefold() for each in distinct} <= {*YES, *NO}:
        distinct.sort(key=lambda each: each.casefold() in YES)
    return ['kind = "classification"', column, f"classes = {_quoted(distinct)}"]


def _kept(name: str, present: list[str]) -> list[str]:
    """Return the filter that leaves out rows without a target."""
    values = "true" if _is_measured(present) else _quoted(sorted(set(present)))
    return ["\n[keep]                      # rows without a target are left out", f"{_key(name)} = {values}"]


def _is_measured(present: list[str]) -> bool:
    """Return whether values are numbers on a scale, rather than codes."""
    numbers = _numbers(present)
    if numbers is None:
        return False
    distinct = set(present)
    are_amounts = len(distinct) >= _FEWEST_AMOUNTS and max(numbers) >= 100 and len(set(map(len, distinct))) > 1
    return len(distinct) > FEWEST_NUMBERS or are_amounts or not all(each == int(each) for each in numbers)


def nice_range(low: float, high: float) -> tuple[float, float]:
    """Return a range around two numbers that ends at round numbers.

    >>> nice_range(16, 99), nice_range(0.21, 0.93)
    ((0.0, 100.0), (0.2, 1.0))
    """
    if low == high:
        low, high = low - 1.0, high + 1.0
    power = 10.0 ** math.floor(math.log10((high - low) / 4))
    step = next(each * power for each in _STEPS if (high - low) / (each * power) <= 5)
    return round(math.floor(low / step) * step, 10), round(math.ceil(high / step) * step, 10)


def _numbers(present: list[str]) -> np.ndarray[tuple[int], np.dtype[np.float64]] | None:
    """Return the finite numbers among texts; None if many are none."""
    found = []
    for each in present:
        try:
            found.append(float(each) if "_" not in each else math.nan)
        except ValueError:
            continue
    finite = np.array([each for each in found if math.isfinite(each)])
    return finite if len(finite) >= _MOSTLY * len(present) else None


def _dates(distinct: list[str]) -> str | None:
    """Return the declaration of a column of dates; None if the texts are not all dates of one form."""
    for form in (None, *_DATE_FORMATS):
        found = [_date(each, form) for each in distinct]
        if years := [each.year for each in found if each is not None]:
            if len(years) < len(found):
                continue
            settings = [f'range = ["{min(years)}-01-01", "{max(years)}-12-31"]']
            if form is not None:
                settings.append(f"format = {_quoted(form)}")
            other = form == _DATE_FORMATS[0] and all(_date(each, _DATE_FORMATS[1]) for each in distinct)
            return _declared("date", *settings) + (
                f"    # or {_quoted(_DATE_FORMATS[1])}: every day fits both" if other else ""
            )
    return None


def _date(cell: str, form: str | None) -> date | None:
    try:
        return date.fromisoformat(cell[:10]) if form is None else datetime.strptime(cell, form).date()
    except ValueError:
        return None


def _declared(kind: str, *settings: str) -> str:
    return f"{{ {', '.join([f'kind = {_quoted(kind)}', *filter(None, settings)])} }}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:g}"


def _quoted(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)  # JSON texts and lists of texts are valid in TOML


def _key(name: str) -> str:
    return name if name.isascii() and name.replace("_", "").replace("-", "").isalnum() else _quoted(name)
