"""Reports in a real browser, wide and phone-narrow: every figure is drawn, nothing is loaded, nothing complains."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rpdp.report import write_report

from .browser import Browser, find_chromium
from .runs import public_plan, run, silo_plan, two_silos, unpriced, view

if TYPE_CHECKING:
    from collections.abc import Iterator

CHROMIUM = find_chromium()
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium on this machine: reports are not opened in a browser"
)

WIDE, PHONE = 1280, 390
LONG_NAME = "Universitätsklinikum-" * 4

DRAWN = """[...document.querySelectorAll("script.drawing")].map(data => {
  const plot = document.getElementById(data.dataset.plot);
  const card = plot.closest("figure").getBoundingClientRect(), svg = plot.querySelector("svg.main-svg");
  const size = svg ? svg.getBoundingClientRect() : { width: 0, height: 0, right: 0 };
  const marks = plot.querySelectorAll(".trace path, .trace .point, .hm image").length;
  return { name: plot.id, marks, width: size.width, height: size.height, inside: size.right <= card.right };
})"""
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
CUT_CELLS = "[...document.querySelectorAll('td, th, dd')].filter(e => e.scrollWidth > e.clientWidth + 1).length"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert CHROMIUM is not None
    with Browser(CHROMIUM, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    public = public_plan(weights={LONG_NAME: 1.0, "b<i>": 2.0})
    views = {name: view(silo_plan(public, name, 20)) for name in (LONG_NAME, "b<i>")}
    many = {
        "rpdp": [run(views, seed=seed) for seed in (1, 2)],
        "a_method_with_a_long_name": [two_silos(1, "minimum")],
        "privacy_free": [run({"b": view(unpriced(silo_plan(public, "b", 5)))}, method="privacy_free")],
    }
    odd = run({"b": view(silo_plan(public_plan(), "b", 1), joined=(1,))}, accuracies=[0.5])
    return {
        "silo": write_report(many, folder / "silo.html"),
        "share": write_report(many, folder / "share.html", edition="share"),
        "odd": write_report(odd, folder / "odd.html"),
    }


@pytest.mark.parametrize("width", [WIDE, PHONE])
@pytest.mark.parametrize(("name", "figures"), [("silo", 9), ("share", 4), ("odd", 8)])
def test_a_report_in_a_browser(browser: Browser, reports: dict[str, Path], name: str, figures: int, width: int) -> None:
    browser.open(reports[name], width)
    drawn: list[dict[str, Any]] = browser.evaluate(DRAWN)
    assert len(drawn) == figures
    for figure in drawn:
        assert figure["marks"] >= 1, figure
        assert figure["width"] > 300, figure
        assert figure["height"] > 100, figure
        assert figure["inside"], figure
    assert browser.evaluate("innerWidth") == width
    assert browser.evaluate(SIDEWAYS) == 0
    assert browser.evaluate(CUT_CELLS) == 0
    assert browser.complaints() == []
    assert browser.requested() <= {"file", "data", "blob"}


def test_the_check_sees_what_is_wrong(browser: Browser, reports: dict[str, Path], tmp_path: Path) -> None:
    """A figure without marks, a console error, a wide element and a request are all noticed."""
    text = reports["odd"].read_text(encoding="utf-8")
    broken = text.replace('"type":"bar"', '"type":"bar","visible":false')
    assert broken != text
    wrong = "<div style='width:900px'>wide</div><img src='https://127.0.0.1:9/x.png'><script>console.error(1)</script>"
    path = tmp_path / "broken.html"
    path.write_text(broken.replace("</main>", f"{wrong}</main>"), encoding="utf-8")
    browser.open(path, PHONE)
    marks = {figure["name"]: figure["marks"] for figure in browser.evaluate(DRAWN)}
    assert marks["time"] == 0
    assert marks["budgets"] > 0
    assert browser.evaluate(SIDEWAYS) > 0
    assert len(browser.complaints()) >= 2  # the console, and the picture that the page's own policy refused
