from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where there is such a place: syncs cost nothing, and a killed process loses nothing."""
    place = Path("/dev/shm")  # noqa: S108
    if not place.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=place) as made:
        yield Path(made)
