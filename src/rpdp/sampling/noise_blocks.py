"""Gaussian noise in numbered blocks, which threads can make in any order with the same result.

A single long fill is sequential: no thread can start in the middle. Each block has its own range of the counter, under
a key that belongs to this release alone. So it does not matter which thread makes a block, or when.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from rpdp.errors import PrivacyRefusal
from rpdp.sampling.fork_guard import forks
from rpdp.sampling.gaussian import fill_normal
from rpdp.sampling.keystream import Keystream

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class GaussianBlocks:
    """The noise of one release, from `Randomness.gaussian_blocks`. Each block is handed out once.

    | case | what happens |
    |---|---|
    | a block is requested twice | `PrivacyRefusal`: the same noise on two sums reveals their difference |
    | the process forked in between | `PrivacyRefusal`: parent and child would use the same noise |
    | a block is never requested | nothing: its noise is never made |
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._process = forks.process()
        self._used: set[int] = set()
        self._lock = threading.Lock()

    def fill(self, number: int, out: NDArray[np.float64], std: float) -> None:
        """Overwrite the flat contiguous `out` with block `number`: independent N(0, std²)."""
        if self._process != forks.process():
            raise PrivacyRefusal(
                "the process forked during a release; start the release again in the process that is to make it"
            )
        # Mark the block as used before filling it: a failed fill must not hand out the same noise again.
        with self._lock:
            if number in self._used:
                raise PrivacyRefusal(f"noise block {number} was already used; noise is never used twice")
            self._used.add(number)
        fill_normal(out, std, Keystream(self._key, number))
