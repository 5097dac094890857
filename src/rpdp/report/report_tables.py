"""The tables of a report: methods, silos, and (silo edition) budget groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpdp.metrics import number, title_of
from rpdp.report.rendering import Alarm, Column, Table
from rpdp.report.report_records import group_metrics, group_name, group_value
from rpdp.report.report_runs import rounds_answered
from rpdp.spread import Spread

if TYPE_CHECKING:
    from rpdp.federation import Score
    from rpdp.report.report_records import AllRecords
    from rpdp.report.report_runs import ReportRuns

_NONE = "–"


def methods_table(report: ReportRuns) -> Table:
    """What each method reached, and what it promises; in the silo edition also whether it keeps to the budgets."""
    columns = [
        Column("method", is_text=True),
        *[Column(f"test {title_of(metric)}") for metric in report.metrics],
        *([Column("mean over silos")] if report.is_scored else []),
        Column("seeds"),
        Column("promises", is_text=True),
    ]
    if report.for_silo:
        columns += [Column("seconds per run"), Column("records over budget")]
    rows = []
    for method, runs in report.methods.items():
        row = [
            method,
            *[_measured(report, method, metric) for metric in report.metrics],
            *[str(Spread.of(report.means_over_silos(method, metric)) or _NONE) for metric in report.metrics[:1]],
            str(len(runs)),
            report.promise(method),
        ]
        if report.for_silo:
            over = report.over_budget(method)
            seconds = sum(run.seconds for run in runs) / len(runs)
            row.append(_NONE if np.isnan(seconds) else f"{seconds:.1f}")
            row.append(Alarm(f"{over:,} of {report.records(method):,}") if over else "0")
        rows.append(row)
    if report.majority_share is not None and "accuracy" in report.metrics:
        always = ["always the largest class"]
        always += [f"{report.majority_share.mean:.3f}" if metric == "accuracy" else _NONE for metric in report.metrics]
        rows.append([*always, *[_NONE] * (len(columns) - len(always))])
    for column, values in report.facts.yardsticks.items():
        worth = [str(Spread.of(values.get(metric, ())) or _NONE) for metric in report.metrics]
        rows.append([f"{column}, as it is", *worth, *[_NONE] * (len(columns) - len(worth) - 1)])
    return Table(columns, rows, _methods_caption(report))


def _measured(report: ReportRuns, method: str, metric: str) -> str:
    """A value over the seeds; beside accuracy, or else the first metric, whether the model never leaves one class."""
    text = str(Spread.of(report.values(method, metric)) or _NONE)
    beside = "accuracy" if "accuracy" in report.metrics else report.metrics[0]
    count = report.one_class(method) if metric == beside else 0
    return Alarm(f"{text}; one class only, {count} of {len(report.methods[method])} seeds") if count else text


def _methods_caption(report: ReportRuns) -> str:
    if not report.is_scored:
        text = "Nothing was measured."
    else:
        several = any(len(runs) > 1 for runs in report.methods.values())
        over = ", mean ± standard deviation over the seeds" if several else ""
        first = title_of(report.metrics[0])
        text = f"The final model over all test records{over}; beside it the unweighted mean of {first} over the silos."
    if report.for_silo:
        text += " Over budget: records, in all seeds, that spend more than they allow; 0 where the promise is kept."
    return text


def silos_table(report: ReportRuns) -> Table:
    """One line per silo: what is public, and in the silo edition what only the silo knows."""
    run = report.run
    schedule, given = run.public.schedule, report.depends_on_coins
    columns = [Column("silo", is_text=True), Column("weight"), Column(f"rounds joined of {schedule.rounds:,}")]
    metrics = list(run.score.values) if run.score else []
    columns += [Column(f"test {title_of(metric)}") for metric in metrics]
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
            values = run.score.by_silo.get(silo, {})
            row += [number(values.get(metric), 3) for metric in metrics]
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


def features_table(report: ReportRuns) -> Table | None:
    """What a model of a table sees: the names of its features and what they mean; for a linear one also its weights."""
    features = report.facts.features
    if not features:
        return None
    columns = [Column("feature", is_text=True), Column("its value", is_text=True)]
    rows = [[name, meaning] for name, meaning in features]
    caption = "From the public schema alone."
    values = report.run.values
    if len(values) == len(features) + 1:  # one weight each and the bias: no model with hidden layers has so few
        columns.append(Column("weight"))
        rows = [[*row, f"{weight:+.3f}"] for row, weight in zip(rows, values.tolist(), strict=False)]
        caption += f" Weights are those of the released model; what they add up to begins at {float(values[-1]):+.3f}."
    return Table(columns, rows, caption)


def classes_table(report: ReportRuns) -> Table | None:
    """What the final model does to each class; None where there are no classes."""
    score = report.run.score
    names = [] if score is None else list(dict.fromkeys([*score.classes, *_labels(score)]))
    if score is None or not names:
        return None
    columns = [Column("class", is_text=True), Column("test records"), Column("share"), Column("assigned")]
    columns += [Column(title_of(metric)) for metric in score.by_class]
    total = sum(count.records for count in score.classes.values())
    rows = []
    for name in names:
        count = score.classes.get(name)
        row = [name, f"{count.records:,}", f"{count.records / total:.1%}", f"{count.predicted:,}"] if count else []
        values = [number(by_class.get(name), 3) for by_class in score.by_class.values()]
        rows.append([*(row or [name, _NONE, _NONE, _NONE]), *values])
    caption = "The final model on all test records. Accuracy of a class: the share of its records that is predicted so."
    return Table(columns, rows, caption)


def _labels(score: Score) -> list[str]:
    return [name for values in score.by_class.values() for name in values]


def held_out_groups_table(report: ReportRuns) -> Table | None:
    """Silo edition: how the final model does on held-out records, by their budgets; None if that is not known."""
    groups = report.facts.held_out_groups
    if not groups:
        return None
    columns = [Column("budget ε", is_text=True), Column("records")]
    columns += [Column(title_of(metric)) for metric in groups[0].values]
    rows = [
        [
            f"{group.low:g}" if group.low == group.high else f"{group.low:g} to {group.high:g}",
            f"{group.records:,}",
            *(number(value, 3) for value in group.values.values()),
        ]
        for group in groups
    ]
    caption = "The final model on held-out records by their budgets, without noise: it must not leave the silos."
    return Table(columns, rows, caption)


def groups_table(report: ReportRuns, records: AllRecords) -> Table:
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
    measured = group_metrics(report.run, records)
    columns += [Column(f"{title_of(metric)} on them") for metric in measured]
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
        row += [number(group_value(report.run, records, metric, group, rows_of), 3) for metric in measured]
        rows.append(row)
    caption = "All silos together, by the budget of the records; draws given the joined rounds."
    return Table(columns, rows, caption)
