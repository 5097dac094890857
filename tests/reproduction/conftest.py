from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rpdp.reproduction.cell import Cell, Profile


@pytest.fixture
def real_data() -> Path:
    """The directory with the real data files."""
    directory = os.environ.get("RPDP_DATA")
    if not directory:
        pytest.skip("RPDP_DATA is not set: it must name the directory with the real data files")
    return Path(directory)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache directory, so that no test reads or fills the user's."""
    monkeypatch.setenv("RPDP_CACHE", str(tmp_path / "cache"))


def small_cell(name: str = "a", profile: Profile = "quick", **changes: Any) -> Cell:
    """A cell that takes a moment."""
    settings = {
        "rounds": 10,
        "local_steps": 1,
        "participation": 1.0,
        "noise_multiplier": 2.0,
        "delta": 1e-3,
        "orders": [2.0, 4.0, 8.0],
        "q": [0.1, 1.0],
        **changes,
    }
    return Cell("toy", "part", name, "curves:over_orders", settings, profile)
