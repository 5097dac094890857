"""`soundness` (ours): what each method really spends, by both accountants. Analytical, the same in every profile."""

from __future__ import annotations

from typing import Any

from rpdp_lab.reproduction.cell import Cell, Profile
from rpdp_lab.reproduction.sections import soundness as sections
from rpdp_lab.reproduction.suite import Suite

METHODS = (
    "certified, PLD (ours)",
    "certified, RDP",
    "binary search, RDP",
    "SCF as published",
    "SCF under the accountant",
    "largest q by the paper's Type I",
    "Minimum",
    "Dropout",
    "uniform at the mean",
)
"""Those of `rpdp_lab.reproduction.work.soundness`, which need not be loaded to list cells; a test compares the two."""

DISTRIBUTIONS = ("ThreeLevels", "BoundedPareto", "BoundedMixGauss")
RECORDS = 1000
SLOW = "binary search, RDP"
"""A search per different budget, minutes for 1,000 of them; table 3 has its time. It promises what certified does."""

SETTINGS: dict[str, dict[str, Any]] = {
    "heart": {"rounds": 15, "local_steps": 10, "participation": 1.0, "delta": 1e-3, "max_epsilon": 10.0},
    "mnist": {"rounds": 15, "local_steps": 50, "participation": 0.5, "delta": 1e-4, "max_epsilon": 10.0},
    "figure-5": {"rounds": 20, "local_steps": 5, "participation": 0.5, "delta": 1e-3, "noise_multiplier": 1.0},
}


def cells(profile: Profile) -> list[Cell]:
    """Every method at every setting, on 1,000 budgets of each distribution (ThreeLevels only at that of figure 5)."""
    return [
        Cell(
            "soundness",
            setting,
            f"{setting}.{distribution}.{number}",
            "soundness:spent",
            {
                "noise_multiplier": None,
                **values,
                "setting": setting,
                "distribution": distribution,
                "method": method,
                "records": RECORDS,
                "seed": 0,
            },
            profile,
        )
        for setting, values in SETTINGS.items()
        for distribution in (DISTRIBUTIONS if setting != "figure-5" else DISTRIBUTIONS[:1])
        for number, method in enumerate(METHODS)
        if distribution == "ThreeLevels" or method != SLOW
    ]


SUITE = Suite(
    "soundness",
    "Soundness: what each method really spends (ours)",
    cells,
    sections.section,
    {"quick": 0.5, "cpu": 0.5, "full": 0.5},
)
