"""Interactive figures of budgets, plans and the frontier, in self-contained HTML files that open offline."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from plotly.subplots import make_subplots

from rpdp.private_files import private_file
from rpdp.report.figure_style import BLUE, GREEN, GREY, LOG, ORANGE, cycle, some

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import plotly.graph_objects as go
    from numpy.typing import NDArray

    from rpdp.planning import FittingRuns, FrontierPoint, SiloPlan

_CURVE_POINTS = 60
_TICKS = (0.01, 0.1, 1, 10, 100, 1000)


def write_figure(figure: go.Figure, path: str | Path) -> Path:
    """Write a figure as one HTML file with everything inside."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    html = figure.to_html(include_plotlyjs=True, full_html=True, config={"displaylogo": False, "responsive": True})
    with private_file(path, overwrite=True) as file:  # each budget is a point in it
        file.write(html.encode())
    return path


def budgets_figure(samples: Mapping[str, NDArray[np.float64]]) -> go.Figure:
    """Budgets by distribution, as in the first column of the paper's figure 8: each record a point, and a histogram."""
    names = list(samples)
    figure = make_subplots(
        rows=len(names),
        cols=2,
        column_widths=[0.6, 0.4],
        subplot_titles=[title for name in names for title in (name, "")],
        vertical_spacing=0.3 / len(names),
    )
    for row, (name, colour) in enumerate(zip(names, cycle(len(names)), strict=True), start=1):
        values = samples[name]
        shown = some(np.arange(values.size))
        marks = {"size": 3, "color": colour}
        figure.add_scatter(x=shown + 1, y=values[shown], mode="markers", name=name, marker=marks, row=row, col=1)
        figure.add_histogram(x=np.log10(values), marker={"color": colour}, name=name, nbinsx=60, row=row, col=2)
        figure.update_yaxes(title_text="budget ε", row=row, col=1, **LOG)
        figure.update_xaxes(title_text="record", row=row, col=1)
        ticks = {"tickvals": [math.log10(tick) for tick in _TICKS], "ticktext": [f"{tick:g}" for tick in _TICKS]}
        figure.update_xaxes(title_text="budget ε", row=row, col=2, **ticks)
        figure.update_yaxes(title_text="records", row=row, col=2)
    figure.update_layout(showlegend=False)
    return _finish(figure, "Privacy budgets", height=300 * len(names) + 100)


def plan_figure(plans: Mapping[str, SiloPlan]) -> go.Figure:
    """The price of sampling, ε*(q), with the records of each silo on it, and what each budget group contributes."""
    titles = ("what a sampling probability costs", "who makes up the batch")
    figure = make_subplots(rows=1, cols=2, subplot_titles=titles, horizontal_spacing=0.12)
    _add_curve(figure, plans)
    for (name, plan), colour in zip(plans.items(), cycle(len(plans)), strict=True):
        drawn = some(np.flatnonzero(plan.q > 0.0))
        marks = {"size": 7, "color": colour, "opacity": 0.6}
        figure.add_scatter(
            x=plan.q[drawn], y=plan.run_epsilon[drawn], mode="markers", name=name, marker=marks, row=1, col=1
        )
        groups = plan.groups()
        budget = [math.sqrt(group.low * group.high) for group in groups]
        for what, dash in (("batch", "solid"), ("records", "dot")):
            shares = [100.0 * getattr(group, f"share_of_{what}") for group in groups]
            label = f"{name}: share of the {what}"
            line = {"color": colour, "dash": dash}
            figure.add_scatter(x=budget, y=shares, mode="lines+markers", name=label, line=line, row=1, col=2)
    figure.update_xaxes(title_text="sampling probability q", row=1, col=1, **LOG)
    figure.update_yaxes(title_text="cost ε", row=1, col=1, **LOG)
    figure.update_xaxes(title_text="budget ε", row=1, col=2, **LOG)
    figure.update_yaxes(title_text="share", ticksuffix=" %", rangemode="tozero", row=1, col=2)
    return _finish(figure, "From budgets to sampling probabilities", height=520)


def frontier_figure(points: Sequence[FrontierPoint], knee: int) -> go.Figure:
    """Signal-to-noise and compute over σ, with the knee marked."""
    sigma = [point.noise_multiplier for point in points]
    signal = [point.signal_to_noise for point in points]
    compute = [point.gradients_per_round for point in points]
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.08)
    for row, (name, values, colour) in enumerate(
        (("signal to noise Σq/σ", signal, BLUE), ("gradients per round", compute, ORANGE)), start=1
    ):
        line = {"color": colour}
        figure.add_scatter(x=sigma, y=values, mode="lines+markers", name=name, line=line, row=row, col=1)
        figure.update_yaxes(title_text=name, rangemode="tozero", row=row, col=1)
    figure.add_vline(x=sigma[knee], line={"color": GREEN, "dash": "dash"})
    where = {"x": math.log10(sigma[knee]), "y": 0.0, "xanchor": "left", "yanchor": "bottom", "showarrow": False}
    figure.add_annotation(text=f" knee: σ = {sigma[knee]:g}", font={"color": GREEN}, row=1, col=1, **where)
    ticks = {"tickvals": sigma, "ticktext": [f"{value:g}" for value in sigma]}
    figure.update_xaxes(type="log", **ticks)
    figure.update_xaxes(title_text="noise multiplier σ", row=2, col=1)
    figure.update_layout(showlegend=False)
    return _finish(figure, "Sampling against noise", height=620)


def runs_figure(planned: Mapping[str, FittingRuns]) -> go.Figure:
    """Signal-to-noise by the number of the run, until the budgets pay for no more; one line for each programme."""
    figure = make_subplots(rows=1, cols=1)
    for (name, found), colour in zip(planned.items(), cycle(len(planned)), strict=True):
        # The signal changes only where somebody's runs end: those runs, and the one after, are all that is needed.
        ends = np.unique(np.concatenate([[1], found.in_full, found.in_full + 1, found.in_full + 2]))
        runs = ends[(ends >= 1) & (ends <= found.runs_in_part + 1)].tolist()
        signal = [found.signal_to_noise(run) for run in runs]
        line = {"color": colour, "shape": "hv"}
        figure.add_scatter(x=runs, y=signal, mode="lines+markers", name=name, line=line)
    figure.update_xaxes(title_text="run", type="log")
    figure.update_yaxes(title_text="signal to noise Σq/σ", rangemode="tozero")
    return _finish(figure, "What each run of a lifetime gets", height=480)


def _add_curve(figure: go.Figure, plans: Mapping[str, SiloPlan]) -> None:
    """ε*(q) from somewhat below the smallest probability in use up to 1."""
    public = next(iter(plans.values())).public
    smallest = min((float(plan.q[plan.q > 0.0].min()) for plan in plans.values() if (plan.q > 0.0).any()), default=1e-3)
    q = np.geomspace(smallest / 3.0, 1.0, _CURVE_POINTS)
    cost = public.curve.epsilon(q)
    shown = cost > 0.0
    name = f"ε*(q), {public.accountant}"
    figure.add_scatter(x=q[shown], y=cost[shown], mode="lines", name=name, line={"color": GREY}, row=1, col=1)


def _finish(figure: go.Figure, title: str, height: int) -> go.Figure:
    figure.update_layout(
        title=title,
        template="plotly_white",
        height=height,
        margin={"t": 90, "b": 60},
        legend={"orientation": "h", "yref": "container", "y": 0.01, "yanchor": "bottom"},
    )
    return figure
