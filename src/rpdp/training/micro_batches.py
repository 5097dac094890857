"""Large draws in pieces that one record more or less cannot shift.

Sums of float32 numbers depend on what is summed together. If a draw were cut at every thousandth drawn record, one more
would shift all pieces behind it, and the rounding of thousands of other records would change with it: measured, by up
to 5e-4 L at 36 pieces of gradients that point the same way, beyond the slack of 1e-4 L that clipping leaves for
rounding (privacy.md, rule 15). So pieces follow the places of records in the data: the numbers 0 … 2ᵏ − 1 are halved
until no part holds more drawn records than a piece may. A record is in one piece only. With it that piece may be halved
once more, every other piece is as it was, and pieces are added up in float64.

The places are those in the silo's data; a record that is withdrawn or was never there leaves its place empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

LARGEST_PIECE = 512
"""So many records are summed in float32 at most. One record more changes the rounding of the others in a piece of this
size by up to 5e-5 L (measured, gradients that point the same way), half of the slack; it grows with the size."""


def pieces(drawn: NDArray[np.int64], most: int) -> Iterator[NDArray[np.int64]]:
    """The drawn positions (rising) in pieces of at most `most`, in their order.

    Each piece is what was drawn of a range a·2ᵇ … (a + 1)·2ᵇ − 1, the largest such ranges that fit.

    >>> [part.tolist() for part in pieces(np.array([0, 1, 5, 8, 9, 10]), 2)]
    [[0, 1], [5], [8, 9], [10]]
    >>> [part.tolist() for part in pieces(np.array([0, 1, 5, 7, 8, 9, 10]), 2)]
    [[0, 1], [5, 7], [8, 9], [10]]
    """
    if len(drawn):
        yield from _halved(drawn, int(drawn[-1]).bit_length(), most)


def _halved(drawn: NDArray[np.int64], bits: int, most: int) -> Iterator[NDArray[np.int64]]:
    """As `pieces`, for positions that differ in their last `bits` binary digits only."""
    if len(drawn) <= most or bits == 0:
        if len(drawn):
            yield drawn
        return
    upper = (int(drawn[0]) >> bits << bits) + (1 << (bits - 1))
    middle = int(np.searchsorted(drawn, upper))
    yield from _halved(drawn[:middle], bits - 1, most)
    yield from _halved(drawn[middle:], bits - 1, most)
