"""A disk cache for arrays that take minutes to compute: one process computes, all read."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rpdp_lab.data.data_files import cache_directory

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


def cached_array(name: str, compute: Callable[[], NDArray[np.float32]]) -> NDArray[np.float32]:
    """The array of that name, from the cache or computed into it. Other processes that need it wait.

    Change the name whenever the content would change. Readers see a whole file or none.
    """
    path = cache_directory() / f"{name}.npy"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with Path(f"{path}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # released when the file is closed or its process dies
            if not path.is_file():
                partial = Path(f"{path}.partial")
                with partial.open("wb") as file:
                    np.save(file, compute())
                partial.replace(path)
    found: NDArray[np.float32] = np.load(path)
    return found
