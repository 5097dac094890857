"""Tables from files and frames: CSV (also .csv.gz), Parquet, and whatever speaks the Arrow or the dataframe protocol.

Cells of a CSV are read as texts, so what a value means is decided by the schema and never guessed from other rows.
"""

from __future__ import annotations

import csv
import gzip
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from rpdp.errors import InputError

DATA_VARIABLE = "RPDP_DATA"
ENDINGS = (".csv", ".csv.gz", ".parquet")


def find_table(name: str, directory: str | Path) -> Path:
    """Return the path of a table: from `directory`, else below the directory that `RPDP_DATA` names."""
    own = Path(directory) / name
    if own.is_file():
        return own
    shared = os.environ.get(DATA_VARIABLE)
    if shared and (Path(shared) / name).is_file():
        return Path(shared) / name
    where = f" nor below {shared}" if shared else f"; if it lies in a data directory, set {DATA_VARIABLE} to that"
    raise InputError(f"{own}: there is no such table here{where}")


def read_table(source: Any) -> pa.Table:
    """Return a table from a file, an Arrow table, or a frame of pandas, polars or another library."""
    if isinstance(source, pa.Table):
        return source
    if isinstance(source, str | Path):
        return _read_file(Path(source))
    try:
        if hasattr(source, "__arrow_c_stream__"):
            return pa.table(source)
        if hasattr(source, "__dataframe__"):
            from pyarrow.interchange import from_dataframe

            return from_dataframe(source)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(f"the frame ({type(source).__name__}) cannot be read: {str(error).splitlines()[0]}") from None
    raise InputError(
        f"a table must be a file ({', '.join(ENDINGS)}), an Arrow table, or a frame of pandas or polars, not "
        f"{type(source).__name__}"
    )


def _read_file(path: Path) -> pa.Table:
    name = path.name.lower()
    if not name.endswith(ENDINGS):
        raise InputError(f"{path}: the name of a table must end in {', '.join(ENDINGS)}")
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    try:
        if path.stat().st_size == 0:
            raise InputError(f"{path}: the file is empty; its first line must name the columns")
        return pa_parquet.read_table(path) if name.endswith(".parquet") else _read_csv(path)
    except pa.ArrowException as error:
        raise InputError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None


def _read_csv(path: Path) -> pa.Table:
    names = _header(path)
    return pa_csv.read_csv(
        path,
        read_options=pa_csv.ReadOptions(column_names=names, skip_rows=1),
        parse_options=pa_csv.ParseOptions(newlines_in_values=True),
        convert_options=pa_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
        ),
    )


def _header(path: Path) -> list[str]:
    with gzip.open(path, "rb") if path.name.lower().endswith(".gz") else path.open("rb") as file:
        names = [name.strip() for name in next(csv.reader([file.readline().decode("utf-8-sig")]), [])]
    if len(names) == 1 and any(separator in names[0] for separator in ";\t|"):
        raise InputError(f"{path}: the header has one column, {names[0]!r}: separate fields by commas")
    if not all(names) or len(set(names)) != len(names):
        raise InputError(f"{path}: the first line must name every column, each once: {', '.join(map(repr, names))}")
    return names
