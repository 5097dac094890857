from __future__ import annotations

from typing import Any

from rpdp_lab.reproduction.cell import Cell, CellResult, Profile

from tests.files import own_cache, real_data

__all__ = ["finding", "own_cache", "real_data", "small_cell"]


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


def finding(cell: Cell, skipped: str | None = None, **numbers: Any) -> CellResult:
    """What a cell might have found."""
    return CellResult(
        cell.suite,
        cell.part,
        cell.name,
        cell.profile,
        cell.settings,
        numbers,
        skipped,
        seconds=1.0,
        key="k",
        code="c",
        device="cpu",
    )
