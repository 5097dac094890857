"""A figure as data: two axes and the layers between them. Drawing is left to `drawing`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from rpdp.figures.axes import PlotAxis

    Values = Sequence[float] | NDArray[np.float64] | NDArray[np.int64]
    Places = Values | Sequence[str]

BLUE, ORANGE, GREEN, VIOLET, GREY, RED, NAVY, PALE = range(8)
"""Colours by number; `figures.css` says what they are, in a light and in a dark page."""

_CYCLE = (BLUE, ORANGE, GREEN, VIOLET, RED, GREY, NAVY)
MOST_MARKS = 1_000

Symbol = Literal["circle", "cross", "diamond"]


@dataclass(frozen=True)
class Line:
    """A line through points; with `marks` each point is a mark that tells its values. `step` draws stairs."""

    x: Places
    y: Places
    name: str = ""
    colour: int = BLUE
    dashes: Literal["", "dashed", "dotted"] = ""
    width: Literal["thin", "", "thick"] = ""
    marks: bool = False
    step: bool = False
    low: Values | None = None
    high: Values | None = None


@dataclass(frozen=True)
class Band:
    """What lies between two lines."""

    x: Values
    low: Values
    high: Values
    colour: int = GREY
    name: str = ""


@dataclass(frozen=True)
class Marks:
    """Points, each by itself. `low` and `high` draw an interval along an axis; `tips` say what a pointer is told."""

    x: Places
    y: Places
    name: str = ""
    colour: int = BLUE
    symbol: Symbol = "circle"
    sizes: Values | float = 7.0
    faint: bool = False
    tips: Sequence[str] | None = None
    low: Values | None = None
    high: Values | None = None
    along: Literal["x", "y"] = "y"


@dataclass(frozen=True)
class Bars:
    """Upright bars; those of several layers at the same place stand side by side, or on each other if `stacked`.

    `edges` gives each bar its own left and right end, as in a histogram.
    """

    x: Places
    y: Values
    name: str = ""
    colour: int = BLUE
    low: Values | None = None
    high: Values | None = None
    edges: Values | None = None
    stacked: bool = False


@dataclass(frozen=True)
class CellGrid:
    """A grid: `states[row][column]` is an index into `kinds`, the words and colours of what a cell may be."""

    columns: Sequence[int]
    rows: Sequence[str]
    states: Sequence[Sequence[int]]
    kinds: Sequence[tuple[str, int]]


@dataclass(frozen=True)
class RuleLine:
    """A straight line across the figure, upright or level, with a word beside it."""

    at: float
    direction: Literal["upright", "level"]
    colour: int = GREY
    dashes: Literal["", "dashed", "dotted"] = "dashed"
    text: str = ""


Layer = Line | Band | Marks | Bars | CellGrid | RuleLine


@dataclass
class Figure:
    """Axes and layers; later layers lie above earlier ones. The height is that of the plot, in pixels."""

    x: PlotAxis
    y: PlotAxis
    height: int = 270
    layers: list[Layer] = field(default_factory=list)

    def add(self, *layers: Layer) -> Figure:
        """Put layers on top; returns the figure."""
        self.layers.extend(layers)
        return self


def cycle(count: int) -> list[int]:
    """A colour for each of `count` things."""
    return [_CYCLE[i % len(_CYCLE)] for i in range(count)]


def some(rows: NDArray[np.int64], most: int = MOST_MARKS) -> NDArray[np.int64]:
    """At most `most` of these rows, evenly spread: a figure needs no more, and a page stays small."""
    return rows[:: -(-rows.size // most) or 1]


def short_label(name: str, most: int = 20) -> str:
    """A label for an axis: a long name loses its middle, or it would take the room of the figure."""
    kept = most // 2
    return name if len(name) <= most else f"{name[:kept]}…{name[-kept:]}"
