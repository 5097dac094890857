from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from rpdp_lab.reproduction.cell import PROFILES, Cell, CellResult, Numbers, Profile, Settings
from rpdp_lab.reproduction.markdown import provenance, spread
from rpdp_lab.reproduction.published import AUTHORS_FIGURE_8, CLASS_BUDGETS, PAPER_TABLE_4
from rpdp_lab.reproduction.reproduction_page import chosen_results, render
from rpdp_lab.reproduction.run_cells import run_cells
from rpdp_lab.reproduction.suite import PageSection, Suite
from rpdp_lab.reproduction.suites import SUITES
from rpdp_lab.reproduction.svg_figures import Panel, Series, draw

from tests.lab.reproduction.conftest import result


def _not_run(settings: Settings, device: str) -> Numbers:
    raise AssertionError("only rendered here")


def toy_cells(profile: Profile) -> list[Cell]:
    parts = ("left", "right") if profile != "cpu" else ("left",)
    return [Cell("toy", part, f"{part}-{n}", _not_run, {"seed": n}, profile) for part in parts for n in range(2)]


TOY = Suite("toy", "Toy", toy_cells, lambda results: PageSection([]), dict.fromkeys(PROFILES, 1.0))


def known(*cells: Cell) -> dict[tuple[Profile, str, str], CellResult]:
    return {(cell.profile, cell.suite, cell.name): result(cell) for cell in cells}


def test_the_largest_profile_that_is_whole_is_shown() -> None:
    everything = known(*toy_cells("quick"), *toy_cells("cpu"))
    shown = chosen_results(TOY, everything)
    assert [(each.part, each.profile) for each in shown] == [("left", "cpu")] * 2 + [("right", "quick")] * 2


def test_a_profile_with_gaps_does_not_replace_a_whole_one() -> None:
    shown = chosen_results(TOY, known(*toy_cells("quick"), toy_cells("cpu")[0]))
    assert {each.profile for each in shown} == {"quick"}
    alone = chosen_results(TOY, known(toy_cells("cpu")[0]))
    assert [each.profile for each in alone] == ["cpu"]  # better than nothing


def test_the_page_comes_from_cells_alone_and_again_the_same(tmp_path: Path) -> None:
    cells = [cell for name in ("figure-2", "figure-5", "figure-6") for cell in SUITES[name].cells("quick")]
    run_cells(cells, tmp_path / "results")
    docs = tmp_path / "docs"
    first = render(tmp_path / "results", docs, tmp_path / "cells")
    page = (docs / "reproduction.md").read_text(encoding="utf-8")
    assert "## In one minute" in page
    assert "## Figure 5" in page
    assert "table-2" in first.empty
    assert "**Not run yet**: table-2" in page
    files = {path: path.read_bytes() for folder in (docs, tmp_path / "cells") for path in folder.rglob("*.*")}
    again = render(tmp_path / "nothing", docs, tmp_path / "cells")  # from the bundles
    assert again.files == first.files
    assert {path: path.read_bytes() for path in files} == files


def test_results_of_other_settings_are_not_shown(tmp_path: Path) -> None:
    cell = SUITES["figure-2"].cells("quick")[0]
    run_cells([cell], tmp_path)
    assert "figure-2" not in render(tmp_path, tmp_path / "docs", tmp_path / "cells").empty
    text = cell.path(tmp_path).read_text(encoding="utf-8")
    cell.path(tmp_path).write_text(text.replace('"rounds": 100', '"rounds": 99'), encoding="utf-8")
    assert "figure-2" in render(tmp_path, tmp_path / "others", tmp_path / "none").empty


def test_every_figure_is_an_svg_of_moderate_size(tmp_path: Path) -> None:
    run_cells(SUITES["figure-2"].cells("quick"), tmp_path)
    render(tmp_path, tmp_path / "docs", tmp_path / "cells")
    figure = (tmp_path / "docs" / "reproduction" / "figure-2.svg").read_text(encoding="utf-8")
    assert ET.fromstring(figure).tag.endswith("svg")  # noqa: S314 our own text
    assert len(figure) < 60_000


def test_drawing_leaves_out_what_has_no_place_and_escapes_names() -> None:
    series = [Series("a < b & c", [0.1, 1.0, 10.0], [1.0, 0.0, None]), Series("", [1.0], [2.0], 1, "dots")]
    text = draw([Panel("<title>", "x", "y", series, log_x=True, log_y=True)], columns=1, note="profile quick")
    root = ET.fromstring(text)  # noqa: S314 our own text
    assert text.count("<circle") == 1
    line = next(each for each in root.iter() if each.tag.endswith("polyline"))
    assert len(line.attrib["points"].split()) == 1
    assert "a &lt; b &amp; c" in text
    assert ">profile quick</text>" in text


def test_what_was_skipped_is_told_without_names_of_directories() -> None:
    cell = toy_cells("quick")[0]
    told = "\n".join(provenance([result(cell, "data file x.gz not found; looked in /home/me/data. Get it")]))
    assert "data file x.gz not found" in told
    assert "/home/me" not in told


def test_means_and_deviations() -> None:
    assert spread([]) == "–"
    assert spread([0.5]) == "0.5000"
    assert spread([0.4, 0.6]) == "0.5000 ± 0.1414"


@pytest.mark.parametrize("profile", PROFILES)
def test_no_two_cells_have_the_same_file(profile: Profile) -> None:
    homes: dict[Path, Cell] = {}
    for suite in SUITES.values():
        for cell in suite.cells(profile):
            home = cell.path(Path())
            assert homes.setdefault(home, cell).settings == cell.settings, home
            json.dumps(dict(cell.settings), allow_nan=False)


def test_quick_is_meant_to_fit_into_an_hour() -> None:
    assert sum(suite.minutes["quick"] for suite in SUITES.values()) <= 60


def test_published_numbers_are_whole_and_agree_with_themselves() -> None:
    assert len(CLASS_BUDGETS) == 10
    for values in PAPER_TABLE_4.values():
        *classes, overall = values
        assert len(classes) == 10
        assert overall == pytest.approx(sum(classes) / 10, abs=0.6)  # classes are of nearly equal size
    for methods in AUTHORS_FIGURE_8.values():
        for place in range(3):
            assert methods["privacy_free"][place] > methods["rpdp"][place] > methods["minimum"][place]
