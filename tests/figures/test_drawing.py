"""Drawings: every layer is there, every text is escaped, nothing has a style or a script of its own."""

from __future__ import annotations

import re
from itertools import combinations
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from rpdp.figures import Band, Bars, CellGrid, Figure, Line, Marks, PlotAxis, RuleLine, draw, style_sheet

HOSTILE = "</svg><script>alert('x')</script>&\"<b>"


def drawn(figure: Figure, label: str = "a figure") -> ET.Element:
    return ET.fromstring(draw(figure, label))  # noqa: S314 our own text


def everything(text: str) -> Figure:
    figure = Figure(PlotAxis(text, whole=True), PlotAxis(text, "names"))
    figure.add(CellGrid([1, 2, 3], [text, "other"], [[0, 1, 1], [0, 0, 2]], [(text, 0), ("b", 1), ("c", 2)]))
    figure.add(Marks([1.0, 2.0], [text, text], text, tips=[text, text]), Line([1, 2], [text, "other"], text))
    return figure.add(RuleLine(1.5, "upright", text=text))


def test_texts_are_escaped_wherever_they_stand() -> None:
    html = draw(everything(HOSTILE), HOSTILE)
    assert "<script" not in html
    assert "<b>" not in html
    assert html.count("&lt;script&gt;") >= 8
    assert HOSTILE in "".join(drawn(everything(HOSTILE), HOSTILE).itertext())


def test_a_strict_policy_allows_it() -> None:
    names = {name for element in drawn(everything("x")).iter() for name in element.attrib}
    assert not [name for name in names if name == "style" or name.startswith("on") or "href" in name]


def test_values_stand_where_the_axes_say() -> None:
    figure = Figure(PlotAxis(limits=(0.0, 10.0)), PlotAxis(limits=(0.0, 1.0)))
    figure.add(Marks([2.5, 10.0, float("nan")], [0.25, 1.0, 0.5], "m"), Bars([5.0], [0.5]), RuleLine(0.1, "level"))
    circles = list(drawn(figure).iter("circle"))
    assert [(one.get("cx"), one.get("cy")) for one in circles] == [("25%", "75%"), ("100%", "0%")]
    assert [one[0].text for one in circles] == ["m: 2.5, 0.25", "m: 10, 1"]
    [bar] = drawn(figure).iter("rect")
    assert [bar.get(name) for name in ("x", "y", "width", "height")] == ["46%", "50%", "8%", "50%"]
    [rule] = [one for one in drawn(figure).iter("line") if one.get("class", "").startswith("rule")]
    assert rule.get("y1") == rule.get("y2") == "90%"


def test_bars_stand_side_by_side_or_on_each_other() -> None:
    for stacked in (False, True):
        figure = Figure(PlotAxis(kind="names"), PlotAxis(limits=(0.0, 1.0)))
        figure.add(Bars(["a"], [0.25], "p", stacked=stacked), Bars(["a"], [0.5], "q", 1, stacked=stacked))
        first, second = [one for one in drawn(figure).iter("rect") if one.get("y", "").endswith("%")]
        assert (first.get("x") == second.get("x")) == stacked
        assert (first.get("y"), second.get("y")) == ("75%", "25%" if stacked else "50%")


def test_many_cells_become_one_path_per_row_and_kind() -> None:
    rng = np.random.default_rng(0)
    states = (rng.random((40, 500)) < 0.5).astype(int).tolist()
    figure = Figure(PlotAxis("round"), PlotAxis(kind="names"))
    figure.add(CellGrid(range(1, 501), [f"s{row}" for row in range(40)], states, [("out", 7), ("in", 0)]))
    html = draw(figure, "who took part")
    assert html.count('class="cell') == 2 * 40 + 2  # and two in the legend
    assert len(html) < 600_000


@pytest.mark.parametrize("kind", ["linear", "log", "names"])
def test_nothing_to_show_is_an_empty_figure(kind: str) -> None:
    empty = np.zeros(0)
    figure = Figure(PlotAxis("x", kind), PlotAxis("y"))  # type: ignore[arg-type]
    figure.add(Line(empty, empty), Marks(empty, empty), Bars(empty, empty), Band(empty, empty, empty))
    assert drawn(figure).tag == "div"


_SIMULATED = {  # Machado, Oliveira & Fernandes 2009, severity 1
    "normal": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
_TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(colour: str) -> np.ndarray:
    full = colour if len(colour) == 7 else "#" + "".join(2 * letter for letter in colour[1:])
    value = np.array([int(full[at : at + 2], 16) / 255.0 for at in (1, 3, 5)])
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def as_lab(light: np.ndarray) -> np.ndarray:
    ratio = _TO_XYZ @ np.clip(light, 0.0, 1.0) / np.array([0.95047, 1.0, 1.08883])
    f = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16.0 / 116.0)
    return np.array([116.0 * f[1] - 16.0, 500.0 * (f[0] - f[1]), 200.0 * (f[1] - f[2])])


def contrast(one: str, other: str) -> float:
    bright, dark = sorted((float(linear(each) @ [0.2126, 0.7152, 0.0722]) for each in (one, other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def nearest(colours: list[str]) -> float:
    return min(
        float(np.linalg.norm(as_lab(np.asarray(seen) @ linear(one)) - as_lab(np.asarray(seen) @ linear(other))))
        for seen in _SIMULATED.values()
        for one, other in combinations(colours, 2)
    )


@pytest.mark.parametrize("page", [0, 1], ids=["light", "dark"])
def test_colours_stay_apart_for_everybody(page: int) -> None:
    css = str(style_sheet())
    values = {name: re.findall(rf"--{name}: (#[0-9a-f]+)", css)[page] for name in ("plot-paper", "plot-ink")}
    colours = [re.findall(rf"--c{number}: (#[0-9a-f]+)", css)[page] for number in range(6)]
    assert nearest(colours) > 10.0
    assert all(contrast(colour, values["plot-paper"]) >= 3.0 for colour in colours)
    assert contrast(values["plot-ink"], values["plot-paper"]) >= 7.0


def test_the_check_of_colours_can_fail() -> None:
    assert nearest(["#1f5fa8", "#7b4ea3"]) < 5.0  # blue and violet that look alike to many
    assert contrast("#e69f00", "#ffffff") < 3.0
