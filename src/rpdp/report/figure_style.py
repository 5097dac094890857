"""The style that all figures share: colours, axes, legends, and how many points a browser has to draw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from markupsafe import escape

if TYPE_CHECKING:
    import numpy as np
    import plotly.graph_objects as go
    from numpy.typing import NDArray

BLUE, ORANGE, GREY, GREEN = "#1f5fa8", "#d9731a", "#8a8f98", "#2c8a57"
_COLOURS = (BLUE, ORANGE, GREEN, "#7b4ea3", GREY, "#b5304a", "#17899b", "#8a6d1d")
_INK, _GRID = "#2a3f5f", "#e4e9f0"
MOST_MARKS = 1_000
LOG: dict[str, Any] = {
    "type": "log",
    "nticks": 4,  # plotly then labels 1, 2, 5, 10 … over one or two decades, and powers of ten over more
    "tickformat": "~g",
    "minor": {"showgrid": True, "gridcolor": "#f0f3f7"},
}
LEGEND_ROW = 22
"""Pixels; a legend above a figure gets about one row for every two entries."""


def cycle(count: int) -> list[str]:
    """A colour for each of `count` things."""
    return [_COLOURS[i % len(_COLOURS)] for i in range(count)]


def some(rows: NDArray[np.int64], most: int = MOST_MARKS) -> NDArray[np.int64]:
    """At most `most` of these rows, evenly spread: as many as a browser draws at once."""
    return rows[:: -(-rows.size // most) or 1]


def label(name: str) -> str:
    """A name as plotly shows it literally: plotly reads tags and entities in labels."""
    return str(escape(name))


def short_label(name: str, most: int = 20) -> str:
    """A label for an axis: a long name loses its middle, or it would take the room of the figure."""
    kept = most // 2
    return label(name if len(name) <= most else f"{name[:kept]}…{name[-kept:]}")


def blank() -> go.Figure:
    """An empty figure without plotly's own template, which is slow to copy and 7 kB large."""
    import plotly.graph_objects as go

    return go.Figure(layout={"template": "none"})


def in_report(figure: go.Figure, *, x: str, y: str, height: int = 340) -> go.Figure:
    """Style a figure for a report: no title of its own, legend above, as wide as its place on the page."""
    shown = sum(trace.showlegend is not False for trace in figure.data)
    legend_height = LEGEND_ROW * -(-shown // 2) if shown > 1 else 0
    lines = {"gridcolor": _GRID, "zerolinecolor": _GRID, "ticks": "", "automargin": True}
    figure.update_xaxes(title={"text": x, "font": {"size": 13}, "standoff": 8}, **lines)
    figure.update_yaxes(title={"text": y, "font": {"size": 13}, "standoff": 8}, **lines)
    figure.update_layout(
        height=height + legend_height,
        margin={"t": 16 + legend_height, "r": 12, "b": 48, "l": 52},
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"},
        showlegend=shown > 1,
        font={"family": "system-ui, sans-serif", "size": 13, "color": _INK},
        hoverlabel={"namelength": -1},
    )
    return figure
