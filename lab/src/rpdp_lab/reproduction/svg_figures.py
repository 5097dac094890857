"""Small figures as SVG text: a grid of panels with lines, dots and bars. The same numbers give the same bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Literal

from rpdp.figures.axes import decades, limits_of, linear_ticks, placed, usable

if TYPE_CHECKING:
    from collections.abc import Sequence

COLOURS = ("#1f5fa8", "#d9731a", "#2c8a57", "#7b4ea3", "#8a8f98", "#b5304a", "#17899b", "#8a6d1d")
_INK, _GRID = "#2a3f5f", "#e4e9f0"
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 10.0, 26.0, 38.0
_LEGEND_ROW, _LETTER = 16.0, 6.6

Number = float | None


@dataclass(frozen=True)
class Series:
    """The points of one name. Points without a value (None, or not positive on a logarithmic axis) are left out."""

    name: str
    x: Sequence[float]
    y: Sequence[Number]
    colour: int = 0
    kind: Literal["line", "dots", "bars"] = "line"
    dashed: bool = False


@dataclass(frozen=True)
class Panel:
    """One pair of axes. Ranges that are not given come from the points."""

    title: str
    x: str
    y: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    y_range: tuple[float, float] | None = None
    x_range: tuple[float, float] | None = None


@dataclass(frozen=True)
class _Axis:
    low: float
    high: float
    log: bool
    start: float
    length: float

    def place(self, value: float) -> float:
        return self.start + self.length * placed(value, self.low, self.high, log=self.log)

    def holds(self, value: Number) -> bool:
        return usable(value, log=self.log)

    def clipped(self, value: float) -> float:
        return self.place(min(max(value, self.low), self.high))

    def ticks(self) -> list[float]:
        return decades(self.low, self.high) if self.log else linear_ticks(self.low, self.high)


def draw(panels: Sequence[Panel], *, columns: int, note: str, width: float = 300.0, height: float = 230.0) -> str:
    """All panels in rows of `columns`, below them a common legend and a note on where the numbers come from."""
    rows = math.ceil(len(panels) / columns)
    whole = columns * width
    legend, depth = _legend(panels, rows * height, whole)
    depth += _LEGEND_ROW
    legend.append(_text(_LEFT, rows * height + depth - 6, note, faint=True))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole:.0f} {rows * height + depth:.0f}" '
        f'font-family="system-ui, sans-serif" font-size="11" fill="{_INK}">',
        '<rect width="100%" height="100%" fill="#fff"/>',
    ]
    for number, panel in enumerate(panels):
        row, column = divmod(number, columns)
        parts.append(f'<g transform="translate({column * width:.0f} {row * height:.0f})">')
        parts += _panel(panel, width, height)
        parts.append("</g>")
    return "\n".join([*parts, *legend, "</svg>"]) + "\n"


def _panel(panel: Panel, width: float, height: float) -> list[str]:
    across = _axis(panel, _LEFT, width - _LEFT - _RIGHT, vertical=False)
    upward = _axis(panel, height - _BOTTOM, -(height - _BOTTOM - _TOP), vertical=True)
    middle = _LEFT + (width - _LEFT - _RIGHT) / 2
    parts = [
        _text(middle, 15, panel.title, anchor="middle", bold=True),
        _text(middle, height - 6, panel.x, anchor="middle"),
        f'<text transform="translate(11 {_TOP + (height - _BOTTOM - _TOP) / 2:.1f}) rotate(-90)" '
        f'text-anchor="middle">{escape(panel.y)}</text>',
    ]
    for tick in across.ticks():
        at = across.place(tick)
        parts.append(_line(at, _TOP, at, height - _BOTTOM))
        parts.append(_text(at, height - _BOTTOM + 14, _short(tick), anchor="middle"))
    for tick in upward.ticks():
        at = upward.place(tick)
        parts.append(_line(_LEFT, at, width - _RIGHT, at))
        parts.append(_text(_LEFT - 4, at + 4, _short(tick), anchor="end"))
    for series in panel.series:
        parts += _marks(series, across, upward)
    return parts


def _marks(series: Series, across: _Axis, upward: _Axis) -> list[str]:
    colour = COLOURS[series.colour % len(COLOURS)]
    points = [
        (across.clipped(x), upward.clipped(y))
        for x, y in zip(series.x, series.y, strict=True)
        if y is not None and upward.holds(y) and across.holds(x)
    ]
    if series.kind == "bars":
        wide = 0.8 * abs(across.length) / max(1, len(series.x))
        foot = upward.place(upward.low)
        return [
            f'<rect x="{x - wide / 2:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{max(0.0, foot - y):.1f}" '
            f'fill="{colour}"/>'
            for x, y in points
        ]
    if series.kind == "dots":
        return [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{colour}"/>' for x, y in points]
    if not points:
        return []
    dash = ' stroke-dasharray="5 3"' if series.dashed else ""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"{dash}/>']


def _axis(panel: Panel, start: float, length: float, *, vertical: bool) -> _Axis:
    log = panel.log_y if vertical else panel.log_x
    given = panel.y_range if vertical else panel.x_range
    if given is None:
        values = [v for series in panel.series for v in (series.y if vertical else series.x)]
        given = limits_of([v for v in values if v is not None and usable(v, log=log)], log=log)
        if vertical and any(series.kind == "bars" for series in panel.series):
            given = (0.0, given[1])
    return _Axis(*given, log, start, length)


@dataclass
class _Place:
    """Where the next entry of the legend goes."""

    x: float = _LEFT
    y: float = 0.0
    parts: list[str] = field(default_factory=list)


def _legend(panels: Sequence[Panel], top: float, width: float) -> tuple[list[str], float]:
    """One entry per name, in rows, and how high it is."""
    named = {series.name: series for panel in panels for series in panel.series if series.name}
    place = _Place(y=top + _LEGEND_ROW)
    for name, series in named.items():
        needed = 30.0 + _LETTER * len(name)
        if place.x + needed > width and place.x > _LEFT:
            place.x, place.y = _LEFT, place.y + _LEGEND_ROW
        colour, dash = COLOURS[series.colour % len(COLOURS)], ' stroke-dasharray="5 3"' if series.dashed else ""
        place.parts.append(
            f'<line x1="{place.x:.0f}" y1="{place.y - 4:.0f}" x2="{place.x + 16:.0f}" y2="{place.y - 4:.0f}" '
            f'stroke="{colour}" stroke-width="3"{dash}/>'
        )
        place.parts.append(_text(place.x + 20, place.y, name))
        place.x += needed
    return place.parts, (place.y - top + 8.0 if named else 0.0)


def _text(x: float, y: float, text: str, *, anchor: str = "start", bold: bool = False, faint: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ' fill-opacity="0.65"' if faint else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{weight}>{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{_GRID}"/>'


def _short(value: float) -> str:
    if value != 0.0 and (abs(value) >= 1e4 or abs(value) < 1e-3):
        return f"{value:.0e}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")
    return f"{round(value, 6):g}"
