"""Figures of statistics: numbers with their intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plotly.subplots import make_subplots

from rpdp.report.figure_style import BLUE, short_label

if TYPE_CHECKING:
    from collections.abc import Sequence

    import plotly.graph_objects as go

    from rpdp.statistics import NoisyEstimate


def statistics_figure(groups: Sequence[tuple[str, Sequence[NoisyEstimate]]]) -> go.Figure:
    """Bars with error bars, one row for each statistic that has several numbers; single numbers share the first row.

    Args:
        groups: The name of each statistic with its estimates.
    """
    several = [(name, estimates) for name, estimates in groups if len(estimates) > 1]
    single = [estimates[0] for _, estimates in groups if len(estimates) == 1]
    rows = [(each.name, [each]) for each in single] + several
    figure = make_subplots(rows=len(rows), cols=1, subplot_titles=[short_label(name, 60) for name, _ in rows])
    for row, (_, estimates) in enumerate(rows, start=1):
        values = [each.value for each in estimates]
        figure.add_bar(
            x=[short_label(each.name, 40) for each in estimates],
            y=values,
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [each.high - each.value for each in estimates],
                "arrayminus": [each.value - each.low for each in estimates],
            },
            marker={"color": BLUE},
            row=row,
            col=1,
        )
    first = groups[0][1][0]
    title = f"Statistics, estimator {first.estimator}; bars show intervals of {100 * first.level:g} %"
    figure.update_layout(title=title, template="plotly_white", height=260 * len(rows) + 100, showlegend=False)
    return figure
