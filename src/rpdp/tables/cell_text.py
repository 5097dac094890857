"""Cells as texts: every value of a table has one text, whether it comes from CSV, Parquet or a frame.

CSV holds texts only, and a frame may hold the same code as 1, 1.0 or "1"; levels are compared as these texts.
"""

from __future__ import annotations

import math
from datetime import date, datetime, time
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray


def cell_text(value: object) -> str:
    """Return the text of a value; an absent one, or NaN, is an empty text.

    >>> [cell_text(value) for value in (1, 1.0, " yes ", None, float("nan"), True)]
    ['1', '1', 'yes', '', '', 'true']
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if math.isnan(value):
            return ""
        return str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, datetime):
        return value.date().isoformat() if value.time() == time() else value.isoformat()
    if isinstance(value, date):
        return value.isoformat()
    return str(value).strip()


def distinct_texts(column: pa.ChunkedArray) -> tuple[list[str], NDArray[np.int64]]:
    """Return the texts of the distinct values of a column, and for each row the position of its own."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    texts = [cell_text(value) for value in encoded.dictionary.to_pylist()]
    return texts, encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def column_texts(column: pa.ChunkedArray) -> list[str]:
    """Return the text of every row."""
    texts, rows = distinct_texts(column)
    return [texts[row] for row in rows]
