"""Figures of the run: metrics on public test records, participation, the price of sampling; for the silo also time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rpdp.metrics import METRICS, title_of
from rpdp.report.figure_style import BLUE, GREY, LOG, ORANGE, blank, cycle, in_report, label, short_label, some
from rpdp.report.rendering import Card
from rpdp.spread import Spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    import plotly.graph_objects as go
    from numpy.typing import NDArray

    from rpdp.federation import RoundLog, RunResult
    from rpdp.planning import PublicPlan
    from rpdp.report.report_runs import ReportRuns

_CURVE_POINTS = 60
_SMALLEST_SHOWN = 1e-3
"""Where the curve starts in the edition to share: a constant, since the smallest q in use is a secret."""

_MOST_WITH_MARKERS = 40
_MOST_WITH_EVERY_TICK = 12
"""Rounds that each get a tick; more, and plotly chooses whole numbers by itself."""

_SAT_OUT = "#e8ebef"


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
    figure = blank()
    for (method, runs), colour in zip(report.methods.items(), cycle(len(report.methods)), strict=True):
        rounds, spreads = _by_round(runs, metric)
        mean = np.array([spread.mean for spread in spreads])
        if not rounds:
            continue
        if all(spread.deviation is not None for spread in spreads):
            deviation = np.array([spread.deviation for spread in spreads], dtype=np.float64)
            outline = {
                "x": [*rounds, *reversed(rounds)],
                "y": np.concatenate([mean + deviation, (mean - deviation)[::-1]]),
            }
            band = {"fill": "toself", "fillcolor": colour, "opacity": 0.15, "line": {"width": 0}}
            figure.add_scatter(
                **outline, **band, mode="lines", hoverinfo="skip", legendgroup=label(method), showlegend=False
            )
        mode = "lines+markers" if len(rounds) <= _MOST_WITH_MARKERS else "lines"
        line = {"color": colour, "width": 3 if method == report.method else 2}
        figure.add_scatter(x=rounds, y=mean, mode=mode, name=label(method), line=line, legendgroup=label(method))
    figure.update_xaxes(**_round_ticks(report.run.rounds))
    in_report(figure, x="round", y=f"test {title}")
    text = f"Global model, over all public test records: {_seeds(report)}{_explained(metric)}"
    text += _mark_majority(figure, report, metric, "h")
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


def _mark_majority(figure: go.Figure, report: ReportRuns, metric: str, direction: Literal["h", "v"]) -> str:
    """Draw the accuracy of always answering with the largest class, and say so; nothing for other metrics."""
    share = report.majority_share
    if metric != "accuracy" or share is None:
        return ""
    line = {"color": GREY, "dash": "dot", "width": 1}
    if direction == "h":
        figure.add_hline(y=share.mean, line=line)
    else:
        figure.add_vline(x=share.mean, line=line)
    return f" Dotted: always the largest class, {share.mean:.3f}."


def final_card(report: ReportRuns, metric: str) -> Card:
    """The final metric of every method: each seed a mark, the mean with its deviation."""
    names = [method for method in report.methods if Spread.of(report.values(method, metric))]
    figure = blank()
    for method, colour in zip(report.methods, cycle(len(report.methods)), strict=True):
        values = [value for value in report.values(method, metric) if value is not None]
        spread = Spread.of(values)
        if spread is None:
            continue
        y = [label(method)] * len(values)
        each = {"color": colour, "size": 7, "opacity": 0.4}
        figure.add_scatter(x=values, y=y, mode="markers", marker=each, name=label(method), showlegend=False)
        figure.add_scatter(
            x=[spread.mean],
            y=y[:1],
            mode="markers",
            marker={"color": colour, "size": 13, "symbol": "diamond"},
            error_x=None
            if spread.deviation is None
            else {"type": "data", "array": [spread.deviation], "color": colour, "thickness": 2},
            name=f"{label(method)}, mean",
            showlegend=False,
        )
    figure.update_yaxes(type="category", autorange="reversed", **_short_ticks(names))
    in_report(figure, x=f"test {title_of(metric)}", y="", height=150 + 42 * len(names))
    text = "Final models. Diamonds: mean over the seeds with one standard deviation; small marks: the seeds."
    text += _mark_majority(figure, report, metric, "v")
    return Card(f"methods-{metric}", f"Methods compared: {title_of(metric)}", text, figure)


def participation_card(report: ReportRuns) -> Card:
    """Who joined which round."""
    run, silos = report.run, report.silos
    shown = _shown(run.rounds, most=max(1, 20_000 // max(1, len(silos))))
    state = [[_state(log, silo) for log in shown] for silo in silos]
    figure = blank()
    scale = [(0.0, _SAT_OUT), (0.33, _SAT_OUT), (0.33, BLUE), (0.67, BLUE), (0.67, ORANGE), (1.0, ORANGE)]
    gap = 1 if len(shown) <= 100 else 0
    words = [[("sat out", "joined", "rejected")[value] for value in row] for row in state]
    figure.add_heatmap(
        x=[log.round for log in shown],
        y=[label(silo) for silo in silos],
        z=state,
        zmin=0,
        zmax=2,
        colorscale=scale,
        showscale=False,
        xgap=gap,
        ygap=gap,
        text=words,
        hovertemplate="round %{x}, %{y}: %{text}<extra></extra>",
        showlegend=False,
    )
    for name, colour in (("joined", BLUE), ("sat out", _SAT_OUT), ("update rejected", ORANGE)):
        if name != "update rejected" or any(log.rejected for log in run.rounds):
            mark = {"color": colour, "symbol": "square", "size": 11}
            figure.add_scatter(x=[None], y=[None], mode="markers", marker=mark, name=name)
    figure.update_yaxes(type="category", autorange="reversed", showgrid=False, **_short_ticks(silos))
    figure.update_xaxes(showgrid=False, zeroline=False, **_round_ticks(shown))
    in_report(figure, x="round", y="", height=150 + 24 * min(len(silos), 30))
    empty = sum(not log.joined for log in run.rounds)
    text = f"{empty:,} of {len(run.rounds):,} rounds without any update; those left the model as it was."
    if len(shown) < len(run.rounds):
        text += f" {len(shown):,} rounds are shown, evenly spread."
    return Card("participation", "Who took part", text, figure)


def time_card(run: RunResult) -> Card:
    """Seconds per round."""
    shown = _shown(run.rounds)
    figure = blank()
    seconds = [log.seconds for log in shown]
    figure.add_bar(x=[log.round for log in shown], y=seconds, marker={"color": BLUE}, name="seconds")
    figure.update_xaxes(**_round_ticks(shown))
    in_report(figure, x="round", y="seconds")
    text = f"As the server saw it, with measuring; {run.seconds:.1f} seconds in all."
    return Card("time", "Run time per round", text, figure)


def curve_card(public: PublicPlan, smallest: float = _SMALLEST_SHOWN) -> Card:
    """The price of sampling: what a record pays for being drawn with probability q."""
    q = np.geomspace(smallest, 1.0, _CURVE_POINTS)
    cost = public.curve.epsilon(q)
    drawn = cost > 0.0
    figure = blank()
    name = f"ε*(q), {public.accountant}"
    figure.add_scatter(x=q[drawn], y=cost[drawn], mode="lines", name=name, line={"color": GREY, "width": 2})
    figure.update_xaxes(**LOG)
    figure.update_yaxes(**LOG)
    in_report(figure, x="sampling probability q", y="cost ε of the whole run")
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


def _round_ticks(rounds: Sequence[RoundLog]) -> dict[str, int]:
    return {"dtick": 1} if len(rounds) <= _MOST_WITH_EVERY_TICK else {}


def _short_ticks(names: Sequence[str]) -> dict[str, Any]:
    """Ticks with short texts; the categories themselves keep their whole names, which are unique."""
    return {"tickvals": [label(name) for name in names], "ticktext": [short_label(name) for name in names]}


def _state(log: RoundLog, silo: str) -> int:
    return 2 if silo in log.rejected else int(silo in log.joined)
