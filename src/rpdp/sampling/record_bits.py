"""Random bits that belong to a record: a pure function of a key, the record's position and a place.

A stream handed out in order would give a record other bits as soon as another record is added before it, and other bits
again when a batch is cut into other pieces. Here the bits of a record are AES-256 of numbered blocks, and the number
contains the position of the record in the data. Blocks of different records, places and counters are different, so
under one key no block is encrypted for two purposes. Without the key nobody can tell the bits from uniform ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB

if TYPE_CHECKING:
    from numpy.typing import NDArray

WORD_BITS = 16
_WORDS_PER_BLOCK = 8
_LARGEST_COUNTER = 2**32


class RecordBits:
    """Words of 16 bits for some records, under the key of one step.

    Args:
        key: 32 bytes that are used for this step alone.
        positions: Position of each record in the data.
    """

    def __init__(self, key: bytes, positions: NDArray[np.int64]) -> None:
        # ECB of blocks that are all different is what counter mode does, with counters that we choose.
        self._encryptor = Cipher(AES(key), ECB()).encryptor()  # noqa: S305
        self._positions = positions

    def words(self, place: int, count: int) -> NDArray[np.uint16]:
        """`count` words for every record, of shape (records, count). The same place gives the same words again.

        >>> both = RecordBits(bytes(32), np.array([3, 5])).words(0, 4)
        >>> bool((both[1] == RecordBits(bytes(32), np.array([5])).words(0, 4)[0]).all())
        True
        """
        blocks = -(-count // _WORDS_PER_BLOCK)
        largest = max(place, blocks)
        assert largest < _LARGEST_COUNTER, (place, count)  # else two blocks would have one number
        numbers = np.empty((len(self._positions), blocks, 2), dtype=np.uint64)
        numbers[:, :, 0] = self._positions[:, None]
        numbers[:, :, 1] = np.arange(blocks, dtype=np.uint64) + np.uint64(place * _LARGEST_COUNTER)
        encrypted = np.frombuffer(self._encryptor.update(numbers.data.cast("B")), dtype="<u2")
        return encrypted.reshape(len(self._positions), blocks * _WORDS_PER_BLOCK)[:, :count]
