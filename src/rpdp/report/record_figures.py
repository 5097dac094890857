"""Figures of the silo edition, made from budgets and training records. Nothing here goes into an edition to share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpdp.figures import BLUE, GREEN, GREY, ORANGE, Band, Bars, Figure, Line, Marks, PlotAxis, cycle, some
from rpdp.metrics import title_of
from rpdp.report.rendering import Card
from rpdp.report.report_records import AllRecords, group_metrics, group_name, group_value
from rpdp.report.run_figures import curve_card

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.figures.figure import Symbol
    from rpdp.report.report_runs import ReportRuns

_BAND = 1.96
"""Normal quantile: about 95 % of the records lie within so many deviations."""


def record_cards(report: ReportRuns, records: AllRecords) -> list[Card]:
    """All figures about records; the costs only where there are any."""
    cards = [budget_card(records), curve_with_records_card(records)] if report.is_protected else []
    cards.append(inclusion_card(records))
    if records.groups():
        cards.append(share_card(records))
        measured = group_metrics(report.run, records)
        cards += [group_card(report, records, metric) for metric in measured[:1]]
    return cards


def budget_card(records: AllRecords) -> Card:
    """Budget against cost: no mark lies above the diagonal."""
    plan, cost = records.plan, records.plan.run_epsilon
    priced = np.isfinite(plan.epsilon) & (plan.epsilon > 0.0)
    drawn = priced & (cost > 0.0)
    bounds = [float(plan.epsilon[priced].min()), float(plan.epsilon[priced].max())] if priced.any() else [0.1, 10.0]
    figure = Figure(PlotAxis("budget ε of a record", "log"), PlotAxis("cost ε of the run", "log"))
    figure.add(Line(bounds, bounds, "cost = budget", GREY, dashes="dashed"))
    figure.add(_marks(plan.epsilon[drawn], cost[drawn], "records", BLUE))
    free = priced & ~drawn
    if free.any():
        floor = float(cost[drawn].min()) / 2.0 if drawn.any() else bounds[0]
        figure.add(_marks(plan.epsilon[free], np.full(int(free.sum()), floor), "cost 0", ORANGE, symbol="cross"))
    text = (
        f"{len(plan):,} records, {records.overdrawn:,} over budget, {plan.left_out:,} sit out. Larger marks stand for "
        "more records."
    )
    return Card("budgets", "Budget and cost of every record", text, figure)


def curve_with_records_card(records: AllRecords) -> Card:
    """The price of sampling, with the records on it."""
    plan = records.plan
    drawn = plan.q > 0.0
    smallest = float(plan.q[drawn].min()) / 3.0 if drawn.any() else 1e-3
    card = curve_card(plan.public, smallest)
    card.figure.add(_marks(plan.q[drawn], plan.run_epsilon[drawn], "records", BLUE))
    early = int((plan.active_rounds[drawn] < plan.public.schedule.rounds).sum())
    text = f"{card.caption} {int(drawn.sum()):,} records are drawn."
    if early:
        text += f" {early:,} of them are active in the first rounds only and lie below the curve."
    return Card(card.name, card.title, text, card.figure)


def inclusion_card(records: AllRecords) -> Card:
    """How often each record was drawn against how often it was to be drawn."""
    expected, draws = records.expected, records.draws.astype(np.float64)
    order = np.argsort(expected, kind="stable")
    line = np.unique(expected[some(order, 300)])
    line = np.unique(np.append(line, expected.max()))
    reach = _BAND * np.sqrt(np.interp(line, expected[order], records.variance[order]))
    figure = Figure(PlotAxis("expected draws"), PlotAxis("draws"))
    figure.add(
        Band(line, np.maximum(line - reach, 0.0), line + reach, GREY, "where 95 % should lie"),
        Line(line, line, "as expected", GREY, dashes="dashed"),
        _marks(expected, draws, "records", BLUE),
    )
    total, spread = float(expected.sum()), float(np.sqrt(records.variance.sum()))
    text = (
        f"Given the joined rounds. In all {int(draws.sum()):,} draws, expected {total:,.0f} ± {spread:,.0f} (one "
        "standard deviation)."
    )
    return Card("inclusion", "How often records were drawn", text, figure)


def share_card(records: AllRecords) -> Card:
    """What each budget group contributes to the batches."""
    groups = records.groups()
    names = [group_name(group) for group, _ in groups]
    total = max(1, int(records.draws.sum()))
    shares = {
        "of the records": [group.share_of_records for group, _ in groups],
        "of the batch, expected": [group.share_of_batch for group, _ in groups],
        "of the batch, realised": [records.draws[rows].sum() / total for _, rows in groups],
    }
    figure = Figure(PlotAxis("budget ε", "names"), PlotAxis("share", unit="%"))
    for (name, values), colour in zip(shares.items(), (GREY, BLUE, GREEN), strict=True):
        figure.add(Bars(names, values, name, colour))
    return Card("shares", "Who makes up the batch", "All silos together, by the budget of the records.", figure)


def group_card(report: ReportRuns, records: AllRecords, metric: str) -> Card:
    """Do strict records lose? A metric on training records by budget, for every method that saw the same ones."""
    groups = records.groups()
    names = [group_name(group) for group, _ in groups]
    title = title_of(metric)
    figure = Figure(PlotAxis("budget ε", "names"), PlotAxis(f"{title} on training records"))
    for method, colour in zip(report.methods, cycle(len(report.methods)), strict=True):
        run = report.methods[method][0]
        own = AllRecords.of(run) if report.same_records(run, report.run) else None
        if own is None:
            continue
        values = [group_value(run, own, metric, group, rows) for group, rows in groups]
        if not any(value is not None for value in values):
            continue
        shown = [(name, value) for name, value in zip(names, values, strict=True) if value is not None]
        places, heights = [name for name, _ in shown], [value for _, value in shown]
        figure.add(Line(places, heights, method, colour, width="thin", marks=True))
    text = "The final model of the first seed on the silos' own training records: do those with strict budgets lose?"
    return Card(f"groups-{metric}", f"{title[0].upper()}{title[1:]} by budget", text, figure)


def _marks(x: NDArray[np.float64], y: NDArray[np.float64], name: str, colour: int, symbol: Symbol = "circle") -> Marks:
    """Equal marks become one that is larger; more than a page needs are thinned evenly."""
    places, counts = np.unique(np.stack([x, y]), axis=1, return_counts=True)
    shown = some(np.arange(counts.size))
    tips = [
        f"{across:.4g}, {up:.4g}: {count:,} records"
        for across, up, count in zip(places[0, shown], places[1, shown], counts[shown], strict=True)
    ]
    sizes = 6.0 + 3.0 * np.log10(counts[shown])
    return Marks(places[0, shown], places[1, shown], name, colour, symbol, sizes, faint=True, tips=tips)
