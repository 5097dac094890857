"""Figures of statistics: numbers with their intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpdp.figures import Bars, Figure, PlotAxis, short_label
from rpdp.report.planning_figures import FigurePage
from rpdp.report.rendering import Card

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rpdp.statistics import NoisyEstimate


def statistics_figure(groups: Sequence[tuple[str, Sequence[NoisyEstimate]]]) -> FigurePage:
    """Bars with intervals, a figure for each statistic; single numbers come first.

    Args:
        groups: The name of each statistic with its estimates.
    """
    single = [estimates[0] for _, estimates in groups if len(estimates) == 1]
    several = [(name, estimates) for name, estimates in groups if len(estimates) > 1]
    cards = []
    for number, (name, estimates) in enumerate([*((each.name, [each]) for each in single), *several]):
        figure = Figure(PlotAxis(kind="names"), PlotAxis("value"))
        figure.add(
            Bars(
                [each.name for each in estimates],
                [each.value for each in estimates],
                low=[each.low for each in estimates],
                high=[each.high for each in estimates],
            )
        )
        cards.append(Card(f"statistic-{number}", short_label(name, 60), "", figure))
    first = groups[0][1][0]
    title = f"Statistics, estimator {first.estimator}; bars show intervals of {100 * first.level:g} %"
    return FigurePage(title, tuple(cards))
