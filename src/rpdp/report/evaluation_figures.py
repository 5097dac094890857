"""Private evaluation in a report: metrics with intervals, and curves with error bars. All of it is public."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rpdp.figures import GREY, Figure, Line, PlotAxis
from rpdp.metrics import title_of
from rpdp.report.rendering import Card, Column, Table
from rpdp.statistics.estimate import LEVEL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CHOSEN_BY_VALUE = (
    "the intervals hold for all of them together, so also for the chosen one; its value is flattered by the choice"
)

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
        [f"{title_of(one['name'])}{', ' + score['group'] if score['group'] else ''}", *_interval(one), one["method"]]
        for score in facts["scores"]
        for one in score["metrics"]
    ]
    first = facts["scores"][0]["metrics"][0]
    caption = (
        f"The final model, from noisy sums that silos released and charged. Intervals at {100 * LEVEL:g} %"
        f"{' for all compared models together' if len(facts['models']) > 1 else ''}"
    )
    assumed = "; ".join(first["assumptions"])
    return Table(columns, rows, f"{caption} speak of {first['speaks_of']}. Taken for granted: {assumed}.")


def compared_table(facts: Mapping[str, Any]) -> Table | None:
    """The first metric of every model that was compared; None if there was one model only."""
    if len(facts["models"]) < 2:
        return None
    firsts = {model["name"]: model["scores"][0]["metrics"][0] for model in facts["models"]}
    columns = [Column("model", is_text=True), Column(title_of(next(iter(firsts.values()))["name"])), Column("interval")]
    rows = [[f"{name}{', chosen' if name == facts['chosen'] else ''}", *_interval(one)] for name, one in firsts.items()]
    return Table(columns, rows, f"The models that were compared: {CHOSEN_BY_VALUE}.")


def confusion_table(facts: Mapping[str, Any]) -> Table | None:
    """Of all records: the share of each true and predicted class, with its interval; None if classes were not seen."""
    shares = facts["scores"][0]["confusion"]
    if not shares:
        return None
    columns = [Column("true class", is_text=True), *(Column(f"called {place}") for place in range(len(shares)))]
    rows = [[str(place), *(_share(one) for one in row)] for place, row in enumerate(shares)]
    return Table(columns, rows, "Confusion matrix: shares of all records, each with its interval.")


def _interval(one: Mapping[str, Any]) -> tuple[str, str]:
    return f"{one['value']:.3f}", f"{one['low']:.3f} to {one['high']:.3f}"


def _share(one: Sequence[float | None]) -> str:
    value, low, high = one
    return f"{'unknown' if value is None else f'{value:.3f}'} ({low:.3f} to {high:.3f})"


def evaluation_cards(facts: Mapping[str, Any]) -> list[Card]:
    """The ROC and the calibration curve of all records, if scores were measured."""
    whole = facts["scores"][0]
    return [_card(name, title, x, y, whole[name]) for name, title, x, y in _CURVES if whole[name]]


def _card(name: str, title: str, x: str, y: str, points: Sequence[Mapping[str, Any]]) -> Card:
    """A curve of points with vertical intervals."""
    shown = [point for point in points if point["x"][0] is not None and point["y"][0] is not None]
    figure = Figure(PlotAxis(x, limits=(0.0, 1.0)), PlotAxis(y, limits=(0.0, 1.0)))
    figure.add(
        Line([0, 1], [0, 1], colour=GREY, dashes="dotted"),
        Line(
            [point["x"][0] for point in shown],
            [point["y"][0] for point in shown],
            title,
            marks=True,
            low=[point["y"][1] for point in shown],
            high=[point["y"][2] for point in shown],
        ),
    )
    return Card(f"private-{name}", title, "Each point by itself, with its interval.", figure)
