"""The report of a run: one self-contained HTML file that opens offline, for the silo or to share.

| edition | holds                                                                                                |
|---------|------------------------------------------------------------------------------------------------------|
| silo    | everything: budgets, costs, draws, metrics on training records. It must not leave the silo           |
| share   | the public plan, who took part, metrics on public test records; no silo view is read                 |
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rpdp.errors import InputError
from rpdp.metrics import title_of
from rpdp.private_files import OWNER_ONLY
from rpdp.report.evaluation_figures import compared_table, confusion_table, evaluation_cards, evaluation_table
from rpdp.report.lifetime_figures import lifetime_cards, lifetime_table
from rpdp.report.promise import promise_values
from rpdp.report.record_figures import record_cards
from rpdp.report.rendering import ANYBODY, write_html
from rpdp.report.report_records import AllRecords
from rpdp.report.report_runs import ReportRuns
from rpdp.report.report_tables import (
    classes_table,
    features_table,
    groups_table,
    held_out_groups_table,
    methods_table,
    silos_table,
)
from rpdp.report.run_figures import curve_card, metric_cards, run_cards
from rpdp.spread import Spread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from markupsafe import Markup

    from rpdp.federation import RunResult
    from rpdp.report.report_facts import ReportFacts

_TITLE = "Training with personal privacy budgets"


def write_report(
    results: RunResult | Mapping[str, Sequence[RunResult]],
    path: str | Path,
    *,
    edition: Literal["silo", "share"] = "silo",
    title: str | None = None,
    facts: ReportFacts | None = None,
    sections: Sequence[Markup] = (),
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
        sections: Further parts of the page, such as an audit, as `markupsafe.Markup`; any other text is escaped. For
            the silo's edition only.
    """
    if sections and edition != "silo":
        raise InputError("sections of one's own go into the silo's edition only: nobody has checked them for sharing")
    report = ReportRuns.of(results, edition, facts)
    title = title or (f"{report.facts.task}: {_TITLE.lower()}" if report.facts.task else _TITLE)
    mode = OWNER_ONLY if report.for_silo else ANYBODY
    return write_html(Path(path), "report.html.j2", mode=mode, title=title, sections=sections, **_values(report))


def _values(report: ReportRuns) -> dict[str, Any]:
    """What the template shows. In an edition to share the runs have no records left."""
    records, public = AllRecords.of(report.run), report.run.public
    return {
        "report": report,
        "numbers": _numbers(report),
        **promise_values(public, is_protected=report.is_protected),
        "run_cards": run_cards(report),
        "more_cards": metric_cards(report, report.metrics[1:]),
        "classes": classes_table(report),
        "methods": methods_table(report),
        "record_cards": record_cards(report, records) if records else [],
        "groups": groups_table(report, records) if records and records.groups() else None,
        "curve": curve_card(public) if not records and report.is_protected else None,
        "held_out_groups": held_out_groups_table(report),
        "lifetime_cards": lifetime_cards(report.facts.lifetimes),
        "lifetimes": lifetime_table(report.facts.lifetimes),
        "silos": silos_table(report),
        "features": features_table(report),
        **_evaluation(report.facts.evaluation),
    }


def _evaluation(facts: Mapping[str, Any] | None) -> dict[str, Any]:
    """What was measured privately, or why nothing was."""
    if facts is None or facts["not_evaluated"] is not None:
        return {"evaluation": [], "evaluation_cards": [], "not_evaluated": facts and facts["not_evaluated"]}
    tables = [evaluation_table(facts), compared_table(facts), confusion_table(facts)]
    shown = [table for table in tables if table is not None]
    return {"evaluation": shown, "evaluation_cards": evaluation_cards(facts), "not_evaluated": None}


def _numbers(report: ReportRuns) -> list[tuple[str, str]]:
    """The numbers at the top of the page, each with what it counts."""
    run, method = report.run, report.method
    seeds = len(report.methods[method])
    over = f"mean ± deviation of {seeds} seeds" if seeds > 1 else "one run"
    numbers = [
        (f"final test {title_of(metric)}, {over}", str(Spread.of(report.values(method, metric)) or "not defined"))
        for metric in report.metrics
    ]
    numbers += [
        (
            f"mean of {title_of(metric)} over silos",
            str(Spread.of(report.means_over_silos(method, metric)) or "not defined"),
        )
        for metric in report.metrics[:1]
    ]
    numbers += [
        ("silos", f"{len(report.silos):,}"),
        ("rounds", f"{len(run.rounds):,}"),
        ("parameters of the model", f"{len(run.values):,}"),
    ]
    if report.is_protected:
        numbers.append(("δ", f"{run.public.delta:g}"))
    if report.for_silo:
        what = f"of {report.records(method):,} records over budget, all seeds"
        numbers.append((what, f"{report.over_budget(method):,}"))
    return numbers
