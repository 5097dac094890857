"""Figures of the run: metrics on public test records, participation, the price of sampling; for the silo also time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from rpdp.figures import (
    BLUE,
    GREY,
    ORANGE,
    PALE,
    Band,
    Bars,
    CellGrid,
    Figure,
    Line,
    Marks,
    PlotAxis,
    RuleLine,
    cycle,
    some,
)
from rpdp.metrics import METRICS, title_of
from rpdp.report.rendering import Card
from rpdp.spread import Spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rpdp.federation import RoundLog, RunResult
    from rpdp.planning import PublicPlan
    from rpdp.report.report_runs import ReportRuns

_CURVE_POINTS = 60
_SMALLEST_SHOWN = 1e-3
"""Where the curve starts in the edition to share: a constant, since the smallest q in use is a secret."""

_MOST_WITH_MARKERS = 40
_KINDS = (("sat out", PALE), ("joined", BLUE), ("update rejected", ORANGE))


def run_cards(report: ReportRuns) -> list[Card]:
    """The figures of both editions but for the curve, and the run time, which is for the silo."""
    cards = metric_cards(report, report.metrics[:1])
    if report.run.rounds:
        cards.append(participation_card(report))
    if report.run.rounds and report.for_silo and not np.isnan(report.run.seconds):
        cards.append(time_card(report.run))  # how long a round takes depends on how many records were drawn
    return cards


def metric_cards(report: ReportRuns, metrics: Sequence[str]) -> list[Card]:
    """The figures of some metrics: over the rounds, and of all methods if there are several runs."""
    compared = sum(map(len, report.methods.values())) > 1
    cards = []
    for metric in metrics:
        cards.append(rounds_card(report, metric))
        cards += [final_card(report, metric)] if compared else []
    return cards


def rounds_card(report: ReportRuns, metric: str) -> Card:
    """A metric per round, mean over the seeds with a band of one standard deviation."""
    title = title_of(metric)
    figure = Figure(PlotAxis("round", whole=True), PlotAxis(f"test {title}"))
    for (method, runs), colour in zip(report.methods.items(), cycle(len(report.methods)), strict=True):
        rounds, spreads = _by_round(runs, metric)
        mean = np.array([spread.mean for spread in spreads])
        if not rounds:
            continue
        if all(spread.deviation is not None for spread in spreads):
            deviation = np.array([spread.deviation for spread in spreads], dtype=np.float64)
            figure.add(Band(rounds, mean - deviation, mean + deviation, colour))
        width: Literal["thick", ""] = "thick" if method == report.method else ""
        figure.add(Line(rounds, mean, method, colour, width=width, marks=len(rounds) <= _MOST_WITH_MARKERS))
    text = f"Global model, over all public test records: {_seeds(report)}{_explained(metric)}"
    text += _mark_majority(figure, report, metric, "level")
    return Card(f"rounds-{metric}", f"{title[0].upper()}{title[1:]} per round", text, figure)


def _seeds(report: ReportRuns) -> str:
    several = any(len(runs) > 1 for runs in report.methods.values())
    return "mean over the seeds, band of one standard deviation." if several else "one run."


def _explained(metric: str) -> str:
    known = METRICS.get(metric)
    if known is None:
        return ""
    better = "Larger" if known.larger_is_better else "Smaller"
    return f" {title_of(metric)}: {known.explanation}. {better} is better."


def _mark_majority(figure: Figure, report: ReportRuns, metric: str, direction: Literal["level", "upright"]) -> str:
    """Draw the accuracy of always answering with the largest class, and say so; nothing for other metrics."""
    share = report.majority_share
    if metric != "accuracy" or share is None:
        return ""
    figure.add(RuleLine(share.mean, direction, GREY, dashes="dotted"))
    return f" Dotted: always the largest class, {share.mean:.3f}."


def final_card(report: ReportRuns, metric: str) -> Card:
    """The final metric of every method: each seed a mark, the mean with its deviation."""
    names = [method for method in report.methods if Spread.of(report.values(method, metric))]
    figure = Figure(PlotAxis(f"test {title_of(metric)}"), PlotAxis(kind="names"), height=40 + 42 * len(names))
    for method, colour in zip(report.methods, cycle(len(report.methods)), strict=True):
        values = [value for value in report.values(method, metric) if value is not None]
        spread = Spread.of(values)
        if spread is None:
            continue
        where, mean = [method], [spread.mean]
        tips = [f"{method}, a seed: {value:.4g}" for value in values]
        figure.add(Marks(values, where * len(values), "", colour, faint=True, tips=tips))
        reach = spread.deviation or 0.0
        low, high = [spread.mean - reach], [spread.mean + reach]
        told = [f"{method}, mean: {spread}"]
        figure.add(Marks(mean, where, "", colour, "diamond", 13, tips=told, low=low, high=high, along="x"))
    text = "Final models. Diamonds: mean over the seeds with one standard deviation; small marks: the seeds."
    text += _mark_majority(figure, report, metric, "upright")
    return Card(f"methods-{metric}", f"Methods compared: {title_of(metric)}", text, figure)


def participation_card(report: ReportRuns) -> Card:
    """Who joined which round."""
    run, silos = report.run, report.silos
    shown = _shown(run.rounds, most=max(1, 20_000 // max(1, len(silos))))
    state = [[_state(log, silo) for log in shown] for silo in silos]
    figure = Figure(PlotAxis("round", whole=True), PlotAxis(kind="names"), height=30 + 24 * min(len(silos), 30))
    figure.add(CellGrid([log.round for log in shown], silos, state, _KINDS))
    empty = sum(not log.joined for log in run.rounds)
    text = f"{empty:,} of {len(run.rounds):,} rounds without any update; those left the model as it was."
    if len(shown) < len(run.rounds):
        text += f" {len(shown):,} rounds are shown, evenly spread."
    return Card("participation", "Who took part", text, figure)


def time_card(run: RunResult) -> Card:
    """Seconds per round."""
    shown = _shown(run.rounds)
    figure = Figure(PlotAxis("round", whole=True), PlotAxis("seconds"))
    figure.add(Bars([log.round for log in shown], [log.seconds for log in shown]))
    text = f"As the server saw it, with measuring; {run.seconds:.1f} seconds in all."
    return Card("time", "Run time per round", text, figure)


def curve_card(public: PublicPlan, smallest: float = _SMALLEST_SHOWN) -> Card:
    """The price of sampling: what a record pays for being drawn with probability q."""
    q = np.geomspace(smallest, 1.0, _CURVE_POINTS)
    cost = public.curve.epsilon(q)
    drawn = cost > 0.0
    figure = Figure(PlotAxis("sampling probability q", "log"), PlotAxis("cost ε of the whole run", "log"))
    figure.add(Line(q[drawn], cost[drawn], f"ε*(q), {public.accountant}", GREY))
    return Card("curve", "What a sampling probability costs", f"At δ = {public.delta:g}, over the whole run.", figure)


def _by_round(runs: Sequence[RunResult], metric: str) -> tuple[list[int], list[Spread]]:
    """The rounds in which some seed has a value, and the values."""
    values: dict[int, list[float]] = {}
    for run in runs:
        for log in run.rounds:
            value = None if log.score is None else log.score.values.get(metric)
            if value is not None:
                values.setdefault(log.round, []).append(value)
    rounds = np.array(sorted(values), dtype=np.int64)
    shown: list[int] = some(rounds).tolist()
    spreads = [Spread.of(values[number]) for number in shown]
    return shown, [spread for spread in spreads if spread is not None]


def _shown(rounds: Sequence[RoundLog], most: int = 1_000) -> list[RoundLog]:
    rows: NDArray[np.int64] = some(np.arange(len(rounds)), most)
    return [rounds[row] for row in rows.tolist()]


def _state(log: RoundLog, silo: str) -> int:
    return 2 if silo in log.rejected else int(silo in log.joined)
