"""Reads and writes budget files in CSV or Parquet.

A file is read completely or not at all, and every error names the line.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from rpdp.budgets.validation import LINES, NO_RECORDS, ROWS, Place
from rpdp.errors import BudgetError, InputError
from rpdp.private_files import private_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True)
class FileKind:
    """What a file may hold: its columns, and whether others are passed over."""

    required: tuple[str, ...]
    optional: tuple[str, ...]
    expected: str
    passes_over: bool = False


BY_RECORD = FileKind(
    ("record", "epsilon"), ("delta", "subject"), "the header must be record,epsilon and optionally delta and subject"
)
BY_PERSON = FileKind(("subject", "epsilon"), ("delta",), "the header must be subject,epsilon and optionally delta")
RECORDS = FileKind(("record", "subject"), (), "the header must have the columns record and subject", passes_over=True)

COLUMN_TYPES = {"record": pa.string(), "epsilon": pa.float64(), "delta": pa.float64(), "subject": pa.string()}
NUMBERS = ("epsilon", "delta")

_SAVE_AS_UTF8 = "save it as CSV in UTF-8"


def read_columns(path: str | Path, kind: FileKind = BY_RECORD) -> tuple[dict[str, Any], Place]:
    """The columns of a budget file, with header and types checked, and how to name its rows in messages."""
    path = _existing(path)
    is_parquet = check_ending(path) == ".parquet"
    try:
        table = _read_parquet(path, kind) if is_parquet else _read_csv(path, kind)
    except OSError as error:
        raise BudgetError(f"{path}: cannot be read: {error.strerror or error}") from None
    # A missing number becomes NaN here; the table then refuses it and names its line or row.
    columns = {
        name: table.column(name).to_numpy() if name in NUMBERS else table.column(name) for name in table.column_names
    }
    return columns, ROWS if is_parquet else LINES


def is_by_person(path: str | Path) -> bool:
    """Whether a budget file names persons, and no records."""
    path = _existing(path)
    try:
        names = pa_parquet.read_schema(path).names if check_ending(path) == ".parquet" else _header(path)
    except (OSError, pa.ArrowException):
        return False  # reading all of it says what is wrong
    return "subject" in names and "record" not in names


def _existing(path: str | Path) -> Path:
    path = Path(path)
    check_ending(path)
    if path.is_dir():
        raise BudgetError(f"{path}: this is a directory; name the file in it")
    if not path.exists():
        raise BudgetError(f"{path}: no such file")
    if path.stat().st_size == 0:
        raise BudgetError(f"{path}: the file is empty; {BY_RECORD.expected}")
    return path


def write_columns(path: str | Path, columns: Mapping[str, pa.ChunkedArray]) -> None:
    """Write CSV or Parquet, depending on the file name, for its owner alone. An existing file is replaced last."""
    path = Path(path)
    kind = check_ending(path)
    table = pa.table(dict(columns))
    try:
        with private_file(path, overwrite=True) as file:
            if kind == ".parquet":
                pa_parquet.write_table(table, file)
            else:
                _write_csv(table, path, file)
    except InputError as error:
        raise BudgetError(str(error)) from None


def check_ending(path: Path) -> str:
    """The suffix of a budget file's name in lower case, which must be .csv or .parquet."""
    kind = path.suffix.lower()
    if kind not in (".csv", ".parquet"):
        raise BudgetError(f"{path}: the name of a budget file must end in .csv or .parquet")
    return kind


def _check_header(path: Path, names: list[str], kind: FileKind) -> None:
    known = (*kind.required, *kind.optional)
    for name in names:
        if name not in known and not kind.passes_over:
            raise BudgetError(f"{path}: unknown column {name!r}{_hint(name)}; {kind.expected}")
        if names.count(name) > 1 and name in known:
            raise BudgetError(f"{path}: column {name!r} occurs twice in the header; {kind.expected}")
    for name in kind.required:
        if name not in names:
            raise BudgetError(f"{path}: column {name!r} is missing; {kind.expected}{_by_person(names, kind)}")


def _by_person(names: list[str], kind: FileKind) -> str:
    if kind is BY_RECORD and "subject" in names:
        return ". Budgets by person need the table of their records beside them (record,subject; --records FILE)"
    return ""


