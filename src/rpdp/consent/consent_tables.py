"""Consent in a CSV table, also as REDCap exports it: one line per statement, columns named in the map.

A choice is one column with a code, or REDCap's checkboxes: `NAME___CODE` with 0 or 1, of which exactly one may be 1.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from rpdp.consent.consent_statements import ConsentStatement, Span, checked_person
from rpdp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from rpdp.consent.consent_map import BudgetChoice, ConsentMap, TableRules

_BOX = "___"


def read_table(content: bytes, consent_map: ConsentMap, now: datetime) -> list[ConsentStatement]:
    """The statements of a table, a line each."""
    rules = consent_map.table
    if rules is None:
        raise InputError("the map has no [table], which names the columns")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"the table is not UTF-8 (byte {error.start}); save it as CSV in UTF-8") from None
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    found = []
    try:
        header = next(lines, [])
        columns = _Columns(header, rules)
        for line in lines:
            place = f"line {lines.line_num}"
            if not any(line):
                continue
            if len(line) != len(header):
                raise InputError(f"{place}: it has {len(line)} cells, and the header {len(header)}")
            cells = {name: cell.strip() for name, cell in zip(header, line, strict=True)}
            try:
                found.append(_statement(place, cells, columns, consent_map, now))
            except InputError as error:
                said = str(error)
                raise InputError(said if said.startswith(place) else f"{place}: {said}") from None
    except csv.Error as error:
        raise InputError(f"line {lines.line_num}: not CSV: {error}") from None
    if not found:
        raise InputError("the table has no line of consent")
    return found


class _Columns:
    """The columns of a table, all of which must be there."""

    def __init__(self, header: list[str], rules: TableRules) -> None:
        twice = next((name for name in header if header.count(name) > 1), None)
        if twice is not None:
            raise InputError(f"the column {twice!r} is there more than once")
        self.rules = rules
        self.boxes = [name for name in header if name.startswith(f"{rules.choice}{_BOX}")]
        needed = [rules.person, rules.written, rules.status, rules.ends, None if self.boxes else rules.choice]
        missing = [name for name in needed if name is not None and name not in header]
        if missing:
            raise InputError(f"there is no column {missing[0]!r}; the columns are {', '.join(header[:20]) or 'none'}")

    def choice(self, cells: Mapping[str, str]) -> str:
        """The code of the choice in a line; empty if there is none."""
        if not self.boxes:
            return cells[self.rules.choice]
        wrong = next((name for name in self.boxes if cells[name] not in ("0", "1", "")), None)
        if wrong is not None:
            raise InputError(f"{wrong}={cells[wrong]!r} must be 0 or 1")
        ticked = [name.partition(_BOX)[2] for name in self.boxes if cells[name] == "1"]
        if len(ticked) > 1:
            raise InputError(f"several choices are ticked: {', '.join(ticked)}")
        return ticked[0] if ticked else ""


def _statement(
    place: str, cells: Mapping[str, str], columns: _Columns, consent_map: ConsentMap, now: datetime
) -> ConsentStatement:
    rules = columns.rules
    person = checked_person(place, cells[rules.person])
    written = Span.parse(cells[rules.written], consent_map.time_zone) if cells[rules.written] else None
    if rules.status is not None:
        status = cells[rules.status]
        if status in rules.ended:
            return ConsentStatement(place, person, "ended", written, why=f"status {status}")
        if status not in rules.active:
            raise InputError(f"the status {status!r} is neither in table.active of the map nor in table.ended")
    code = columns.choice(cells)
    choice: BudgetChoice | None = consent_map.choices.get(code)
    if choice is None:
        raise InputError(f"the choice {code!r} is not in [choices] of the map; nothing was changed")
    if choice.epsilon is None:
        return ConsentStatement(place, person, "ended", written, why="chose no use")
    ends = cells[rules.ends] if rules.ends is not None else ""
    if ends and Span.parse(ends, consent_map.time_zone).end <= now:
        return ConsentStatement(place, person, "ended", written, why=f"expired on {ends}")
    return ConsentStatement(place, person, "allows", written, choice)
