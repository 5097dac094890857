"""Figures show what was given; how they look was judged in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from rpdp import BudgetTable, PublicPlan, Schedule
from rpdp.figures import Bars, Line, Marks, RuleLine
from rpdp.planning import FrontierPoint
from rpdp.report import budgets_figure, frontier_figure, plan_figure, write_figure

from .runs import sitting_out

if TYPE_CHECKING:
    from rpdp import SiloPlan


@pytest.fixture(scope="module")
def silo() -> SiloPlan:
    public = PublicPlan(
        Schedule(10, 5, participations=5),
        noise_multiplier=3.0,
        delta=1e-4,
        clip_norm=1.0,
        normaliser=8,
        weights=1.0,
        accountant="rdp",
    )
    return sitting_out(public.assign(BudgetTable(["a", "b", "c", "d"], [0.5, 0.5, 2.0, 1.0])), 3)


def point(sigma: float, signal: float) -> FrontierPoint:
    return FrontierPoint(sigma, 5.0, signal * sigma, 10.0 * signal * sigma, signal, 0, 0)


def test_budgets_each_record_a_point_and_a_histogram() -> None:
    pareto, levels = np.geomspace(0.1, 10.0, 50), np.full(7, 0.5)
    page = budgets_figure({"BoundedPareto": pareto, "ThreeLevels": levels})
    [points], [bars], [of_levels], [one_bar] = (card.figure.layers for card in page.cards)
    assert isinstance(points, Marks)
    assert isinstance(bars, Bars)
    assert isinstance(of_levels, Marks)
    assert isinstance(one_bar, Bars)
    np.testing.assert_array_equal(points.y, pareto)
    assert list(of_levels.x) == [1, 2, 3, 4, 5, 6, 7]
    assert sum(bars.y) == 50
    assert bars.edges is not None
    np.testing.assert_allclose([bars.edges[0], bars.edges[-1]], [0.1, 10.0])
    assert (max(one_bar.y), sum(one_bar.y)) == (7, 7)
    assert [card.title for card in page.cards][::2] == ["BoundedPareto", "ThreeLevels"]


@pytest.mark.parametrize(("records", "shown"), [(999, 999), (1000, 1000), (1001, 501), (1_000_000, 1000)])
def test_a_browser_is_not_drowned_in_points(records: int, shown: int) -> None:
    [points] = budgets_figure({"many": np.full(records, 0.5)}).cards[0].figure.layers
    assert isinstance(points, Marks)
    assert len(points.y) == shown


def test_plan_shows_curve_records_and_shares(silo: SiloPlan) -> None:
    price, shares = plan_figure({"silo a": silo}).cards
    (curve, records), (batch, people) = price.figure.layers, shares.figure.layers
    assert isinstance(curve, Line)
    assert isinstance(records, Marks)
    assert isinstance(batch, Line)
    assert isinstance(people, Line)
    assert curve.name == "ε*(q), rdp"
    assert curve.x[-1] == 1.0
    assert curve.x[0] < silo.q[silo.q > 0].min()
    assert (np.asarray(curve.y) > 0).all()
    np.testing.assert_array_equal(records.x, silo.q[:3])  # the record that sits out is not on the curve
    np.testing.assert_array_equal(records.y, silo.cost[:3])
    assert sum(batch.y) == pytest.approx(1.0)
    assert list(batch.x) == list(people.x) == [0.5, 1.0, 2.0]
    assert list(people.y) == pytest.approx([0.5, 0.25, 0.25])


def test_plan_in_which_nobody_takes_part(silo: SiloPlan) -> None:
    nobody = sitting_out(silo.public.assign(BudgetTable(["a"], [1.0])), 0)
    assert nobody.left_out == 1
    records = plan_figure({"silo": nobody}).cards[0].figure.layers[1]
    assert isinstance(records, Marks)
    assert len(records.x) == 0


def test_frontier_marks_the_knee() -> None:
    page = frontier_figure([point(1.0, 3.0), point(4.0, 5.0), point(10.0, 5.5)], knee=1)
    for card, values in zip(page.cards, ([3.0, 5.0, 5.5], [30.0, 200.0, 550.0]), strict=True):
        line, rule = card.figure.layers
        assert isinstance(line, Line)
        assert isinstance(rule, RuleLine)
        assert (list(line.x), list(line.y)) == ([1.0, 4.0, 10.0], values)
        assert (rule.at, rule.direction, rule.text) == (4.0, "upright", "knee: σ = 4")


def test_written_figures_open_offline(tmp_path: Path, silo: SiloPlan) -> None:
    path = write_figure(plan_figure({"silo": silo}), tmp_path / "new" / "plan.html")
    text = path.read_text(encoding="utf-8")
    assert text.count("<figure") == text.count('class="area"') == 2
    assert "<script" not in text
    assert "From budgets to sampling probabilities" in text
