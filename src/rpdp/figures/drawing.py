"""Draw a figure as HTML and SVG: one drawing for every width, without a script.

Places are percentages, so a plot is as wide as its room; texts and marks keep their size, on a phone too. Only paths
cannot be written in percentages: they stand in an inner SVG that is stretched, with strokes that are not. Colours,
distances and the dark page come from `figures.css`; no element has a style of its own, so a strict policy allows it.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup, escape

from rpdp.figures.axes import Scale
from rpdp.figures.figure import Band, Bars, CellGrid, Figure, Line, Marks, RuleLine, short_label

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rpdp.figures.axes import PlotAxis
    from rpdp.figures.figure import Layer, Places, Symbol

_STRETCHED = 1000.0
_MOST_CELLS_WITH_TIPS = 600
_LEVEL_TEXT = 34
"""Names below a figure are turned if they have more characters than this together."""

_NEAR_TEXT = 9
"""Turned names that are longer need more room."""

_MOST_LETTERS = 18

_SHAPES: dict[Symbol, str] = {"circle": "", "cross": "M-4-4 4 4M-4 4 4-4", "diamond": "M0-7 7 0 0 7-7 0Z"}


@cache
def style_sheet() -> Markup:
    """The style that drawn figures need on their page, once."""
    return Markup(files("rpdp.figures").joinpath("figures.css").read_text(encoding="utf-8"))  # noqa: S704 our own file


def draw(figure: Figure, label: str) -> Markup:
    """The figure as HTML; `label` says in words what it shows, to whoever cannot see it."""
    return Markup("\n".join(_Drawing(figure).parts(label)))  # noqa: S704 every text is escaped where it is written


class _Drawing:
    """One figure with its scales."""

    def __init__(self, figure: Figure) -> None:
        self._figure = figure
        self._x = _fitted(figure.x, figure.layers, "x")
        self._y = _fitted(figure.y, figure.layers, "y")
        self._bars = [layer for layer in figure.layers if isinstance(layer, Bars)]

    def parts(self, label: str) -> Iterator[str]:
        """The lines of the drawing, from the legend to the title below."""
        lengths = [len(_short(name)) for name in self._x.names]
        turned = sum(lengths) > _LEVEL_TEXT
        room = "" if not turned else " turned far" if max(lengths) > _NEAR_TEXT else " turned"
        widest = max((len(_short(text)) for _, text in self._y.ticks()), default=1)
        yield '<div class="drawn">'
        yield from _legend(self._figure.layers)
        if self._figure.y.title:
            yield f'<div class="y-title">{escape(self._figure.y.title)}</div>'
        yield f'<div class="plot room-{max(widest, 2)}{room}">'
        yield f'<svg class="area" height="{self._figure.height}" role="img" aria-label="{escape(label)}">'
        yield from self._grid(turned=turned)
        for layer in self._figure.layers:
            yield from self._layer(layer)
        yield "</svg>\n</div>"
        if self._figure.x.title:
            yield f'<div class="x-title">{escape(self._figure.x.title)}</div>'
        yield "</div>"

    def _grid(self, *, turned: bool) -> Iterator[str]:
        for value, text in self._x.ticks():
            at = self._across(value)
            if self._x.axis.kind != "names":
                yield f'<line class="grid" x1="{at}" x2="{at}" y1="0" y2="100%"/>'
            yield _below(at, text, turned=turned)
        for value, text in self._y.ticks():
            at = self._down(value)
            yield f'<line class="grid" x1="0" x2="100%" y1="{at}" y2="{at}"/>'
            yield f'<text class="left" y="{at}">{_title(text)}{escape(_short(text))}</text>'

    def _layer(self, layer: Layer) -> Iterator[str]:
        if isinstance(layer, Line):
            yield from self._line(layer)
        elif isinstance(layer, Band):
            yield from self._band(layer)
        elif isinstance(layer, Marks):
            yield from self._marks(layer)
        elif isinstance(layer, Bars):
            yield from self._upright_bars(layer)
        elif isinstance(layer, CellGrid):
            yield from self._cells(layer)
        else:
            yield from self._rule(layer)

    def _line(self, line: Line) -> Iterator[str]:
        points = [(x, y) for _, x, y in self._points(line.x, line.y)]
        if not points:
            return
        places = [(self._stretched_x(x), self._stretched_y(y)) for x, y in points]
        path = [f"M{places[0][0]:.1f} {places[0][1]:.1f}"]
        path += [f"H{x:.1f}V{y:.1f}" if line.step else f"L{x:.1f} {y:.1f}" for x, y in places[1:]]
        classes = f"line c{line.colour} {line.dashes} {line.width}".rstrip()
        yield _stretched(f'<path class="{classes}" d="{"".join(path)}">{_title(line.name)}</path>')
        if line.marks or line.low is not None:
            low, high = line.low, line.high
            yield from self._marks(
                Marks(line.x, line.y, line.name, line.colour, sizes=7.0 if line.marks else 3.0, low=low, high=high)
            )

    def _band(self, band: Band) -> Iterator[str]:
        upper = [
            f"{self._stretched_x(x):.1f} {self._stretched_y(y):.1f}" for _, x, y in self._points(band.x, band.high)
        ]
        lower = [f"{self._stretched_x(x):.1f} {self._stretched_y(y):.1f}" for _, x, y in self._points(band.x, band.low)]
        if upper:
            path = f"M{'L'.join([*upper, *reversed(lower)])}Z"
            yield _stretched(f'<path class="band c{band.colour}" d="{path}">{_title(band.name)}</path>')

    def _marks(self, marks: Marks) -> Iterator[str]:
        count = len(marks.x)
        sizes = np.broadcast_to(np.asarray(marks.sizes, dtype=np.float64), count)
        yield f'<g class="mark c{marks.colour}{" faint" if marks.faint else ""} {marks.symbol}">'
        for row, x, y in self._points(marks.x, marks.y):
            at, down = self._across(x), self._down(y)
            if marks.low is not None and marks.high is not None:
                yield self._interval(at, down, float(marks.low[row]), float(marks.high[row]), marks.along)
            tip = _title(marks.tips[row] if marks.tips is not None else self._told(marks.name, x, y))
            if marks.symbol == "circle":
                yield f'<circle cx="{at}" cy="{down}" r="{sizes[row] / 2.0:.3g}">{tip}</circle>'
            else:
                yield f'<svg x="{at}" y="{down}"><path d="{_SHAPES[marks.symbol]}">{tip}</path></svg>'
        yield "</g>"

    def _interval(self, at: str, down: str, low: float, high: float, along: str) -> str:
        if along == "x":
            return f'<line x1="{self._across(low)}" x2="{self._across(high)}" y1="{down}" y2="{down}"/>'
        return f'<line x1="{at}" x2="{at}" y1="{self._down(low)}" y2="{self._down(high)}"/>'

    def _upright_bars(self, bars: Bars) -> Iterator[str]:
        low = self._y.low if self._y.axis.kind == "log" else max(self._y.low, 0.0)
        yield f'<g class="bar c{bars.colour}">'
        for row, x, y in self._points(bars.x, bars.y):
            left, right = self._ends(bars, row, x)
            foot = low + self._beneath(bars, row)
            start, end = 100.0 * self._x.place(left), 100.0 * self._x.place(right)
            top, bottom = sorted((self._share_down(foot + y if bars.stacked else y), self._share_down(foot)))
            tip = _title(self._told(bars.name, x, y))
            place = f'x="{_percent(start)}" y="{_percent(top)}"'
            size = f'width="{_percent(end - start)}" height="{_percent(bottom - top)}"'
            yield f"<rect {place} {size}>{tip}</rect>"
            if bars.low is not None and bars.high is not None:
                middle = _percent((start + end) / 2.0)
                yield self._interval(middle, "", float(bars.low[row]), float(bars.high[row]), "y")
        yield "</g>"

    def _ends(self, bars: Bars, row: int, x: float) -> tuple[float, float]:
        """Where a bar starts and ends across, on the scale of the axis."""
        if bars.edges is not None:
            return float(bars.edges[row]), float(bars.edges[row + 1])
        beside = [one for one in self._bars if not one.stacked]
        count = 1 if bars.stacked else len(beside)
        number = 0 if bars.stacked else next(place for place, one in enumerate(beside) if one is bars)
        width = 0.8 / count
        left = x - 0.4 + number * width
        return left, left + width

    def _beneath(self, bars: Bars, row: int) -> float:
        if not bars.stacked:
            return 0.0
        earlier = [one for one in self._bars if one.stacked]
        below = earlier[: next(place for place, one in enumerate(earlier) if one is bars)]
        return sum(float(one.y[row]) for one in below)

    def _cells(self, cells: CellGrid) -> Iterator[str]:
        wide = _spacing(cells.columns)
        with_tips = len(cells.columns) * len(cells.rows) <= _MOST_CELLS_WITH_TIPS
        for name, states in zip(cells.rows, cells.states, strict=True):
            row = self._y.names.index(name)
            top, bottom = self._y.place(row - 0.44), self._y.place(row + 0.44)
            for kind, (word, colour) in enumerate(cells.kinds):
                chosen = [column for column, state in zip(cells.columns, states, strict=True) if state == kind]
                spans = [(self._x.place(one - wide / 2.0), self._x.place(one + wide / 2.0)) for one in chosen]
                if with_tips:
                    size = f'y="{_percent(100 * top)}" height="{_percent(100 * (bottom - top))}"'
                    for column, (start, end) in zip(chosen, spans, strict=True):
                        place = f'x="{_percent(100 * start)}" width="{_percent(100 * (end - start))}"'
                        tip = _title(f"{self._x.axis.title} {column}, {name}: {word}")
                        yield f'<rect class="cell c{colour}" {place} {size}>{tip}</rect>'
                elif spans:
                    boxes = "".join(_box(start, end, top, bottom) for start, end in _joined(spans))
                    tip = _title(f"{name}: {word} in {len(chosen):,} of {len(states):,}")
                    yield _stretched(f'<path class="cell c{colour}" d="{boxes}">{tip}</path>')

    def _rule(self, rule: RuleLine) -> Iterator[str]:
        if rule.direction == "upright":
            at = self._across(rule.at)
            ends, place = f'x1="{at}" x2="{at}" y1="0" y2="100%"', f'x="{at}" y="1em" dx="5"'
        else:
            at = self._down(rule.at)
            ends, place = f'x1="0" x2="100%" y1="{at}" y2="{at}"', f'x="4" y="{at}" dy="-5"'
        yield f'<line class="rule c{rule.colour} {rule.dashes}" {ends}/>'
        if rule.text:
            yield f'<text class="word c{rule.colour}" {place}>{escape(rule.text)}</text>'

    def _points(self, x: Places, y: Places) -> Iterator[tuple[int, float, float]]:
        """The points that can be shown, each with its number."""
        pairs = zip(_numbers(self._x, x), _numbers(self._y, y), strict=True)
        for row, (across, up) in enumerate(pairs):
            if self._x.holds(across) and self._y.holds(up):
                yield row, across, up

    def _told(self, name: str, x: float, y: float) -> str:
        where = ", ".join((_text(self._x, x), _text(self._y, y)))
        return f"{name}: {where}" if name else where

    def _across(self, value: float) -> str:
        return _percent(100.0 * self._x.place(value))

    def _down(self, value: float) -> str:
        return _percent(self._share_down(value))

    def _share_down(self, value: float) -> float:
        place = self._y.place(value)
        return 100.0 * (place if self._y.axis.kind == "names" else 1.0 - place)

    def _stretched_x(self, value: float) -> float:
        return _STRETCHED * self._x.place(value)

    def _stretched_y(self, value: float) -> float:
        return _STRETCHED / 100.0 * self._share_down(value)


def _fitted(axis: PlotAxis, layers: Sequence[Layer], side: str) -> Scale:
    """The scale of one side of a figure, from everything that is drawn along it."""
    names: dict[str, None] = {}
    values: list[float] = []
    for layer in layers:
        for places in _places(layer, side):
            for place in places:
                if isinstance(place, str):
                    names.setdefault(place)
                else:
                    values.append(float(place))
    return Scale.fitted(axis, values, tuple(names))


def _places(layer: Layer, side: str) -> list[Any]:
    """Everything that a layer puts along one side."""
    if isinstance(layer, RuleLine):
        return [[layer.at]] if (layer.direction == "upright") == (side == "x") else []
    if isinstance(layer, CellGrid):
        wide = _spacing(layer.columns) / 2.0
        return [[at for one in layer.columns for at in (one - wide, one + wide)]] if side == "x" else [layer.rows]
    if isinstance(layer, Band):
        return [layer.x] if side == "x" else [layer.low, layer.high]
    found: list[Any] = [getattr(layer, side)]
    if side == getattr(layer, "along", "y"):
        found += [each for each in (layer.low, layer.high) if each is not None]
    if isinstance(layer, Bars):
        found += _around(layer, side)
    return found


def _around(bars: Bars, side: str) -> list[Any]:
    """What bars need beside their values: room to the left and right, and their foot."""
    if side == "y":
        return [[0.0]]
    if bars.edges is not None:
        return [bars.edges]
    numbers = [float(one) for one in bars.x if not isinstance(one, str)]
    return [[at for one in numbers for at in (one - 0.5, one + 0.5)]]


def _numbers(scale: Scale, values: Places) -> list[float]:
    places = {name: float(place) for place, name in enumerate(scale.names)}
    return [places[value] if isinstance(value, str) else float(value) for value in values]


def _text(scale: Scale, value: float) -> str:
    if scale.axis.kind == "names":
        return scale.names[int(value)]
    return f"{100.0 * value:.4g} %" if scale.axis.unit else f"{value:.4g}"


def _spacing(columns: Sequence[int]) -> float:
    return float(min((b - a for a, b in pairwise(columns)), default=1))


def _box(start: float, end: float, top: float, bottom: float) -> str:
    left, right, low, high = (f"{_STRETCHED * share:.1f}" for share in (start, end, top, bottom))
    return f"M{left} {low}H{right}V{high}H{left}Z"


def _joined(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spans that touch become one."""
    found: list[tuple[float, float]] = []
    for start, end in spans:
        if found and abs(found[-1][1] - start) < 1e-9:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


