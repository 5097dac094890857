"""Figure 2: cost over the Rényi order for several q."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpdp_lab.reproduction.cell import Cell, Profile
from rpdp_lab.reproduction.markdown import footnote, image, provenance, table
from rpdp_lab.reproduction.suite import PageSection, Suite, Verdict
from rpdp_lab.reproduction.suites.cost_curves import MINUTES, ORDERS, PROBABILITIES, orders_panel, over_orders
from rpdp_lab.reproduction.svg_figures import draw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rpdp_lab.reproduction.cell import CellResult

SETTINGS = {
    "rounds": 100,
    "local_steps": 1,
    "participation": 1.0,
    "noise_multiplier": 1.0,
    "delta": 1e-3,
    "orders": ORDERS,
    "q": PROBABILITIES,
}
"""T = 100 steps in one place: every step is a round that the silo joins for certain."""


def cells(profile: Profile) -> list[Cell]:
    """One cell holds all curves."""
    return [Cell("figure-2", "curves", "curves", over_orders, SETTINGS, profile)]


def section(results: Sequence[CellResult]) -> PageSection:
    """RDP and DP budget over α for several q."""
    (result,) = results
    panels = [
        orders_panel(result, "rdp", "RDP budget", "ρ(α)"),
        orders_panel(result, "epsilon", "DP budget", "ε(α)"),
    ]
    best = zip(result.settings["q"], result.numbers["best_order"], result.numbers["best_epsilon"], strict=True)
    return PageSection(
        [
            "T = 100 steps, σ = 1, δ = 1e-3, Lemma 1 conversion. The paper prints no numbers; what its text says of "
            "shape and ordering holds: a straight line at q = 1, a phase transition that comes earlier as q grows, one "
            "minimum each.",
            "",
            *image("figure-2.svg", "RDP and DP budget over the order for several q"),
            *table(
                ["q", "best order α*", "ε*"], [[f"{q:g}", f"{order:.3g}", f"{cost:.4g}"] for q, order, cost in best]
            ),
            *provenance(results),
        ],
        {"figure-2.svg": draw(panels, columns=2, note=footnote(results))},
        [_one_minimum(result)],
    )


def _one_minimum(result: CellResult) -> Verdict:
    """Whether every curve of ε falls, then rises, and ε* grows with q."""
    turns = max(
        sum((b - a) * (c - b) < 0 for a, b, c in zip(line, line[1:], line[2:], strict=False))
        for line in result.numbers["epsilon"]
    )
    best = result.numbers["best_epsilon"]
    holds = turns <= 1 and best == sorted(best)
    what = "figure 2: one minimum for each q, and a larger one for a larger q"
    return Verdict(what, "as described", "yes" if holds else f"up to {turns} turns", holds, better=False)


SUITE = Suite("figure-2", "Figure 2: cost over the Rényi order", cells, section, MINUTES)
