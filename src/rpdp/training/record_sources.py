"""Records from what people have at hand: tensors, arrays, data frames, torch data sets, Hugging Face data sets.

Conversion is by type alone. No column is scaled, filled in or dropped by looking at its values: what is computed from
private values outside the mechanism would not be covered (privacy.md, rule 13). `rpdp.tables` turns raw tables into
numbers by a declared schema, which is covered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset

from rpdp.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

Columns = Mapping[str, Any]
"""The columns of a frame, by name: arrays, or lists of equal rows."""


def as_tensor(name: str, values: Any, *, is_target: bool = False) -> Tensor:
    """Return numbers as a tensor: float32 for real numbers, int64 for whole ones. A tensor stays as it is.

    Truth values become float32 as inputs and int64 as targets. Anything that is not a number is refused.
    """
    if isinstance(values, torch.Tensor):
        return values
    array = np.asarray(values)
    if array.dtype == np.bool_:
        return torch.from_numpy(array.astype(np.int64 if is_target else np.float32))
    if np.issubdtype(array.dtype, np.floating):
        return torch.from_numpy(array.astype(np.float32))
    if np.issubdtype(array.dtype, np.integer):
        return torch.from_numpy(array.astype(np.int64))
    raise InputError(
        f"{name} has values of type {array.dtype}, which is not a number; encode it first, or declare the column in a "
        "table schema, which does it for you"
    )


def as_labels(name: str, values: Any) -> NDArray[Any]:
    """Return ids as text, one for each record."""
    listed = values.tolist() if hasattr(values, "tolist") else list(values)
    wrong = next((value for value in listed if value is None or isinstance(value, float)), None)
    if wrong is not None or None in listed:
        raise InputError(f"{name} has {wrong!r}, which is no id; give text or whole numbers, one for each record")
    return np.array([str(value) for value in listed], dtype=np.str_)


def frame_columns(source: Any) -> Columns | None:
    """Return the columns of a frame (pandas, polars, Arrow, Hugging Face, or a mapping), or None if it is none."""
    if hasattr(source, "__arrow_c_stream__"):
        import pyarrow as pa

        table = pa.table(source)
        return {name: table.column(name).to_numpy() for name in table.column_names}
    if hasattr(source, "with_format") and hasattr(source, "column_names"):
        columns: Columns = source.with_format("numpy")[:]
        return columns
    return source if isinstance(source, Mapping) else None


def from_frame(
    columns: Columns, target: str, wanted: Sequence[str] | None, used: Sequence[str]
) -> tuple[Tensor, Tensor]:
    """Return inputs and targets from columns: all but the target and the used ones, or those that are named.

    One column whose rows are arrays stays as it is; several columns become one row of numbers per record.
    """
    names = [name for name in columns if name not in (target, *used)] if wanted is None else list(wanted)
    unknown = [name for name in (target, *names, *used) if name not in columns]
    if unknown:
        raise InputError(f"there is no column {unknown[0]!r}; the columns are {', '.join(map(str, columns))}")
    if not names:
        raise InputError("no column is left as input; name the input columns with columns=[...]")
    parts = [as_tensor(f"column {name!r}", _stacked(columns[name])) for name in names]
    targets = as_tensor(f"column {target!r}", _stacked(columns[target]), is_target=True)
    if len(parts) == 1 and parts[0].dim() > 1:
        return parts[0], targets
    wide = next((name for name, part in zip(names, parts, strict=True) if part.dim() > 1), None)
    if wide is not None:
        raise InputError(f"column {wide!r} holds arrays and cannot stand beside others; name one such column alone")
    return torch.stack([part.to(torch.float32) for part in parts], dim=1), targets


def from_dataset(dataset: Dataset[Any]) -> tuple[tuple[Tensor, ...], Tensor]:
    """Return inputs and targets of a torch data set of (input, …, target). It is read once, into memory."""
    in_order = dataset if isinstance(dataset, IterableDataset) else map(dataset.__getitem__, range(len(dataset)))  # type: ignore[arg-type]
    items = list(in_order)
    if not items:
        raise InputError("the data set is empty: it needs at least one record")
    if not isinstance(items[0], tuple | list) or len(items[0]) < 2:
        raise InputError(
            f"an item of the data set is a {type(items[0]).__name__}; it must be (input, target), or (input, input, …, "
            "target)"
        )
    *inputs, targets = [_joined(place, part) for place, part in enumerate(zip(*items, strict=True))]
    return tuple(inputs), targets


def _joined(place: int, values: Sequence[Any]) -> Tensor:
    """One part of all items, as one tensor."""
    try:
        if isinstance(values[0], torch.Tensor):
            return torch.stack(list(values))
        return as_tensor(f"part {place} of the items", np.stack([np.asarray(value) for value in values]))
    except (RuntimeError, ValueError):
        raise InputError(
            f"part {place} of the items has another shape from item to item; bring all records to one shape first"
        ) from None


def _stacked(column: Any) -> Any:
    """A column whose rows are lists or arrays of equal length becomes one array."""
    array = column if isinstance(column, torch.Tensor) else np.asarray(column)
    if isinstance(array, np.ndarray) and array.dtype == np.object_ and len(array):
        try:
            return np.stack([np.asarray(row) for row in array])
        except ValueError:
            return array
    return array
