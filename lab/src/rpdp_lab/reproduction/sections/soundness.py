"""Section of the suite `soundness`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rpdp_lab.reproduction.sections.common import grouped, provenance, run, table
from rpdp_lab.reproduction.suite import Section, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rpdp_lab.reproduction.cell import CellResult

OURS, PUBLISHED = "certified, PLD (ours)", "SCF as published"
COLUMNS = [
    "method",
    "spent/allowed, mean (PLD)",
    "largest (PLD)",
    "largest (RDP)",
    "over budget (RDP)",
    "surely over",
    "Σq",
]


def section(findings: Sequence[CellResult]) -> Section:
    """A table for each setting and distribution."""
    lines = [
        "Each method's probabilities for 1,000 budgets, priced afterwards. *PLD* and *RDP* are upper bounds of the two "
        "accountants, RDP being the paper's own. *Surely over* counts records whose cost exceeds the budget by a lower "
        "bound as well: for them the promise is broken beyond dispute. A method planned with PLD may be above 1 by "
        "RDP: RDP is the looser bound, so that is no overdraft. Σq is the expected batch of a step in which everybody "
        "is active; under the accountant some records of SCF end early. *SCF as published* is the pseudocode, which "
        "has no stop; the text speaks of one.",
        "",
    ]
    for (setting, distribution), group in grouped(run(findings), "setting", "distribution").items():
        values = group[0].settings
        sigma = group[0].numbers["noise_multiplier"]
        told = (
            f"T = {values['rounds']}, τ = {values['local_steps']}, λ = {values['participation']:g}, "
            f"δ = {values['delta']:g}, σ = {sigma:.4g}"
        )
        lines += [f"**{setting}, {distribution}** ({told})", ""]
        lines += table(COLUMNS, [_row(finding) for finding in group])
    return Section([*lines, *provenance(findings)], verdicts=_verdicts(run(findings)))


def _row(finding: CellResult) -> list[str]:
    found = finding.numbers
    method = finding.settings["method"]
    return [
        f"**{method}**" if method == OURS else method,
        f"{found['pld']['mean']:.3f}",
        f"{found['pld']['largest']:.3f}",
        f"{found['rdp']['largest']:.3f}",
        f"{found['rdp']['over']:.0%}",
        f"{found['lower']['over']:.0%}",
        f"{found['expected_batch']:.1f}",
    ]


def _verdicts(findings: Sequence[CellResult]) -> list[Verdict]:
    ours = [finding.numbers for finding in findings if finding.settings["method"] == OURS]
    theirs = [finding.numbers for finding in findings if finding.settings["method"] == PUBLISHED]
    if not ours or not theirs:
        return []
    worst = max(theirs, key=_surely)
    largest = max(found["pld"]["largest"] for found in ours)
    return [
        Verdict(
            "soundness: records over budget, all settings",
            f"SCF without an early stop: up to {_surely(worst):.0%} of the records, by up to "
            f"{max(found['lower']['largest'] for found in theirs) - 1.0:.1%}, proven",
            f"none; largest share of a budget spent {largest:.4f}",
            largest <= 1.0,
        )
    ]


def _surely(found: Mapping[str, Any]) -> float:
    return float(found["lower"]["over"])