def _short(text: str) -> str:
    return short_label(text, _MOST_LETTERS)


def _percent(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") + "%"


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""


def _stretched(path: str) -> str:
    size = f'viewBox="0 0 {_STRETCHED:.0f} {_STRETCHED:.0f}" preserveAspectRatio="none"'
    return f'<svg class="stretched" {size} width="100%" height="100%">{path}</svg>'


def _below(at: str, text: str, *, turned: bool) -> str:
    written = f"{_title(text)}{escape(_short(text))}"
    if turned:
        return f'<svg x="{at}" y="100%"><text class="below">{written}</text></svg>'
    return f'<text class="below" x="{at}" y="100%">{written}</text>'


def _legend(layers: Sequence[Layer]) -> Iterator[str]:
    entries: dict[str, str] = {}
    for layer in layers:
        if isinstance(layer, CellGrid):
            shown = {state for states in layer.states for state in states}
            for kind, (word, colour) in enumerate(layer.kinds):
                if kind in shown:
                    entries.setdefault(word, f'<rect class="cell c{colour}" x="3" y="1" width="10" height="10"/>')
        elif not isinstance(layer, RuleLine) and layer.name:
            entries.setdefault(layer.name, _sample(layer))
    if len(entries) > 1 or any(isinstance(layer, CellGrid) for layer in layers):
        yield '<ul class="legend">'
        for name, sample in entries.items():
            yield f'<li><svg width="22" height="12" aria-hidden="true">{sample}</svg>{escape(name)}</li>'
        yield "</ul>"


def _sample(layer: Line | Band | Marks | Bars) -> str:
    if isinstance(layer, Line):
        mark = f'<g class="mark c{layer.colour}"><circle cx="11" cy="6" r="3.5"/></g>' if layer.marks else ""
        return f'<path class="line c{layer.colour} {layer.dashes} {layer.width}" d="M0 6H22"/>{mark}'
    if isinstance(layer, Band):
        return f'<rect class="band c{layer.colour}" width="22" height="12"/>'
    if isinstance(layer, Bars):
        return f'<g class="bar c{layer.colour}"><rect x="3" y="1" width="12" height="10"/></g>'
    inner = (
        '<circle cx="11" cy="6" r="3.5"/>'
        if layer.symbol == "circle"
        else f'<svg x="11" y="6"><path d="{_SHAPES[layer.symbol]}"/></svg>'
    )
    return f'<g class="mark c{layer.colour} {layer.symbol}">{inner}</g>'
