"""The records of a silo in the order of its table, looked up by their hashes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]
    Positions = NDArray[np.int64]

ABSENT = -1


def sorted_order(hashes: Hashes) -> Positions:
    """Return the order that sorts hashes: by their first words alone, unless two of those are equal, which is rare."""
    order = np.argsort(hashes[:, 0])
    high = hashes[order, 0]
    return np.lexsort((hashes[:, 1], hashes[:, 0])) if (high[1:] == high[:-1]).any() else order


class Roster:
    """An index from hashes to positions. It uses no file, so a forked worker may use it.

    Args:
        hashes: One row of two words for each record, in the order that positions refer to.
        ids: The ids themselves, to recognise the same table.
    """

    def __init__(self, hashes: Hashes, ids: pa.ChunkedArray | None = None) -> None:
        self.ids = ids
        order = sorted_order(hashes)
        self._order = order.astype(np.int32)
        self._high = hashes[order, 0]
        self._low = hashes[order, 1]

    def __len__(self) -> int:
        return len(self._order)

    def is_of(self, ids: pa.ChunkedArray) -> bool:
        """Whether this is the roster of these ids in this order."""
        return self.ids is ids or (self.ids is not None and self.ids.equals(ids))

    def find(self, hashes: Hashes) -> Positions:
        """Return the position of each hash, or −1."""
        found = np.full(len(hashes), ABSENT, dtype=np.int64)
        if len(self) == 0 or len(hashes) == 0:
            return found
        at = np.searchsorted(self._high, hashes[:, 0])
        searching = np.flatnonzero(at < len(self))
        while searching.size:  # more than once only if two hashes share their first 64 bits
            place = at[searching]
            same = self._high[place] == hashes[searching, 0]
            hit = same & (self._low[place] == hashes[searching, 1])
            found[searching[hit]] = self._order[place[hit]]
            searching = searching[same & ~hit]
            at[searching] += 1
            searching = searching[at[searching] < len(self)]
        return found