def _hint(name: str) -> str:
    for separator, plural in ((";", "semicolons"), ("\t", "tabs")):
        if separator in name:
            return f" (fields seem to be separated by {plural}; use commas)"
    close = get_close_matches(name.strip().lower(), COLUMN_TYPES, n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _read_parquet(path: Path, kind: FileKind) -> pa.Table:
    try:
        file = pa_parquet.ParquetFile(path)
        _check_header(path, file.schema_arrow.names, kind)
        wanted = [name for name in file.schema_arrow.names if name in (*kind.required, *kind.optional)]
        for name in wanted:
            _check_type(path, name, file.schema_arrow.field(name).type)
        table = file.read(columns=wanted)
        return table.cast(pa.schema([(name, COLUMN_TYPES[name]) for name in table.column_names]))
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise BudgetError(f"{path}: not a readable Parquet file of budgets: {error}") from None


def _check_type(path: Path, name: str, kind: pa.DataType) -> None:
    """Refuse a column of the wrong type. Whole numbers are accepted as ids; text is never accepted as a number."""
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    number = pa.types.is_integer(inner) or pa.types.is_floating(inner) or pa.types.is_decimal(inner)
    text = pa.types.is_string(inner) or pa.types.is_large_string(inner) or pa.types.is_string_view(inner)
    if name in NUMBERS and not number:
        raise BudgetError(f"{path}: column {name!r} must hold numbers, but holds {kind}")
    if name not in NUMBERS and not (text or pa.types.is_integer(inner)):
        raise BudgetError(f"{path}: column {name!r} must hold text or whole numbers, but holds {kind}")


def _header(path: Path) -> list[str]:
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        return next(_rows(file.readline().splitlines()), (1, []))[1]


def _read_csv(path: Path, kind: FileKind) -> pa.Table:
    names = _header(path)
    if any(_not_text(name) for name in names):
        raise BudgetError(f"{path}: this is not a text file in UTF-8; {_SAVE_AS_UTF8}")
    _check_header(path, names, kind)
    wanted = [name for name in names if name in (*kind.required, *kind.optional)]
    try:
        table = pa_csv.read_csv(
            path,
            parse_options=pa_csv.ParseOptions(ignore_empty_lines=False),
            convert_options=pa_csv.ConvertOptions(
                column_types=COLUMN_TYPES, strings_can_be_null=False, include_columns=wanted
            ),
        )
    except pa.ArrowInvalid as error:
        raise BudgetError(f"{path}: {_first_bad_line(path) or error}") from None
    # Messages name the line of a row, so rows and lines must correspond: no field may contain a line break.
    for name in ("record", "subject"):
        if name in table.column_names and _first_line_break(table.column(name)) is not None:
            raise BudgetError(f"{path}: {_first_bad_line(path)}")
    return table


def _write_csv(table: pa.Table, path: Path, file: IO[bytes]) -> None:
    texts = [table.column(name) for name in table.column_names if name not in NUMBERS]
    if any(_first_line_break(column) is not None for column in texts):
        raise BudgetError(
            f"{path}: an id contains a line break, which this CSV format does not allow; write .parquet instead"
        )
    plain = not any(pc.any(pc.match_substring_regex(column, '[",]')).as_py() for column in texts)
    style = "none" if plain else "needed"
    file.write((",".join(table.column_names) + "\n").encode())
    pa_csv.write_csv(table, file, pa_csv.WriteOptions(include_header=False, quoting_style=style))


def _first_line_break(texts: pa.ChunkedArray) -> int | None:
    row = int(pc.index(pc.match_substring_regex(texts, "[\r\n]"), pa.scalar(True)).as_py())
    return row if row >= 0 else None


def _first_bad_line(path: Path) -> str | None:
    """The first bad line, with its number. Slow: only called once something is known to be wrong."""
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        rows = _rows(file)
        _, names = next(rows)
        line = 1
        try:
            for line, fields in rows:
                problem = _problem(names, fields)
                if problem:
                    return f"line {line}: {problem}"
        except csv.Error as error:
            return f"after line {line}: {error}"
    return NO_RECORDS if line == 1 else None


def _rows(lines: Any) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV, each with the number of the line on which it begins."""
    reader = csv.reader(lines)
    first_line = 1
    for fields in reader:
        yield first_line, fields
        first_line = reader.line_num + 1


def _problem(names: list[str], fields: list[str]) -> str | None:
    if not fields:
        return "the line is empty; remove it"
    if any(_not_text(field) for field in fields):
        return f"not text in UTF-8; {_SAVE_AS_UTF8}"
    if any("\n" in field or "\r" in field for field in fields):
        return "a field continues on the next line (is a quote left open?); ids must not contain line breaks"
    if len(fields) != len(names):
        advice = "; write decimals with a point, and ids with commas in quotes" if len(fields) > len(names) else ""
        count = f"{len(fields)} field{'' if len(fields) == 1 else 's'}"
        return f"{count} where the header names {len(names)}: {','.join(fields)!r}{advice}"
    for name, text in zip(names, fields, strict=True):
        if name in NUMBERS and text and not _is_number(text):
            return f"{name} is {text!r}, which is not a number; write it like 0.5 or 1e-5"
    return None


def _not_text(field: str) -> bool:
    """Whether a field holds bytes that are not UTF-8 (read as lone surrogates) or a zero byte (a binary file)."""
    return any(character == "\0" or "\ud800" <= character <= "\udfff" for character in field)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isascii() and "_" not in text  # float() also accepts 1_000 and other scripts' digits; pyarrow does not
