"""Section of the ablation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpdp_lab.reproduction.sections.common import DASH, grouped, mean, numbers, provenance, run, spread, table
from rpdp_lab.reproduction.suite import Section

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rpdp_lab.reproduction.cell import CellResult

BASE = "all of it"
NETWORKS = {
    "CNN from strokes": "the paper's CNN, tanh, started from strokes",
    "CNN": "the paper's CNN, ReLU",
}
"""By the second part of a federation's name."""

PARTITIONS = {"mnist-iid": "IID", "mnist-non-iid": "five classes a silo"}


def section(findings: Sequence[CellResult]) -> Section:
    """One row for each change, both partitions beside each other, the difference to all of it."""
    by_label: dict[str, dict[str, list[CellResult]]] = {}
    for finding in run(findings):
        place, _, network = finding.settings["federation"].partition(", ")
        label = finding.settings.get("label") or NETWORKS[network]
        by_label.setdefault(label, {}).setdefault(place, []).append(finding)
    base = {place: mean(numbers(by_label.get(BASE, {}).get(place, []), "accuracy")) for place in PARTITIONS}
    rows = []
    for label, places in by_label.items():
        row = [f"**{label}**" if label == BASE else label]
        for place in PARTITIONS:
            found = numbers(places.get(place, []), "accuracy")
            here, reference = mean(found), base[place]
            gap = DASH if here is None or reference is None or label == BASE else f"{here - reference:+.4f}"
            row += [spread(found), gap]
        rows.append(row)
    columns = ["change", *(part for name in PARTITIONS.values() for part in (name, "difference"))]
    seeds = {
        place: len({cell.settings["seed"] for cell in cells})
        for (place,), cells in grouped(run(findings), "federation").items()
    }
    return Section(
        [
            "MNIST, ThreeLevels (ε = 0.1 / 1 / 5 for 70 / 20 / 10 %), certified budgets, full size. *All of it*: "
            "a linear model on fixed features (a scattering transform in a basis made from 4,000 random pen "
            "strokes; no training data, see `rpdp_lab.features.strokes`), PLD accounting, at most 7 of 15 "
            "rounds, σ = 3, clip norm 0.25, rate 16 falling by 8 % a round, mean of the last 4 models. Each row "
            "changes what it names; a rate goes with its clip norm, and the networks have the rates of figure 8. IID "
            "differences below about 0.003 are within the spread over seeds, and for five classes a silo *all of it* "
            "is not the best: it was chosen for both.",
            "",
            *table(columns, rows),
            "Features are the lever, a good start is the next: they begin where a network would have to spend its "
            "budget to arrive. Weights by public precision were not tried: silos of one declared size have equal ones.",
            "",
            f"*Seeds: {', '.join(f'{place} {count}' for place, count in seeds.items())}.*",
            "",
            *provenance(findings),
        ]
    )
