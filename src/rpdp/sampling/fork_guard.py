"""Distinguishes a forked process from its parent, so that the two never share a random stream.

If both went on using the same stream, the same noise would be used twice.
"""

from __future__ import annotations

import os
import threading


class _Forks:
    """Identifies a process by its id and by the number of forks that Python saw, since ids are reused."""

    def __init__(self) -> None:
        self._count = 0
        self.restart = threading.Lock()
        if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
            os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        self._count += 1
        self.restart = threading.Lock()  # another thread of the parent may have held the old lock during the fork

    def process(self) -> tuple[int, int]:
        """A value that differs between a process and its forks."""
        return os.getpid(), self._count


forks = _Forks()
