"""The lifetime view: what each group has spent by year, holds and has left; for the silo's edition alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from rpdp.ledger.inspection.use_over_time import use_over_time
from rpdp.ledger.progress_callback import silent
from rpdp.report import ReportFacts, write_report
from rpdp.report.lifetime_figures import lifetime_cards, lifetime_table
from tests.ledger import small

from .runs import two_silos

if TYPE_CHECKING:
    from pathlib import Path

    from rpdp.ledger.inspection.use_over_time import UseOverTime


@pytest.fixture
def use(tmp_path: Path) -> UseOverTime:
    table = small.budgets()
    with small.make(tmp_path, table) as opened:
        opened.reserve("spent", small.plan(opened, table), None)
        opened.charge("spent", 1, small.heads)
        opened.reserve("held", small.plan(opened, table), None)
        return use_over_time(opened, silent)


def test_the_parts_of_a_bar_are_the_whole_budget(use: UseOverTime) -> None:
    [card] = lifetime_cards({"north": use})
    layers: list[Any] = card.figure.layers
    year = str(use.runs[0].year)
    assert [layer.name for layer in layers] == [year, "held", "left"]
    assert all(layer.stacked for layer in layers)
    assert (layers[0].y > 0.0).all()
    assert (layers[1].y > 0.0).all()
    np.testing.assert_allclose(sum(layer.y for layer in layers), 1.0)
    groups = np.flatnonzero(use.in_group)
    np.testing.assert_allclose(layers[0].y + layers[1].y, use.used[groups])


def test_years_that_are_long_ago_become_one(use: UseOverTime) -> None:
    runs = tuple(replace(use.runs[0], year=2000 + number, shares=use.runs[0].shares / 10.0) for number in range(8))
    layers: list[Any] = lifetime_cards({"north": replace(use, runs=runs)})[0].figure.layers
    assert [layer.name for layer in layers] == ["earlier", "2003", "2004", "2005", "2006", "2007", "held", "left"]
    np.testing.assert_allclose(layers[0].y, 3.0 * layers[1].y)


def test_only_the_silo_sees_it(use: UseOverTime, tmp_path: Path) -> None:
    facts = ReportFacts(lifetimes={"north": use})
    pages = {
        edition: write_report(two_silos(), tmp_path / f"{edition}.html", edition=edition, facts=facts).read_text()
        for edition in ("silo", "share")
    }
    assert "Lifetime budgets of silo north" in pages["silo"]
    without = write_report(two_silos(), tmp_path / "x.html", edition="share", facts=ReportFacts()).read_text()
    assert pages["share"] == without
    assert lifetime_table({}) is None
