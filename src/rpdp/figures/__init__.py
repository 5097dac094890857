"""Figures as data, drawn as SVG where the page is made. They need no script and nothing from another host."""

from __future__ import annotations

from rpdp.figures.axes import PlotAxis
from rpdp.figures.drawing import draw, style_sheet
from rpdp.figures.figure import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PALE,
    VIOLET,
    Band,
    Bars,
    CellGrid,
    Figure,
    Line,
    Marks,
    RuleLine,
    cycle,
    short_label,
    some,
)

__all__ = [
    "BLUE",
    "GREEN",
    "GREY",
    "ORANGE",
    "PALE",
    "VIOLET",
    "Band",
    "Bars",
    "CellGrid",
    "Figure",
    "Line",
    "Marks",
    "PlotAxis",
    "RuleLine",
    "cycle",
    "draw",
    "short_label",
    "some",
    "style_sheet",
]
