"""The HTML of an audit: the verdict, then what is promised beside what an attacker can prove."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpdp.audit.conformance import FALSE_ALARM
from rpdp.figures import BLUE, GREEN, GREY, ORANGE, PALE, VIOLET, Bars, Figure, Line, Marks, PlotAxis, RuleLine, cycle
from rpdp.planning.words import words_for
from rpdp.report.rendering import Alarm, Card, Column, Table, render, write_html

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from markupsafe import Markup

    from rpdp.audit.audit_result import AuditResult, GroupFinding
    from rpdp.audit.membership_inference import MembershipResult
    from rpdp.audit.risk_comparison import RiskComparison
    from rpdp.audit.run_audit import ModelAudit, RunAudit

_LEAST_P = 1e-30
"""Smaller p-values are drawn here."""


def write_page(path: Path, title: str, section: Markup) -> Path:
    """Write an audit as a page of its own. It tells how many records a silo has: for its owner only."""
    return write_html(path, "page.html.j2", title=title, sections=[section])


def canary_section(audit: RunAudit, heading: str = "") -> Markup:
    """The audit with canaries, for a page of its own or, with a heading, for a report."""
    cards = [bound_card(audit), tests_card(audit)]
    groups = _groups_table(audit)
    return render(
        "canary_audit.html.j2", audit=audit, heading=heading, cards=cards, groups=groups, false_alarm=FALSE_ALARM
    )


def _drawn(audit: RunAudit) -> list[tuple[AuditResult, str, int]]:
    """The parts, the sharpest first, with their names and colours."""
    parts = [(audit.alone, "alone", BLUE), (audit.beside, "beside records", ORANGE)]
    return parts if audit.served is None else [*parts, (audit.served, "served", VIOLET)]


def bound_card(audit: RunAudit) -> Card:
    """Promised ε and proven ε_L, side by side."""
    names = [f"{group.epsilon:g}" for group in audit.alone.groups]
    promised = [group.epsilon for group in audit.alone.groups]
    least = min([0.05, *(value / 4.0 for value in promised)])
    figure = Figure(PlotAxis("budget group ε", "names"), PlotAxis("ε", "log", limits=(least, 2.0 * max(promised))))
    figure.add(Bars(names, promised, "promised ε", PALE))
    if any(group.allowed > group.epsilon * 1.001 for group in audit.alone.groups):
        allowed = [group.allowed for group in audit.alone.groups]
        figure.add(Bars(names, allowed, "allowed given the rounds joined", GREY))
    for part, name, colour in _drawn(audit):
        figure.add(Bars(names, [group.bound.epsilon for group in part.groups], f"proven, {name}", colour))
    text = "A proven ε above the promised one would be a broken promise. No bar: nothing could be proven."
    return Card("bounds", "What is promised, and what an attacker can prove", text, figure)


def tests_card(audit: RunAudit) -> Card:
    """p-values of all conformance tests."""
    limit = FALSE_ALARM / len(audit.alone.tests)
    lowest = min([limit / 100.0, *(test.p_value for part in audit.parts for test in part.tests)])
    across = PlotAxis("p-value", "log", limits=(max(_LEAST_P, lowest) / 3.0, 2.0))
    figure = Figure(across, PlotAxis(kind="names"), height=22 * len(audit.alone.tests) + 20)
    for part, name, colour in _drawn(audit):
        shown = [max(_LEAST_P, test.p_value) for test in part.tests]
        figure.add(Marks(shown, [test.name for test in part.tests], name, colour, sizes=9.0))
    figure.add(RuleLine(limit, "upright", GREEN))
    text = "Left of the dashed line a test speaks against the build. An honest build scatters evenly between 0 and 1."
    return Card("tests", "Does the build do what its plan says?", text, figure)


def _groups_table(audit: RunAudit) -> Table:
    symbol = words_for(audit.alone.purpose).symbol
    columns = ["budget ε", symbol, "allowed", "proven alone", "expected", "proven beside", "right guesses alone"]
    columns += [] if audit.served is None else ["proven served"]
    rows = []
    for number, (alone, beside) in enumerate(zip(audit.alone.groups, audit.beside.groups, strict=True)):
        row = [
            f"{alone.epsilon:g}",
            f"{alone.probability:.4g}",
            f"{alone.allowed:.3g}",
            _proven(alone, f"{alone.bound.epsilon:.3g}"),
            f"{alone.bound.cut.expected:.3g}",
            _proven(beside, f"{beside.bound.epsilon:.3g}"),
            f"{alone.bound.right:,} of {alone.bound.guesses:,}",
        ]
        if audit.served is not None:
            row.append(_proven(audit.served.groups[number], audit.proven_served()[number]))
        rows.append(row)
    caption = "Expected: about what an honest build leads to. It grows with the number of canaries."
    return Table([Column(name) for name in columns], rows, caption)


def _proven(group: GroupFinding, text: str) -> str:
    return Alarm(text) if group.is_broken else text


def membership_section(audit: ModelAudit) -> Markup:
    """The model-only audit."""
    cards = [roc_card(audit.membership), advantage_card(audit.membership)]
    return render("model_audit.html.j2", audit=audit, cards=cards, comparisons=_risk_table(audit.others))


def roc_card(result: MembershipResult) -> Card:
    """ROC curves by budget."""
    figure = Figure(PlotAxis("false positive rate"), PlotAxis("true positive rate"), height=360)
    figure.add(Line([0, 1], [0, 1], "guessing", GREY, dashes="dotted"))
    for group, colour in zip(result.groups, cycle(len(result.groups)), strict=True):
        false, true = group.roc
        figure.add(Line(false, true, f"ε = {group.epsilon:g}", colour))
    text = f"Pooled over {result.runs} simulations of {result.records:,} real records, each in with probability 1/2."
    return Card("roc", "What an outsider can tell from the final model", text, figure)


def advantage_card(result: MembershipResult) -> Card:
    """Advantage of the attack beside what no attacker can exceed."""
    names = [f"{group.epsilon:g}" for group in result.groups]
    means = [group.advantage.mean for group in result.groups]
    reach = [group.advantage.high - group.advantage.mean for group in result.groups]
    figure = Figure(PlotAxis("budget ε", "names"), PlotAxis("advantage"), height=360)
    figure.add(
        Bars(names, [group.bound for group in result.groups], "bound δ(0)", PALE),
        Marks(
            names,
            means,
            "this attack",
            sizes=10.0,
            low=[mean - each for mean, each in zip(means, reach, strict=True)],
            high=[mean + each for mean, each in zip(means, reach, strict=True)],
        ),
    )
    text = (
        f"True minus false positive rate: mean over runs, {result.confidence:.0%} intervals. The bound holds for all."
    )
    return Card("advantage", "Advantage over guessing", text, figure)


def _risk_table(comparisons: Sequence[RiskComparison]) -> Table:
    columns = [
        Column("own ε"),
        Column("if σ", is_text=True),
        Column("σ"),
        Column("q"),
        Column("advantage"),
        Column("excess"),
    ]
    rows = [
        [
            f"{report.epsilon:g}",
            "is policy (this plan)" if scenario is report.own else f"followed the budgets, and {scenario.name}",
            f"{scenario.noise_multiplier:.4g}",
            f"{scenario.probability:.4g}",
            f"{scenario.advantage:.2%}",
            f"{scenario.excess:.3%}",
        ]
        for report in comparisons
        for scenario in (report.own, *report.scenarios)
    ]
    caption = (
        "The same (ε, δ) under other σ. Advantage: what no observer of everything can exceed. Excess: how much more "
        "often the best guess could be right than under this plan, for the prior belief where that is most."
    )
    return Table(columns, rows, caption)
