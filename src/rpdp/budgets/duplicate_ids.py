"""Finds repeated ids among millions in little memory: sort 64-bit hashes, then compare only ids with equal hashes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BYTES_AT_ONCE = 1 << 23
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def repeated_ids(ids: pa.ChunkedArray) -> list[str]:
    """The ids that occur more than once, in order of their first row."""
    hashes = np.concatenate([_hashes(chunk) for chunk in ids.chunks])
    ordered = np.sort(hashes)
    repeated_hashes = ordered[1:][ordered[1:] == ordered[:-1]]
    if repeated_hashes.size == 0:
        return []
    # Different ids may share a hash, so the texts themselves decide.
    suspects = ids.filter(pa.array(np.isin(hashes, repeated_hashes)))
    counts = pc.value_counts(suspects.combine_chunks())
    repeated = counts.filter(pc.greater(counts.field("counts"), 1))
    return [str(value) for value in repeated.field("values").to_pylist()]


def _hashes(chunk: pa.Array) -> NDArray[np.uint64]:
    """A 64-bit hash of every string, computed eight bytes at a time over strings of equal length."""
    _, offset_buffer, data_buffer = chunk.buffers()
    width = np.int64 if pa.types.is_large_string(chunk.type) else np.int32
    offsets = np.frombuffer(offset_buffer, width)[chunk.offset : chunk.offset + len(chunk) + 1]
    data = np.frombuffer(data_buffer or b"", np.uint8)
    lengths = np.diff(offsets)
    result = np.empty(len(chunk), np.uint64)
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        at_once = max(1, _BYTES_AT_ONCE // max(1, int(length)))
        for start in range(0, rows.size, at_once):
            part = rows[start : start + at_once]
            result[part] = _hash_rows(data, offsets[part].astype(np.int64), int(length))
    return result


def _hash_rows(data: NDArray[np.uint8], starts: NDArray[np.int64], length: int) -> NDArray[np.uint64]:
    words = -(-length // 8)
    padded = np.zeros((starts.size, 8 * words), np.uint8)
    padded[:, :length] = data[starts[:, None] + np.arange(length)]
    state = np.full(starts.size, length, np.uint64)
    for word in padded.view(np.uint64).T:
        state = (state ^ word) * _MULTIPLIER
        state ^= state >> np.uint64(29)
    return state
