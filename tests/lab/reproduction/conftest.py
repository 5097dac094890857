from __future__ import annotations

from typing import Any

from rpdp_lab.reproduction.cell import RESULTS_VERSION, Cell, CellResult, Profile
from rpdp_lab.reproduction.suites.cost_curves import over_orders

from tests.files import own_cache, real_data

__all__ = ["own_cache", "real_data", "result", "small_cell"]


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
    return Cell("toy", "part", name, over_orders, settings, profile)


def result(cell: Cell, skipped: str | None = None, **numbers: Any) -> CellResult:
    """A result that a cell might have."""
    return CellResult(
        cell.suite,
        cell.part,
        cell.name,
        cell.profile,
        cell.settings,
        numbers,
        skipped,
        seconds=1.0,
        device="cpu",
        results_version=RESULTS_VERSION,
        rpdp_version="0.0",
    )
