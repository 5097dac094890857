"""Progress callbacks for work that takes a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with the name of the task, the amount done so far and the total amount."""


def silent(what: str, done: int, of: int) -> None:
    """Ignore the progress."""
