"""Poisson sampling with one comparison per record: exact, and fastest for up to about 100,000 records.

Record j is drawn if a uniform 64-bit word is below q_j·2⁶⁴. For q_j ≥ 2⁻¹² that product is a whole number and
the probability is exactly q_j. For smaller q_j it is rounded down, by less than 2⁻⁶⁴.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.sampling.randomness import Randomness

_LARGEST_WORD = np.uint64(2**64 - 1)


class BernoulliDraws:
    """Draws from the given records by comparison; records that can never be drawn take no time."""

    def __init__(self, probabilities: NDArray[np.float64], records: NDArray[np.int64]) -> None:
        words = words_below(probabilities[records])
        possible = words > 0
        self._records = records[possible]
        # Compare with "at most the last word" instead of "below the number of words": q = 1 needs all 2⁶⁴ words, a
        # number that does not fit in 64 bits.
        self._last_word = words[possible] - np.uint64(1)
        self._last_word[probabilities[self._records] == 1.0] = _LARGEST_WORD
        self._is_identity = self._records.size == probabilities.size

    def draw(self, randomness: Randomness) -> NDArray[np.int64]:
        """Return the sorted indices of the drawn records."""
        drawn = np.flatnonzero(randomness.words(self._records.size) <= self._last_word)
        return drawn if self._is_identity else self._records[drawn]


def words_below(fraction: NDArray[np.float64]) -> NDArray[np.uint64]:
    """⌊fraction·2⁶⁴⌋, the number of 64-bit words below the fraction; a fraction of 1 counts as the float just below."""
    return (np.minimum(fraction, 1.0 - 2.0**-53) * 2.0**64).astype(np.uint64)
