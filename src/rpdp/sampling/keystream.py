"""Random 64-bit words from a key: AES-256 in counter mode, and a pool that makes small requests cheap.

The keystream is this package's only source of random bits. Under one key no 16-byte block ever occurs twice, because
the cipher permutes the counter values. Without the key the bits cannot be distinguished from uniform ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

KEY_BYTES = 32
_ZEROS = bytes(1 << 18)  # encrypting zeros gives the bare keystream; 256 KiB stays inside the cache

_FIRST_POOL = 64
_LARGEST_POOL = 8192

Scalar = TypeVar("Scalar", bound=np.generic)


class Keystream:
    """The word sequence of one key. No word is ever handed out twice.

    Args:
        key: 32 secret bytes.
        part: The upper half of the counter. It gives 2⁶⁴ sequences of 2⁶⁵ words under one key, which never overlap.
    """

    def __init__(self, key: bytes, part: int = 0) -> None:
        self._encryptor = Cipher(AES(key), CTR(part.to_bytes(8) + bytes(8))).encryptor()

    def fill(self, words: NDArray[np.uint64]) -> None:
        """Overwrite a contiguous array with the next words."""
        target = words.view(np.uint8).data
        zeros = memoryview(_ZEROS)
        for start in range(0, len(target), len(zeros)):
            part = target[start : start + len(zeros)]
            self._encryptor.update_into(zeros[: len(part)], part)

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return the next words in a new array."""
        fresh = np.empty(count, dtype=np.uint64)
        self.fill(fresh)
        return fresh


class WordPool(Generic[Scalar]):
    """Values that are made in bulk in advance and handed out once each, so that a small request costs only a slice.

    The first batch is small and later ones grow, because a stream for a single step may draw only a few values. The
    sizes depend only on the requests so far, so equal requests give equal values.
    """

    def __init__(self, produce: Callable[[int], NDArray[Scalar]]) -> None:
        self._produce = produce
        self._values: NDArray[Scalar] | None = None
        self._next = 0
        self._size = _FIRST_POOL

    def take(self, count: int) -> NDArray[Scalar]:
        """Return `count` values that were never handed out before; a large request bypasses the pool."""
        if 4 * count > _LARGEST_POOL:
            return self._produce(count)
        if self._values is None or self._next + count > self._values.size:
            self._values = self._produce(max(self._size, count))
            self._next = 0
            self._size = min(4 * self._size, _LARGEST_POOL)
        self._next += count
        return self._values[self._next - count : self._next]
