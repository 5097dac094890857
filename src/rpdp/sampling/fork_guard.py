"""Tells a forked process from its parent: randomness that both go on using would hand out the same noise twice."""

from __future__ import annotations

import os
import threading


class _Forks:
    """By process id, and by counting the forks that Python sees."""

    def __init__(self) -> None:
        self._count = 0
        self.restart = threading.Lock()
        if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
            os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        self._count += 1
        self.restart = threading.Lock()

    def process(self) -> tuple[int, int]:
        """A value that differs between a process and its forks."""
        return os.getpid(), self._count


forks = _Forks()
