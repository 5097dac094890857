"""Figures of budgets, plans and the frontier, each on a page of its own that opens offline."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rpdp.figures import BLUE, GREEN, GREY, ORANGE, Bars, Figure, Line, Marks, PlotAxis, RuleLine, cycle, some
from rpdp.report.rendering import Card, write_html

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rpdp.planning import FittingRuns, FrontierPoint, SiloPlan

_CURVE_POINTS = 60
_BINS = 60


@dataclass(frozen=True)
class FigurePage:
    """Figures that belong together, with a title."""

    title: str
    cards: tuple[Card, ...]


def write_figure(page: FigurePage, path: str | Path) -> Path:
    """Write figures as one HTML file with everything inside, for its owner only: each budget is a point in it."""
    return write_html(Path(path), "figures.html.j2", title=page.title, cards=page.cards, sections=())


def budgets_figure(samples: Mapping[str, NDArray[np.float64]]) -> FigurePage:
    """Budgets by distribution, as in the first column of the paper's figure 8: each record a point, and a histogram."""
    cards = []
    for number, ((name, values), colour) in enumerate(zip(samples.items(), cycle(len(samples)), strict=True)):
        shown = some(np.arange(values.size))
        points = Figure(PlotAxis("record"), PlotAxis("budget ε", "log"))
        points.add(Marks(shown + 1, values[shown], "", colour, sizes=3.0))
        cards.append(Card(f"records-{number}", name, f"{values.size:,} records, {shown.size:,} of them drawn.", points))
        counts, edges = np.histogram(np.log10(values), bins=_BINS)
        ends = 10.0**edges
        histogram = Figure(PlotAxis("budget ε", "log"), PlotAxis("records"))
        histogram.add(Bars(np.sqrt(ends[:-1] * ends[1:]), counts, "", colour, edges=ends))
        cards.append(Card(f"histogram-{number}", f"{name}: histogram", "Bars of equal width in log ε.", histogram))
    return FigurePage("Privacy budgets", tuple(cards))


def plan_figure(plans: Mapping[str, SiloPlan]) -> FigurePage:
    """The price of sampling, ε*(q), with the records of each silo on it, and what each budget group contributes."""
    price = Figure(PlotAxis("sampling probability q", "log"), PlotAxis("cost ε", "log"), height=360)
    price.add(_curve(plans))
    shares = Figure(PlotAxis("budget ε", "log"), PlotAxis("share", from_zero=True, unit="%"), height=360)
    for (name, plan), colour in zip(plans.items(), cycle(len(plans)), strict=True):
        drawn = some(np.flatnonzero(plan.q > 0.0))
        price.add(Marks(plan.q[drawn], plan.run_epsilon[drawn], name, colour, faint=True))
        groups = plan.groups()
        budget = [math.sqrt(group.low * group.high) for group in groups]
        batch, records = [one.share_of_batch for one in groups], [one.share_of_records for one in groups]
        shares.add(Line(budget, batch, f"{name}: share of the batch", colour, marks=True))
        shares.add(Line(budget, records, f"{name}: share of the records", colour, dashes="dotted", marks=True))
    cards = (
        Card("price", "What a sampling probability costs", "Each mark is a record on the curve of the plan.", price),
        Card("shares", "Who makes up the batch", "By the budget of the records.", shares),
    )
    return FigurePage("From budgets to sampling probabilities", cards)


def frontier_figure(points: Sequence[FrontierPoint], knee: int) -> FigurePage:
    """Signal-to-noise and compute over σ, with the knee marked."""
    sigma = [point.noise_multiplier for point in points]
    shown = (
        ("signal", "signal to noise Σq/σ", [point.signal_to_noise for point in points], BLUE),
        ("compute", "gradients per round", [point.gradients_per_round for point in points], ORANGE),
    )
    cards = []
    for name, title, values, colour in shown:
        figure = Figure(PlotAxis("noise multiplier σ", "log"), PlotAxis(title, from_zero=True))
        figure.add(Line(sigma, values, "", colour, marks=True))
        figure.add(RuleLine(sigma[knee], "upright", GREEN, text=f"knee: σ = {sigma[knee]:g}"))
        cards.append(Card(name, title[0].upper() + title[1:], "Beyond the knee, more noise stops paying off.", figure))
    return FigurePage("Sampling against noise", tuple(cards))


def runs_figure(planned: Mapping[str, FittingRuns]) -> FigurePage:
    """Signal-to-noise by the number of the run, until the budgets pay for no more; one line for each programme."""
    figure = Figure(PlotAxis("run", "log"), PlotAxis("signal to noise Σq/σ", from_zero=True), height=360)
    for (name, found), colour in zip(planned.items(), cycle(len(planned)), strict=True):
        # The signal changes only where somebody's runs end: those runs, and the one after, are all that is needed.
        ends = np.unique(np.concatenate([[1], found.in_full, found.in_full + 1, found.in_full + 2]))
        runs = ends[(ends >= 1) & (ends <= found.runs_in_part + 1)].tolist()
        signal = [found.signal_to_noise(run) for run in runs]
        figure.add(Line(runs, signal, name, colour, marks=True, step=True))
    text = "A step down: some records cannot pay for a further run."
    return FigurePage("What each run of a lifetime gets", (Card("runs", "Signal by run", text, figure),))


def _curve(plans: Mapping[str, SiloPlan]) -> Line:
    """ε*(q) from somewhat below the smallest probability in use up to 1."""
    public = next(iter(plans.values())).public
    smallest = min((float(plan.q[plan.q > 0.0].min()) for plan in plans.values() if (plan.q > 0.0).any()), default=1e-3)
    q = np.geomspace(smallest / 3.0, 1.0, _CURVE_POINTS)
    cost = public.curve.epsilon(q)
    drawn = cost > 0.0
    return Line(q[drawn], cost[drawn], f"ε*(q), {public.accountant}", GREY)
