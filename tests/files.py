"""Fixtures about files: real data, or a skip that says why; a cache directory of its own for every test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def real_data() -> Path:
    """The directory with the real data files."""
    directory = os.environ.get("RPDP_DATA")
    if not directory:
        pytest.skip("RPDP_DATA is not set: it must name the directory with the real data files")
    return Path(directory)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache directory, so that no test reads or fills the user's."""
    monkeypatch.setenv("RPDP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
