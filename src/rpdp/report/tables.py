"""The tables of a report: methods, silos, and (silo edition) budget groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpdp.report.page import Column, table
from rpdp.report.promise import randomness_is_open
from rpdp.report.report_records import group_name
from rpdp.report.report_runs import Spread, rounds_answered

if TYPE_CHECKING:
    from rpdp.report.report_records import AllRecords
    from rpdp.report.report_runs import ReportRuns

_NONE = "–"


def methods_table(comparison: ReportRuns) -> str:
    """What each method reached, and what it promises; in the silo edition also whether it keeps to the budgets."""
    columns = [
        Column("method", words=True),
        Column("test accuracy"),
        Column("mean over silos"),
        Column("seeds"),
        Column("promises", words=True),
    ]
    if comparison.for_silo:
        columns += [Column("seconds per run"), Column("records over budget")]
    rows, alarms = [], set()
    for number, (method, runs) in enumerate(comparison.methods.items()):
        row = [
            method,
            str(Spread.of(comparison.accuracies(method)) or _NONE),
            str(Spread.of(comparison.means_over_silos(method)) or _NONE),
            str(len(runs)),
            comparison.promise(method),
        ]
        if comparison.for_silo:
            over = comparison.over_budget(method)
            seconds = sum(run.seconds for run in runs) / len(runs)
            row.append(_NONE if np.isnan(seconds) else f"{seconds:.1f}")
            row.append(f"{over:,} of {comparison.records(method):,}" if over else "0")
            if over:
                alarms.add((number, len(row) - 1))
        rows.append(row)
    return table(columns, rows, caption=_methods_caption(comparison), alarms=frozenset(alarms))


def _methods_caption(comparison: ReportRuns) -> str:
    text = (
        "Accuracy of the final model over all test records, mean ± standard deviation over the seeds; beside it the "
        "unweighted mean over the silos."
    )
    if comparison.for_silo:
        text += " Over budget: records, in all seeds, that spend more than they allow; 0 where the promise is kept."
    return text


def silos_table(comparison: ReportRuns) -> str:
    """One line per silo: what is public, and in the silo edition what only the silo knows."""
    run = comparison.subject
    schedule, given = run.public.schedule, randomness_is_open(comparison)
    columns = [Column("silo", words=True), Column("weight"), Column(f"rounds joined of {schedule.rounds:,}")]
    if run.score:
        columns.append(Column("test accuracy"))
    if given:
        columns.append(Column("ε at q = 1, given these rounds"))
    if comparison.for_silo:
        columns += [Column("records"), Column("expected batch"), Column("sit out")]
    if comparison.for_silo and comparison.is_protected:
        columns.append(Column("largest cost"))
    if comparison.for_silo and given:
        columns.append(Column("the same, given these rounds"))
    rows = []
    for silo in comparison.silos:
        joined = rounds_answered(run, silo)
        row = [silo, _weight(comparison, silo), f"{joined:,}"]
        if run.score:
            row.append(f"{run.score.by_silo[silo]:.3f}" if silo in run.score.by_silo else _NONE)
        if given:
            row.append(f"{run.public.curve.given(joined).epsilon(1.0):.4g}")
        if comparison.for_silo:
            row += _own_cells(comparison, silo, given)
        rows.append(row)
    return table(columns, rows, caption=_silos_caption(comparison, given))


def _own_cells(comparison: ReportRuns, silo: str, given: bool) -> list[str]:
    view = comparison.subject.silos.get(silo)
    count = 3 + comparison.is_protected + given
    if view is None or len(view.plan) == 0:
        return [_NONE] * count
    plan = view.plan
    dearest = int(np.argmax(plan.cost))
    cells = [f"{len(plan):,}", f"{plan.expected_batch:.1f}", f"{plan.left_out:,}", f"{plan.cost[dearest]:.4g}"]
    if given:
        turns = sum(number <= plan.active_rounds[dearest] for number in view.joined)
        cells.append(f"{plan.public.curve.given(turns).epsilon(float(plan.q[dearest])):.4g}")
    return cells[:count]


def _silos_caption(comparison: ReportRuns, given: bool) -> str:
    text = "The run that this report is about."
    if given:
        promised = comparison.subject.public.curve.largest_cost
        text += (
            f" Given these rounds: not the promise (at q = 1: ε = {promised:.4g}), which averages over participation, "
            "but the cost once it is known how many rounds a silo joined."
        )
    return text


def _weight(comparison: ReportRuns, silo: str) -> str:
    weights = comparison.subject.public.weights
    value = weights if isinstance(weights, float) else weights.get(silo)
    return _NONE if value is None else f"{value:g}"


def groups_table(records: AllRecords) -> str:
    """Silo edition: what each budget group gives and gets."""
    columns = [
        Column("budget ε", words=True),
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
    return table(
        columns, rows, caption="All silos together, by the budget of the records; draws given the joined rounds."
    )
