"""What the figures of a report show, number by number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from rpdp import BudgetTable
from rpdp.figures import CellGrid, RuleLine
from rpdp.report.record_figures import budget_card, group_card, inclusion_card, record_cards, share_card
from rpdp.report.report_records import AllRecords
from rpdp.report.report_runs import ReportRuns
from rpdp.report.run_figures import curve_card, final_card, participation_card, rounds_card, time_card

from .runs import public_plan, run, silo_plan, sitting_out, two_silos, view

if TYPE_CHECKING:
    from rpdp.report.rendering import Card


@pytest.fixture(scope="module")
def two_methods() -> ReportRuns:
    runs = {
        "rpdp": [two_silos(1), two_silos(2, shift=0.2)],
        "minimum": [two_silos(1, "minimum", shift=-0.1)],
    }
    return ReportRuns.of(runs, "silo", None)


def all_records(comparison: ReportRuns) -> AllRecords:
    records = AllRecords.of(comparison.run)
    assert records is not None
    return records


def layers(card: Card) -> Any:
    """What a card draws; the tests know of which kind each layer is."""
    return card.figure.layers


def counts(marks: Any) -> list[int]:
    """How many records each mark stands for, as its tip says."""
    assert marks.tips is not None
    return [int(tip.split(": ")[1].split(" ")[0].replace(",", "")) for tip in marks.tips]


def test_accuracy_has_a_band_where_there_are_seeds(two_methods: ReportRuns) -> None:
    band, ours, minimum = layers(rounds_card(two_methods, "accuracy"))
    assert (ours.name, minimum.name) == ("rpdp", "minimum")
    assert list(ours.x) == [1, 2, 3, 4]
    np.testing.assert_allclose(ours.y, [0.6, 0.7, 0.7, 0.8])
    np.testing.assert_allclose(minimum.y, [0.4, 0.5, 0.5, 0.6])
    deviation = np.std([0.0, 0.2], ddof=1)
    np.testing.assert_allclose(band.high, np.asarray(ours.y) + deviation)
    np.testing.assert_allclose(band.low, np.asarray(ours.y) - deviation)


def test_final_accuracies_each_seed_and_the_mean(two_methods: ReportRuns) -> None:
    each, mean, _, single = layers(final_card(two_methods, "accuracy"))
    np.testing.assert_allclose(each.x, [0.7, 0.9])
    np.testing.assert_allclose(mean.x, [0.8])
    np.testing.assert_allclose(mean.high, [0.8 + np.std([0.7, 0.9], ddof=1)])
    np.testing.assert_allclose(mean.low, [0.8 - np.std([0.7, 0.9], ddof=1)])
    assert mean.along == "x"
    assert single.low == single.high == single.x


def test_participation_tells_joined_sat_out_and_rejected() -> None:
    public = public_plan()
    views = {name: view(silo_plan(public, name, 3)) for name in ("a", "b")}
    comparison = ReportRuns.of(run(views, rejected={"b": "not finite"}, accuracies=[0.5] * 3), "share", None)
    card = participation_card(comparison)
    [cells] = layers(card)
    assert isinstance(cells, CellGrid)
    assert [list(row) for row in cells.states] == [[1, 0, 1], [2, 0, 2]]
    assert list(cells.rows) == ["a", "b"]
    assert [word for word, _ in cells.kinds] == ["sat out", "joined", "update rejected"]
    assert card.caption == "1 of 3 rounds without any update; those left the model as it was."


def test_time_of_every_round(two_methods: ReportRuns) -> None:
    card = time_card(two_methods.run)
    assert list(layers(card)[0].y) == [0.25, 0.5, 0.75, 1.0]
    assert "3.5 seconds in all" in card.caption


def test_the_curve_to_share_starts_at_a_constant() -> None:
    public = public_plan()
    curve = layers(curve_card(public))[0]
    assert curve.x[-1] == 1.0
    assert curve.x[0] >= 1e-3
    np.testing.assert_allclose(curve.y, public.curve.epsilon(np.asarray(curve.x)))


def test_budget_and_cost_of_every_record(two_methods: ReportRuns) -> None:
    records = all_records(two_methods)
    _, marks = layers(budget_card(records))
    assert sum(counts(marks)) == 42
    assert list(marks.x) == [0.5, 2.0, 8.0]
    assert (np.asarray(marks.y) <= np.asarray(marks.x)).all()
    np.testing.assert_allclose(sorted(set(records.plan.cost)), marks.y)


def test_records_without_a_cost_are_shown_apart() -> None:
    public = public_plan()
    plan = sitting_out(public.assign(BudgetTable(list("abcde"), [2.0, 3.0, 2.0, 2.0, 1e-9])), 0, 1)
    records = AllRecords.of(run({"a": view(plan)}))
    assert records is not None
    card = budget_card(records)
    _, priced, free = layers(card)
    assert (sum(counts(priced)), sum(counts(free))) == (2, 3)
    assert free.name == "cost 0"
    assert free.y[0] < min(priced.y)
    assert "5 records, 0 over budget, 2 sit out" in card.caption


def test_realised_against_expected_inclusion(two_methods: ReportRuns) -> None:
    records = all_records(two_methods)
    card = inclusion_card(records)
    band, line, marks = layers(card)
    np.testing.assert_array_equal(line.x, line.y)
    assert sum(counts(marks)) == 42
    assert np.dot(marks.y, counts(marks)) == records.draws.sum()
    assert f"In all {records.draws.sum():,} draws" in card.caption
    middle = len(line.x) - 1
    spread = 1.96 * np.sqrt(records.variance[np.argmax(records.expected)])
    assert band.high[middle] == pytest.approx(records.expected.max() + spread)


def test_shares_of_the_groups(two_methods: ReportRuns) -> None:
    records = all_records(two_methods)
    people, expected, realised = layers(share_card(records))
    assert list(people.x) == ["0.5", "2", "8"]
    np.testing.assert_allclose(people.y, [1 / 3] * 3)
    strict = records.plan.budget == 0.5
    assert expected.y[0] == pytest.approx(records.plan.q[strict].sum() / records.plan.q.sum())
    assert realised.y[0] == pytest.approx(records.draws[strict].sum() / records.draws.sum())


def test_accuracy_of_the_groups_by_method_on_the_same_records() -> None:
    public = public_plan()
    ours, theirs = (view(silo_plan(public, "a", 30), seed=seed) for seed in (1, 2))
    stranger = view(silo_plan(public, "elsewhere", 30))
    runs = {
        method: [run({"a": one}, method=method)]
        for method, one in (("rpdp", ours), ("minimum", theirs), ("stranger", stranger))
    }
    comparison = ReportRuns.of(runs, "silo", None)
    card = group_card(comparison, all_records(comparison), "accuracy")
    assert [trace.name for trace in layers(card)] == ["rpdp", "minimum"]
    for trace, one in zip(layers(card), (ours, theirs), strict=True):
        assert one.correct is not None
        assert trace.y[1] == pytest.approx(one.correct[1::3].mean())


def test_many_records_and_rounds_stay_light() -> None:
    public = public_plan()
    rng = np.random.default_rng(0)
    plan = silo_plan(public, "a", 20_000, levels=rng.uniform(0.1, 9.0, 20_000).tolist())
    comparison = ReportRuns.of(run({"a": view(plan)}, accuracies=[0.5] * 3_000), "silo", None)
    cards = [
        *record_cards(comparison, all_records(comparison)),
        rounds_card(comparison, "accuracy"),
        time_card(comparison.run),
    ]
    for card in cards:
        assert sum(len(layer.x) for layer in layers(card) if not isinstance(layer, RuleLine)) <= 2_000, card.name
    [cells] = layers(participation_card(comparison))
    assert isinstance(cells, CellGrid)
    assert len(cells.columns) == 3_000
