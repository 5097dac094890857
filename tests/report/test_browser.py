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

DRAWN = """[...document.querySelectorAll("figure")].map(figure => {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
  const card = figure.getBoundingClientRect(), svg = figure.querySelector("svg.area");
  const size = svg ? svg.getBoundingClientRect() : { width: 0, height: 0 };
  const marks = [...figure.querySelectorAll(".area path, .area circle, .area rect")].filter(
    e => e.getClientRects().length && getComputedStyle(e).visibility === "visible").length;
  const texts = [...figure.querySelectorAll(".area text")].map(e => e.getBoundingClientRect());
  const inside = texts.every(t => t.left >= card.left - 1 && t.right <= card.right + 1 && t.bottom <= card.bottom + 1);
  const across = [...figure.querySelectorAll(".plot:not(.turned) .below")].map(e => e.getBoundingClientRect());
  const apart = across.every((t, i) => i === 0 || t.left >= across[i - 1].right - 1);
  return { name: figure.id, marks, width: size.width, height: size.height, inside, apart };
})"""
CONTRASTS = """(() => {
  const linear = v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4, weights = [0.2126, 0.7152, 0.0722];
  const light = c => c.match(/[\\d.]+/g).slice(0, 3).reduce((sum, v, i) => sum + weights[i] * linear(v / 255), 0);
  const below = e => { for (; e; e = e.parentElement) {
    const c = getComputedStyle(e).backgroundColor; if (!c.startsWith("rgba(0, 0, 0, 0")) return c; } };
  const found = {};
  for (const css of ["h1", "figcaption", ".banner.warn", ".banner.info", "dd", "th", ".legend li", ".area text"]) {
    const e = document.querySelector(css); if (!e) continue;
    const style = getComputedStyle(e), ink = e instanceof SVGElement ? style.fill : style.color;
    const [a, b] = [light(ink), light(below(e))].sort((a, b) => b - a);
    found[css] = (a + 0.05) / (b + 0.05);
  }
  return found;
})()"""
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
        assert figure["width"] > 150, figure
        assert figure["height"] > 50, figure
        assert figure["inside"], figure
        assert figure["apart"], figure
    assert browser.evaluate("innerWidth") == width
    assert browser.evaluate(SIDEWAYS) == 0
    assert browser.evaluate(CUT_CELLS) == 0
    assert browser.complaints() == []
    assert browser.requested() <= {"file", "data", "blob"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out_in_a_light_and_in_a_dark_page(browser: Browser, reports: dict[str, Path], scheme: str) -> None:
    browser.prefer(scheme)
    browser.open(reports["silo"], WIDE)
    ratios: dict[str, float] = browser.evaluate(CONTRASTS)
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    browser.prefer("light")
    assert background == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(21, 26, 33)")
    assert len(ratios) >= 6
    assert {name: ratio for name, ratio in ratios.items() if ratio < 4.5} == {}


def test_a_report_opens_at_once(browser: Browser, reports: dict[str, Path]) -> None:
    """From the request to the end of loading, the best of three: this is a shared machine."""
    times = []
    for _ in range(3):
        browser.open(reports["silo"], WIDE)
        times.append(browser.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd"))
    assert min(times) < 1_000


def test_the_check_sees_what_is_wrong(browser: Browser, reports: dict[str, Path], tmp_path: Path) -> None:
    """A figure without marks, a console error, a wide element and a request are all noticed."""
    text = reports["odd"].read_text(encoding="utf-8")
    start = text.index('<g class="bar c0">')
    end = text.index("</g>", start)
    broken = text[:start] + text[end:].replace('class="left"', 'class="left" dx="-400"')
    wrong = "<div style='width:900px'>wide</div><img src='https://127.0.0.1:9/x.png'><script>console.error(1)</script>"
    path = tmp_path / "broken.html"
    path.write_text(broken.replace("</main>", f"{wrong}</main>"), encoding="utf-8")
    browser.open(path, PHONE)
    figures = {figure["name"]: figure for figure in browser.evaluate(DRAWN)}
    assert figures["time"]["marks"] == 0
    assert figures["budgets"]["marks"] > 0
    assert not figures["shares"]["inside"]
    assert browser.evaluate(SIDEWAYS) > 0
    assert len(browser.complaints()) >= 2  # the console, and the picture that the page's own policy refused
