"""Figure 6: cost over q for several σ, and the curve fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpdp_lab.reproduction.cell import Cell, Profile
from rpdp_lab.reproduction.markdown import footnote, image, provenance, table
from rpdp_lab.reproduction.suite import PageSection, Suite, Verdict
from rpdp_lab.reproduction.suites.cost_curves import FIT, MINUTES, over_probabilities, share_above_one
from rpdp_lab.reproduction.svg_figures import Panel, Series, draw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rpdp_lab.reproduction.cell import CellResult

SIGMAS = [0.8, 1.0, 1.5, 2.0, 3.0, 5.0]


def cells(profile: Profile) -> list[Cell]:
    """One cell per σ. The caption names no λ, so it is that of figure 5."""
    return [
        Cell(
            "figure-6",
            "sigmas",
            f"sigma-{sigma:g}",
            over_probabilities,
            {**FIT, "noise_multiplier": sigma, "delta": 1e-5},
            profile,
        )
        for sigma in SIGMAS
    ]


def section(results: Sequence[CellResult]) -> PageSection:
    """ε*(q) for several σ, with the fits."""
    series, rows = [], []
    for colour, result in enumerate(results):
        sigma, numbers = result.settings["noise_multiplier"], result.numbers
        series.append(Series(f"σ = {sigma:g}", result.settings["q"], numbers["epsilon"], colour, "dots"))
        series.append(Series("", result.settings["q"], numbers["fitted"], colour))
        rows.append(
            (sigma, numbers["fit"]["r_squared"], max(numbers["violation"]), share_above_one(numbers["violation"]))
        )
    _, r_squared, most, over = zip(*rows, strict=True)
    panel = Panel("ε*(q) and its fit, for several σ", "q", "ε", series, log_y=True)
    return PageSection(
        [
            "T = 20, τ = 5, δ = 1e-5 (λ is not in the caption; 0.5 as in figure 5). Dots are costs, lines fits (a fit "
            "that is negative at small q breaks off). The ordering over σ is reproduced, and so is R² above 0.999; "
            f"yet by RDP the fit overspends up to {max(over):.0%} of the budgets, by up to {max(most):.1f} "
            "times, which the text calls insignificant.",
            "",
            *image("figure-6.svg", "cost over q for several noise multipliers"),
            *table(
                ["σ", "R² of the fit", "largest cost(F(ε))/ε, by RDP", "budgets in [0.1, 10] overspent, by RDP"],
                [[f"{sigma:g}", f"{fit:.5f}", f"{worst:.2f}", f"{share:.0%}"] for sigma, fit, worst, share in rows],
            ),
            *provenance(results),
        ],
        {"figure-6.svg": draw([panel], columns=1, note=footnote(results), width=520, height=320)},
        [
            Verdict(
                "figure 6: smallest R² over σ",
                "above 0.999",
                f"{min(r_squared):.4f}",
                min(r_squared) > 0.999,
                better=False,
            )
        ],
    )


SUITE = Suite("figure-6", "Figure 6: cost over q for several σ", cells, section, MINUTES)
