"""Templates: every text is escaped, a missing value is an error, and a page is for whom its mode says."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from rpdp.figures import Figure, Line, PlotAxis
from rpdp.report import rendering, write_report
from rpdp.report.rendering import Alarm, Card, Column, Table, render, write_html

from .runs import two_silos

HOSTILE = "</script></style><script>alert('x')</script>&\"<b>"


def part(name: str, *arguments: object) -> str:
    """A macro of `parts.html.j2`, as a page would show it."""
    macro = rendering._environment().get_template("parts.html.j2").module
    return str(getattr(macro, name)(*arguments))


def test_every_part_escapes_its_texts() -> None:
    figure = Figure(PlotAxis(HOSTILE), PlotAxis(HOSTILE)).add(Line([1], [1], HOSTILE, marks=True))
    shown = [
        part("banner", HOSTILE, HOSTILE),
        part("bullets", [HOSTILE]),
        part("table", Table([Column(HOSTILE), Column("n")], [[HOSTILE, Alarm(HOSTILE)]], HOSTILE)),
        part("figures", [Card(HOSTILE, HOSTILE, HOSTILE, figure)]),
        render("page.html.j2", title=HOSTILE, sections=[HOSTILE]),
    ]
    for html in shown:
        assert "<script>alert" not in html
        assert "<b>" not in html
        assert "&lt;script&gt;alert" in html
    assert "<script>alert" in part("bullets", [Markup(HOSTILE)])  # noqa: S704 the same text, were it not escaped


def test_a_section_is_html_only_as_markup(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    for section, is_tag in ((Markup("<p id='own'>a</p>"), True), ("<p id='own'>a</p>", False)):
        write_report(two_silos(), path, sections=[section])  # type: ignore[list-item]
        assert ("<p id='own'>" in path.read_text(encoding="utf-8")) == is_tag


def test_a_missing_value_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UndefinedError, match="sections"):
        write_html(tmp_path / "page.html", "page.html.j2", title="t")
    assert not (tmp_path / "page.html").exists()


def test_a_row_fits_its_columns() -> None:
    with pytest.raises(ValueError, match="zip"):
        part("table", Table([Column("a"), Column("b")], [["1"]]))


@pytest.mark.parametrize(("edition", "mode"), [("silo", 0o600), ("share", 0o644)])
def test_who_may_read_a_report(tmp_path: Path, edition: str, mode: int) -> None:
    path = write_report(two_silos(), tmp_path / "report.html", edition=edition)  # type: ignore[arg-type]
    assert stat.S_IMODE(path.stat().st_mode) == mode
