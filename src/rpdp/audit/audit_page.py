"""The page of an audit: the verdict, then what is promised beside what can be proven; one file that opens offline."""

from __future__ import annotations

from math import log10
from pathlib import Path
from typing import TYPE_CHECKING

from rpdp.audit.conformance import FALSE_ALARM
from rpdp.report.look import BLUE, GREEN, GREY, LOG, ORANGE, blank, cycle, in_report
from rpdp.report.page import Card, Column, banner, cards, definitions, heading, page, paragraph, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rpdp.audit.audit_result import AuditResult
    from rpdp.audit.membership_inference import MembershipResult
    from rpdp.audit.other_budgets import OthersReport
    from rpdp.audit.run_audit import ModelAudit, RunAudit

VIOLET = cycle(4)[-1]

_LEAST_P = 1e-30
"""Smaller p-values are drawn here."""


def write_page(path: Path, title: str, sections: Sequence[str]) -> Path:
    """A page of its own. It tells how many records a silo has: for its owner."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(page(title, [f"<header>{heading(title, 1)}</header>", *sections]), encoding="utf-8")
    return path


def canary_section(audit: RunAudit) -> list[str]:
    """The audit with canaries, as parts of a page or of a report."""
    alone = audit.alone
    return [
        banner("Passed." if audit.passed else "NOT PASSED.", "info" if audit.passed else "warn"),
        *map(paragraph, audit.verdict()),
        cards([bound_card(audit), tests_card(audit)]),
        heading("Budget groups"),
        _groups_table(audit),
        heading("How it was done"),
        definitions(
            [
                ("What", _WHAT if audit.served is None else _WHAT_SERVED),
                ("Attacker", _attacker(audit)),
                ("ε_L", f"Lower bounds on ε that hold all together with confidence {100 * audit.confidence:.4g} %."),
                (
                    "Conformance",
                    f"Of an honest build it is denied with probability at most {FALSE_ALARM:g} in each part.",
                ),
                ("Rounds", _rounds(audit)),
                ("Mechanism", f"σ = {alone.noise_multiplier:.6g}, δ = {alone.delta:g}, method {audit.method}."),
                ("Kernel", _kernels(audit)),
                ("Plan", _plans(audit)),
            ]
        ),
    ]


_WHAT = "A simulation with made-up records, canaries, through the silo's own code. No ledger is touched."
_WHAT_SERVED = (
    "Made-up records, canaries, through the silo's own code. Beside records and alone it is a simulation: no ledger is "
    "touched. Served it is none: an agent behind its socket, secure randomness, and a production ledger of its own, of "
    "canaries alone, which was removed afterwards. No account of a real record changed."
)
_ATTACKERS = {
    "steps": "Sees the release of every local step, the strongest there is.",
    "rounds": "Sees the updates that leave the silo.",
}


def _attacker(audit: RunAudit) -> str:
    served = "" if audit.served is None else f" Served: {_ATTACKERS[audit.served.view].lower()}"
    return _ATTACKERS[audit.alone.view] + served


def _rounds(audit: RunAudit) -> str:
    def told(part: AuditResult) -> str:
        return f"{part.joined} of {part.rounds} joined, {part.observations:,} observations of each canary."

    return told(audit.alone) + ("" if audit.served is None else f" Served: {told(audit.served)}")


def _kernels(audit: RunAudit) -> str:
    served = "" if audit.served is None else f", {audit.served.kernel} served"
    return f"{audit.beside.kernel} beside the records, {audit.alone.kernel} alone{served}."


def _plans(audit: RunAudit) -> str:
    *first, last = (part.plan for part in audit.parts)
    unseeded = "" if audit.served is None else ", served none"
    return f"fingerprints {', '.join(first)} and {last}; seed {audit.alone.seed}{unseeded}."


def _drawn(audit: RunAudit) -> list[tuple[AuditResult, str, str]]:
    """The parts, the sharpest first, with their names and colours."""
    parts = [(audit.alone, "alone", BLUE), (audit.beside, "beside records", ORANGE)]
    return parts if audit.served is None else [*parts, (audit.served, "served", VIOLET)]


def bound_card(audit: RunAudit) -> Card:
    """Promised ε and proven ε_L, side by side."""
    names = [f"{group.epsilon:g}" for group in audit.alone.groups]
    figure = blank()
    promised = [group.epsilon for group in audit.alone.groups]
    figure.add_bar(x=names, y=promised, name="promised ε", marker={"color": "#ccd3dc"})
    if any(group.allowed > group.epsilon * 1.001 for group in audit.alone.groups):
        allowed = [group.allowed for group in audit.alone.groups]
        figure.add_bar(x=names, y=allowed, name="allowed given the rounds joined", marker={"color": GREY})
    for part, name, colour in _drawn(audit):
        proven = [group.bound.epsilon for group in part.groups]
        figure.add_bar(x=names, y=proven, name=f"proven, {name}", marker={"color": colour})
    figure.update_xaxes(type="category")
    figure.update_layout(barmode="group")
    in_report(figure, x="budget group ε", y="ε")
    least = min([0.05, *(value / 4.0 for value in promised)])
    figure.update_yaxes(**{**LOG, "range": [log10(least), log10(2.0 * max(promised))]})
    text = "A proven ε above the promised one would be a broken promise. No bar: nothing could be proven."
    return Card("bounds", "What is promised, and what an attacker can prove", text, figure)


def tests_card(audit: RunAudit) -> Card:
    """p-values of all conformance tests."""
    figure = blank()
    for part, name, colour in _drawn(audit):
        shown = [max(_LEAST_P, test.p_value) for test in part.tests]
        names = [test.name for test in part.tests]
        mark = {"color": colour, "size": 9}
        figure.add_scatter(x=shown, y=names, mode="markers", name=name, marker=mark)
    limit = FALSE_ALARM / len(audit.alone.tests)
    figure.add_vline(x=limit, line={"color": GREEN, "dash": "dash"})
    figure.update_yaxes(type="category", autorange="reversed")
    in_report(figure, x="p-value", y="", height=120 + 22 * len(audit.alone.tests))
    lowest = min([limit / 100.0, *(test.p_value for part in audit.parts for test in part.tests)])
    axis = {"type": "log", "exponentformat": "power", "range": [log10(max(_LEAST_P, lowest)) - 0.5, 0.3]}
    figure.update_xaxes(**axis)
    text = "Left of the dashed line a test speaks against the build. An honest build scatters evenly between 0 and 1."
    return Card("tests", "Does the build do what its plan says?", text, figure)


def _groups_table(audit: RunAudit) -> str:
    columns = ["budget ε", "q", "allowed", "proven alone", "expected", "proven beside", "right guesses alone"]
    columns += [] if audit.served is None else ["proven served"]
    rows, alarms = [], set()
    for number, (alone, beside) in enumerate(zip(audit.alone.groups, audit.beside.groups, strict=True)):
        rows.append(
            [
                f"{alone.epsilon:g}",
                f"{alone.probability:.4g}",
                f"{alone.allowed:.3g}",
                f"{alone.bound.epsilon:.3g}",
                f"{alone.bound.cut.expected:.3g}",
                f"{beside.bound.epsilon:.3g}",
                f"{alone.bound.right:,} of {alone.bound.guesses:,}",
            ]
        )
        alarms |= {(number, column) for column, group in ((3, alone), (5, beside)) if group.is_broken}
        if audit.served is not None:
            rows[-1].append(audit.proven_served()[number])
            alarms |= {(number, len(columns) - 1)} if audit.served.groups[number].is_broken else set()
    caption = "Expected: what an honest build leads to, about. It grows with the number of canaries."
    return table([Column(name) for name in columns], rows, caption=caption, alarms=frozenset(alarms))


def membership_section(audit: ModelAudit) -> list[str]:
    """The model-only audit, as parts of a page or of a report."""
    result = audit.membership
    return [
        banner("A demonstration: one attack on the final model. It proves no bound.", "warn"),
        *map(paragraph, result.verdict()[1:]),
        cards([roc_card(result), advantage_card(result)]),
        heading("If the others chose other budgets"),
        paragraph(audit.advice),
        _others_table(audit.others),
    ]


def roc_card(result: MembershipResult) -> Card:
    """ROC curves by budget."""
    figure = blank()
    figure.add_scatter(x=[0, 1], y=[0, 1], mode="lines", name="guessing", line={"color": GREY, "dash": "dot"})
    for group, colour in zip(result.groups, cycle(len(result.groups)), strict=True):
        false, true = group.roc
        figure.add_scatter(x=false, y=true, mode="lines", name=f"ε = {group.epsilon:g}", line={"color": colour})
    in_report(figure, x="false positive rate", y="true positive rate", height=420)
    text = f"Pooled over {result.runs} simulations of {result.records:,} real records, each in with probability 1/2."
    return Card("roc", "What an outsider can tell from the final model", text, figure)


def advantage_card(result: MembershipResult) -> Card:
    """Advantage of the attack beside what no attacker can exceed."""
    figure = blank()
    names = [f"{group.epsilon:g}" for group in result.groups]
    figure.add_bar(x=names, y=[group.bound for group in result.groups], name="bound δ(0)", marker={"color": "#ccd3dc"})
    means = [group.advantage.mean for group in result.groups]
    reach = [group.advantage.high - group.advantage.mean for group in result.groups]
    figure.add_scatter(
        x=names,
        y=means,
        mode="markers",
        name="this attack",
        marker={"color": BLUE, "size": 10},
        error_y={"type": "data", "array": reach, "color": BLUE, "thickness": 2},
    )
    figure.update_xaxes(type="category")
    in_report(figure, x="budget ε", y="advantage", height=420)
    text = (
        f"True minus false positive rate: mean over runs, {result.confidence:.0%} intervals. The bound holds for all."
    )
    return Card("advantage", "Advantage over guessing", text, figure)


def _others_table(others: Sequence[OthersReport]) -> str:
    columns = [
        Column("own ε"),
        Column("if σ", words=True),
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
        for report in others
        for scenario in (report.own, *report.scenarios)
    ]
    caption = (
        "The same (ε, δ) under other σ. Advantage: what no observer of everything can exceed. Excess: how much more "
        "often his best guess could be right than under this plan, for the prior belief where that is most."
    )
    return table(columns, rows, caption=caption)
