"""Figures 2, 5 and 6: curves of cost. Analytical, the same in every profile, seconds each."""

from __future__ import annotations

import numpy as np

from rpdp_lab.reproduction.cell import Cell, Profile
from rpdp_lab.reproduction.sections import curves as sections
from rpdp_lab.reproduction.suite import Suite

ORDERS = [float(f"{1.0 + step:.4g}") for step in np.geomspace(0.05, 255.0, 60)]
PROBABILITIES = [0.001, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0]
AXIS = [float(f"{q:.3g}") for q in np.concatenate([np.geomspace(0.001, 0.02, 8)[:-1], np.linspace(0.02, 1.0, 50)])]
BUDGETS = [float(f"{epsilon:.3g}") for epsilon in np.geomspace(0.1, 10.0, 61)]
SIGMAS = [0.8, 1.0, 1.5, 2.0, 3.0, 5.0]
FIGURE_5 = {"rounds": 20, "local_steps": 5, "participation": 0.5, "noise_multiplier": 1.0, "delta": 1e-3}


def figure_2(profile: Profile) -> list[Cell]:
    """T = 100 steps in one place: every step a round that is joined for certain."""
    settings = {
        "rounds": 100,
        "local_steps": 1,
        "participation": 1.0,
        "noise_multiplier": 1.0,
        "delta": 1e-3,
        "orders": ORDERS,
        "q": PROBABILITIES,
    }
    return [Cell("figure-2", "curves", "curves", "curves:over_orders", settings, profile)]


def figure_5(profile: Profile) -> list[Cell]:
    """The same for a federation, and the fit of its minima."""
    return [
        Cell(
            "figure-5",
            "orders",
            "orders",
            "curves:over_orders",
            {**FIGURE_5, "orders": ORDERS, "q": PROBABILITIES},
            profile,
        ),
        Cell(
            "figure-5", "fit", "fit", "curves:over_probabilities", {**FIGURE_5, "q": AXIS, "budgets": BUDGETS}, profile
        ),
    ]


def figure_6(profile: Profile) -> list[Cell]:
    """ε*(q) for several σ; the caption names no λ, so it is that of figure 5."""
    return [
        Cell(
            "figure-6",
            "sigmas",
            f"sigma-{sigma:g}",
            "curves:over_probabilities",
            {**FIGURE_5, "noise_multiplier": sigma, "delta": 1e-5, "q": AXIS, "budgets": BUDGETS},
            profile,
        )
        for sigma in SIGMAS
    ]


SECONDS: dict[Profile, float] = {"quick": 0.2, "cpu": 0.2, "full": 0.2}

FIGURE_2 = Suite("figure-2", "Figure 2: cost over the Rényi order", figure_2, sections.figure_2, SECONDS)
FIGURE_5_SUITE = Suite(
    "figure-5", "Figure 5: cost of a federation, and the curve fit", figure_5, sections.figure_5, SECONDS
)
FIGURE_6 = Suite("figure-6", "Figure 6: cost over q for several σ", figure_6, sections.figure_6, SECONDS)
