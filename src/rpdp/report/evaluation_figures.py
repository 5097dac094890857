"""Private evaluation in a report: metrics with intervals, and curves with error bars. All of it is public."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rpdp.metrics import title_of
from rpdp.report.figure_style import BLUE, GREY, blank, in_report
from rpdp.report.rendering import Card, Column, Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_CURVES = (
    ("roc", "ROC curve", "share of class 0 called 1", "share of class 1 called 1"),
    ("calibration", "Calibration", "stated probability of class 1", "share of class 1 that was seen"),
)


def evaluation_table(facts: Mapping[str, Any]) -> Table:
    """Every metric of every group, with its interval and what that rests on."""
    columns = [
        Column("metric", is_text=True),
        Column("estimate"),
        Column("interval"),
        Column("how it was made", is_text=True),
    ]
    rows = [
        [
            f"{title_of(one['name'])}{', ' + score['group'] if score['group'] else ''}",
            f"{one['value']:.3f}",
            f"{one['low']:.3f} to {one['high']:.3f}",
            one["method"],
        ]
        for score in facts["scores"]
        for one in score["metrics"]
    ]
    first = facts["scores"][0]["metrics"][0]
    caption = (
        f"The final model, from noisy sums that silos released and charged. Intervals at {100 * first['level']:g} %"
    )
    assumed = "; ".join(first["assumptions"])
    return Table(columns, rows, f"{caption} speak of {first['speaks_of']}. Taken for granted: {assumed}.")


def evaluation_cards(facts: Mapping[str, Any]) -> list[Card]:
    """The ROC and the calibration curve of all records, if scores were measured."""
    whole = facts["scores"][0]
    return [_card(name, title, x, y, whole[name]) for name, title, x, y in _CURVES if whole[name]]


def _card(name: str, title: str, x: str, y: str, points: Sequence[Mapping[str, Any]]) -> Card:
    """A curve of points with vertical intervals."""
    shown = [point for point in points if point["x"][0] is not None and point["y"][0] is not None]
    values = [point["y"][0] for point in shown]
    figure = blank()
    figure.add_scatter(x=[0, 1], y=[0, 1], mode="lines", line={"color": GREY, "dash": "dot"}, showlegend=False)
    figure.add_scatter(
        x=[point["x"][0] for point in shown],
        y=values,
        mode="lines+markers",
        line={"color": BLUE},
        name=title,
        showlegend=False,
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [point["y"][2] - value for point, value in zip(shown, values, strict=True)],
            "arrayminus": [value - point["y"][1] for point, value in zip(shown, values, strict=True)],
        },
    )
    figure.update_xaxes(range=[0, 1])
    figure.update_yaxes(range=[0, 1])
    in_report(figure, x=x, y=y)
    return Card(f"private-{name}", title, "Each point by itself, with its interval.", figure)
