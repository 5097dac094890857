"""The tables of a report: methods, silos, and (silo edition) budget groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpdp.report.rendering import Alarm, Column, Table
from rpdp.report.report_records import group_name
from rpdp.report.report_runs import rounds_answered
from rpdp.spread import Spread

if TYPE_CHECKING:
    from rpdp.report.report_records import AllRecords
    from rpdp.report.report_runs import ReportRuns

_NONE = "–"


def methods_table(report: ReportRuns) -> Table:
    """What each method reached, and what it promises; in the silo edition also whether it keeps to the budgets."""
    columns = [
        Column("method", is_text=True),
        Column("test accuracy"),
        Column("mean over silos"),
        Column("seeds"),
        Column("promises", is_text=True),
    ]
    if report.for_silo:
        columns += [Column("seconds per run"), Column("records over budget")]
    rows = []
    for method, runs in report.methods.items():
        row = [
            method,
            str(Spread.of(report.accuracies(method)) or _NONE),
            str(Spread.of(report.means_over_silos(method)) or _NONE),
            str(len(runs)),
            report.promise(method),
        ]
        if report.for_silo:
            over = report.over_budget(method)
            seconds = sum(run.seconds for run in runs) / len(runs)
            row.append(_NONE if np.isnan(seconds) else f"{seconds:.1f}")
            row.append(Alarm(f"{over:,} of {report.records(method):,}") if over else "0")
        rows.append(row)
    return Table(columns, rows, _methods_caption(report))


def _methods_caption(report: ReportRuns) -> str:
    text = (
        "Accuracy of the final model over all test records, mean ± standard deviation over the seeds; beside it the "
        "unweighted mean over the silos."
    )
    if report.for_silo:
        text += " Over budget: records, in all seeds, that spend more than they allow; 0 where the promise is kept."
    return text


def silos_table(report: ReportRuns) -> Table:
    """One line per silo: what is public, and in the silo edition what only the silo knows."""
    run = report.run
    schedule, given = run.public.schedule, report.depends_on_coins
    columns = [Column("silo", is_text=True), Column("weight"), Column(f"rounds joined of {schedule.rounds:,}")]
    if run.score:
        columns.append(Column("test accuracy"))
    if given:
        columns.append(Column("ε at q = 1, given these rounds"))
    if report.for_silo:
        columns += [Column("records"), Column("expected batch"), Column("sit out")]
    if report.for_silo and report.is_protected:
        columns.append(Column("largest cost"))
    if report.for_silo and given:
        columns.append(Column("the same, given these rounds"))
    rows = []
    for silo in report.silos:
        joined = rounds_answered(run, silo)
        row = [silo, _weight(report, silo), f"{joined:,}"]
        if run.score:
            row.append(f"{run.score.by_silo[silo]:.3f}" if silo in run.score.by_silo else _NONE)
        if given:
            row.append(f"{run.public.curve.given(joined).epsilon(1.0):.4g}")
        if report.for_silo:
            row += _own_cells(report, silo, given)
        rows.append(row)
    return Table(columns, rows, _silos_caption(report, given))


def _own_cells(report: ReportRuns, silo: str, given: bool) -> list[str]:
    view = report.run.silos.get(silo)
    count = 3 + report.is_protected + given
    if view is None or len(view.plan) == 0:
        return [_NONE] * count
    plan = view.plan
    costs = plan.run_epsilon
    dearest = int(np.argmax(costs))
    cells = [f"{len(plan):,}", f"{plan.expected_batch:.1f}", f"{plan.left_out:,}", f"{costs[dearest]:.4g}"]
    if given:
        turns = sum(number <= plan.active_rounds[dearest] for number in view.joined)
        cells.append(f"{plan.public.curve.given(turns).epsilon(float(plan.q[dearest])):.4g}")
    return cells[:count]


def _silos_caption(report: ReportRuns, given: bool) -> str:
    text = "The run that this report is about."
    if given:
        promised = report.run.public.curve.largest_cost
        text += (
            f" Given these rounds: not the promise (at q = 1: ε = {promised:.4g}), which averages over participation, "
            "but the cost once it is known how many rounds a silo joined."
        )
    return text


def _weight(report: ReportRuns, silo: str) -> str:
    weights = report.run.public.weights
    value = weights if isinstance(weights, float) else weights.get(silo)
    return _NONE if value is None else f"{value:g}"


def groups_table(records: AllRecords) -> Table:
    """Silo edition: what each budget group gives and gets."""
    columns = [
        Column("budget ε", is_text=True),
        Column("records"),
        Column("sit out"),
        Column("share of records"),
        Column("share of the batch"),
        Column("draws expected"),
        Column("draws realised"),
    ]
    if records.correct is not None:
        columns.append(Column("accuracy on them"))
    rows = []
    for group, rows_of in records.groups():
        expected, variance = records.expected[rows_of].sum(), records.variance[rows_of].sum()
        row = [
            group_name(group),
            f"{group.records:,}",
            f"{group.left_out:,}",
            f"{group.share_of_records:.1%}",
            f"{group.share_of_batch:.1%}",
            f"{expected:,.1f} ± {np.sqrt(variance):,.1f}",
            f"{records.draws[rows_of].sum():,}",
        ]
        if records.correct is not None:
            row.append(f"{records.correct[rows_of].mean():.3f}")
        rows.append(row)
    caption = "All silos together, by the budget of the records; draws given the joined rounds."
    return Table(columns, rows, caption)
