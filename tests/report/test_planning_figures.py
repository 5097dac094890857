"""Figures show what was given; how they look was judged in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from rpdp import BudgetTable, PublicPlan, Schedule
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
    figure = budgets_figure({"BoundedPareto": pareto, "ThreeLevels": levels})
    assert [trace.type for trace in figure.data] == ["scatter", "histogram"] * 2
    np.testing.assert_array_equal(figure.data[0].y, pareto)
    assert list(figure.data[2].x) == [1, 2, 3, 4, 5, 6, 7]
    np.testing.assert_allclose(10 ** np.asarray(figure.data[3].x), levels)
    assert [title.text for title in figure.layout.annotations] == ["BoundedPareto", "ThreeLevels"]
    assert figure.layout.showlegend is False


@pytest.mark.parametrize(("records", "shown"), [(999, 999), (1000, 1000), (1001, 501), (1_000_000, 1000)])
def test_a_browser_is_not_drowned_in_points(records: int, shown: int) -> None:
    figure = budgets_figure({"many": np.full(records, 0.5)})
    assert len(figure.data[0].y) == shown


def test_plan_shows_curve_records_and_shares(silo: SiloPlan) -> None:
    figure = plan_figure({"silo a": silo})
    curve, records, batch, people = figure.data
    assert curve.name == "ε*(q), rdp"
    assert curve.x[-1] == 1.0
    assert curve.x[0] < silo.q[silo.q > 0].min()
    assert (np.asarray(curve.y) > 0).all()
    np.testing.assert_array_equal(records.x, silo.q[:3])  # the record that sits out is not on the curve
    np.testing.assert_array_equal(records.y, silo.cost[:3])
    assert sum(batch.y) == pytest.approx(100.0)
    assert list(batch.x) == list(people.x) == [0.5, 1.0, 2.0]
    assert list(people.y) == pytest.approx([50.0, 25.0, 25.0])


def test_plan_in_which_nobody_takes_part(silo: SiloPlan) -> None:
    nobody = sitting_out(silo.public.assign(BudgetTable(["a"], [1.0])), 0)
    assert nobody.left_out == 1
    assert len(plan_figure({"silo": nobody}).data[1].x) == 0


def test_frontier_marks_the_knee() -> None:
    figure = frontier_figure([point(1.0, 3.0), point(4.0, 5.0), point(10.0, 5.5)], knee=1)
    signal, compute = figure.data
    assert list(signal.x) == list(compute.x) == [1.0, 4.0, 10.0]
    assert list(signal.y) == [3.0, 5.0, 5.5]
    assert list(compute.y) == [30.0, 200.0, 550.0]
    assert {shape.x0 for shape in figure.layout.shapes} == {4.0}
    [label] = figure.layout.annotations
    assert label.text.strip() == "knee: σ = 4"
    assert label.x == pytest.approx(np.log10(4.0))  # annotations on logarithmic axes count in powers


def test_written_figures_open_offline(tmp_path: Path, silo: SiloPlan) -> None:
    path = write_figure(plan_figure({"silo": silo}), tmp_path / "new" / "plan.html")
    text = path.read_text(encoding="utf-8")
    assert "Plotly.newPlot" in text
    assert "<script src=" not in text
    assert "From budgets to sampling probabilities" in text
