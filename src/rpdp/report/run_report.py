"""The report of a run: one self-contained HTML file that opens offline, for the silo or to share.

| edition | holds                                                                                                |
|---------|------------------------------------------------------------------------------------------------------|
| silo    | everything: budgets, costs, draws, accuracy on training records. It must not leave the silo          |
| share   | the public plan, who took part, accuracy on public test records; no silo view is looked at           |
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rpdp.errors import InputError
from rpdp.report.page import banner, cards, heading, page, paragraph, tiles
from rpdp.report.promise import promise_box
from rpdp.report.record_figures import record_cards
from rpdp.report.report_records import AllRecords
from rpdp.report.report_runs import ReportRuns, Spread
from rpdp.report.run_figures import curve_card, public_cards
from rpdp.report.tables import groups_table, methods_table, silos_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rpdp.federation import RunResult
    from rpdp.report.facts import ReportFacts

_TITLE = "Training with personal privacy budgets"


def write_report(
    results: RunResult | Mapping[str, Sequence[RunResult]],
    path: str | Path,
    *,
    edition: Literal["silo", "share"] = "silo",
    title: str | None = None,
    facts: ReportFacts | None = None,
    sections: Sequence[str] = (),
) -> Path:
    """Write the report of one run, or of several methods and seeds.

    Args:
        results: One run, or runs by method, one per seed. The first method is the one that the report is about; its
            first run gives the figures about records.
        path: The file to write; missing directories are made.
        edition: "silo" for everything, which must not leave the silo; "share" for what follows from the public plan,
            released models and public test records.
        title: Of the page.
        facts: What the runs do not know: task, origin of the budgets, notes, promises of the methods.
        sections: Further parts of the page, as HTML, such as an audit; for the silo's edition only.
    """
    if sections and edition != "silo":
        raise InputError("sections of one's own go into the silo's edition only: nobody has checked them for sharing")
    comparison = ReportRuns.of(results, edition, facts)
    title = title or (f"{comparison.facts.task}: {_TITLE.lower()}" if comparison.facts.task else _TITLE)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600 if comparison.for_silo else 0o644)
    path.write_text(page(title, [*_head(comparison, title), *_body(comparison), *sections]), encoding="utf-8")
    return path


def _head(comparison: ReportRuns, title: str) -> list[str]:
    run = comparison.subject
    parts = [f"<header>{heading(title, 1)}", paragraph(f"Run {run.run}, method {comparison.name}", "run")]
    if run.is_simulation:
        parts.append(banner("SIMULATION: seeded, nobody is protected", "warn"))
    if comparison.for_silo:
        parts.append(banner("Edition for the silo: it shows budgets and training records. Do not pass it on.", "info"))
    else:
        parts.append(banner("Edition to share: the public plan, released models and public test records only.", "info"))
    return [*parts, tiles(_numbers(comparison)), "</header>"]


def _numbers(comparison: ReportRuns) -> list[tuple[str, str]]:
    run = comparison.subject
    seeds = len(comparison.methods[comparison.name])
    over = f"mean ± deviation of {seeds} seeds" if seeds > 1 else "one run"
    numbers = [
        (f"final test accuracy, {over}", str(Spread.of(comparison.accuracies(comparison.name)) or "not measured")),
        (f"mean over silos, {over}", str(Spread.of(comparison.means_over_silos(comparison.name)) or "not measured")),
        ("silos", f"{len(comparison.silos):,}"),
        ("rounds", f"{len(run.rounds):,}"),
        ("parameters of the model", f"{len(run.values):,}"),
    ]
    if comparison.is_protected:
        numbers.append(("δ", f"{run.public.delta:g}"))
    if comparison.for_silo:
        over_budget = comparison.over_budget(comparison.name)
        numbers.append(
            (f"of {comparison.records(comparison.name):,} records over budget, all seeds", f"{over_budget:,}")
        )
    return numbers


def _body(comparison: ReportRuns) -> list[str]:
    records = AllRecords.of(comparison.subject)  # None in an edition to share
    parts = [heading("What is promised"), promise_box(comparison), heading("What was learned")]
    if not comparison.is_scored:
        parts.append(paragraph("No accuracy was measured."))
    parts += [cards(public_cards(comparison)), heading("Methods"), methods_table(comparison)]
    if records is not None:
        parts += [heading("Records"), cards(record_cards(comparison, records))]
        if records.groups():
            parts += [heading("Budget groups"), groups_table(records)]
    elif comparison.is_protected:
        parts += [heading("The price of sampling"), cards([curve_card(comparison.subject.public)])]
    return [*parts, heading("Silos"), silos_table(comparison), *_rejected(comparison)]


def _rejected(comparison: ReportRuns) -> list[str]:
    said = [
        f"Round {log.round}, silo {silo}: {why}"
        for log in comparison.subject.rounds
        for silo, why in log.rejected.items()
    ]
    return [heading("Rejected updates", 3), *map(paragraph, said)] if said else []
