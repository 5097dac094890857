"""Inquiries: one vector for several statistics, estimates with words, the check, and what is expected beforehand."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import rpdp.statistics
from rpdp.errors import InputError
from rpdp.planning import MeasureSpec, PublicPlan, Request
from rpdp.statistics import (
    Axis,
    Columns,
    Count,
    Histogram,
    Inquiry,
    Levels,
    Mean,
    NoisyEstimate,
    NoisySums,
    NumberRange,
    Quantiles,
    StandardDeviation,
    Statistic,
    Sum,
    Variance,
    check_budgets,
    declared_columns,
    expected_estimates,
)
from tests.statistics.world import RANGES, World, axis, contributions, statistics
from tests.tables.schemas import ANN, BOB, EVE, patients, schema

AGE = NumberRange(*RANGES["age"])
EVERY = [statistic for statistic, _ in statistics(2000.0).values()]


def of_world(world: World, inquiry: Inquiry, deviation: float = 0.0) -> list[NoisyEstimate]:
    """Estimates from sums without noise."""
    weights = world.takes_part if inquiry.estimator == "everyone" else np.ones(len(world.weights))
    cells = weights @ contributions(world, inquiry.request)
    return inquiry.estimates(NoisySums(inquiry.request, cells, deviation, ("a",)))


def test_every_exported_name_resolves() -> None:
    for name in rpdp.statistics.__all__:
        assert getattr(rpdp.statistics, name).__name__ == name


def test_statistics_that_need_the_same_measure_share_it() -> None:
    inquiry = Inquiry((Variance("age", AGE), StandardDeviation("age", AGE), Count()), "everyone")
    assert len(inquiry.request.measures) == 2
    assert inquiry.request.norm == pytest.approx(2**0.5)


def test_a_mean_is_read_from_the_powers_of_a_variance() -> None:
    alone, both = (
        Inquiry(asked, "everyone") for asked in ((Mean("age", AGE),), (Mean("age", AGE), Variance("age", AGE)))
    )
    assert len(both.request.measures) == 1
    world = World.make(2000)
    assert of_world(world, both)[0].value == pytest.approx(of_world(world, alone)[0].value)


@pytest.mark.parametrize("estimator", ["everyone", "representative"])
def test_without_noise_every_statistic_is_exact(estimator: str) -> None:
    world = World.make(2000)
    part = world.takes_part if estimator == "everyone" else np.ones_like(world.takes_part)
    for name, (statistic, true) in statistics(2000.0).items():
        if (name, estimator) == ("count", "representative"):
            continue
        found = of_world(world, Inquiry((statistic,), estimator))  # type: ignore[arg-type]
        truth = true(world, part)
        if (name, estimator) == ("histogram", "representative"):
            truth = truth / truth.sum()
        tolerance = 1.3 if name == "quantiles" else 1e-6 * abs(truth).max()
        for estimate, wanted in zip(found, truth, strict=False):
            assert np.isnan(wanted) or estimate.value == pytest.approx(wanted, abs=tolerance)
            assert np.isnan(wanted) or estimate.low <= wanted + 1e-9 <= estimate.high + 2e-9


def test_an_estimate_says_what_it_rests_on() -> None:
    world = World.make(500)
    everyone = of_world(world, Inquiry((Mean("age", AGE),), "everyone"), 1.0)[0]
    assert "above the public floor" in everyone.speaks_of
    assert "values of age outside 40 to 100 count as the nearest end" in everyone.assumptions
    representative = of_world(world, Inquiry((Mean("age", AGE),), "representative"), 1.0)[0]
    assert "values do not depend on budgets" in representative.assumptions
    assert "Fieller" in representative.method
    assert str(everyone).startswith("mean of age: ")
    assert "95 %, everyone" in str(everyone)
    json.dumps([everyone.plain(), representative.plain()], allow_nan=False)


def test_every_number_has_a_name_of_its_own() -> None:
    world = World.make(500)
    named = of_world(world, Inquiry(tuple(EVERY), "everyone"), 1.0)
    assert len({estimate.name for estimate in named}) >= len(named) - 1  # histogram and proportions share "type"


def test_where_noise_drowns_the_sums_the_interval_is_the_public_range() -> None:
    inquiry = Inquiry((Mean("age", AGE), Histogram((axis("sex"),), "all"), Quantiles(axis("age"))), "everyone")
    cells = np.zeros(inquiry.request.size)
    found = inquiry.estimates(NoisySums(inquiry.request, cells, 100.0, ("a",)))
    assert {(each.low, each.high) for each in found} == {(40.0, 100.0), (0.0, 1.0)}


def test_a_wider_level_gives_a_wider_interval() -> None:
    inquiry = Inquiry((Count(),), "everyone")
    sums = NoisySums(inquiry.request, np.array([100.0]), 2.0, ("a",))
    narrow, wide = (inquiry.estimates(sums, level=level)[0].half_width for level in (0.9, 0.99))
    assert [narrow, wide] == pytest.approx([3.29, 5.15], abs=0.01)
    with pytest.raises(InputError, match=r"level=1\.2"):
        inquiry.estimates(sums, level=1.2)


def test_personal_weights_do_not_count() -> None:
    with pytest.raises(InputError, match="cannot count records"):
        _ = Inquiry((Count(),), "representative").request
    with pytest.raises(InputError, match="declare records="):
        _ = Inquiry((Sum("age", AGE),), "representative").request


def test_sums_of_another_request_are_refused() -> None:
    inquiry = Inquiry((Count(),), "everyone")
    other = Request("everyone", (MeasureSpec("count", 1), MeasureSpec("count", 1)))
    with pytest.raises(InputError, match="another request"):
        inquiry.estimates(NoisySums(other, np.zeros(2), 1.0, ("a",)))


def test_noisy_sums_add_silos_and_average_the_rounds_that_each_answered() -> None:
    request = Inquiry((Count(),), "everyone").request
    public = PublicPlan.of_request(request, noise_multiplier=3.0, delta=1e-5, purpose="statistics", rounds=2)
    by_silo = {
        "a": np.array([[10.0], [12.0]]),
        "b": np.array([[np.nan], [5.0]]),
        "c": np.full((2, 1), np.nan),
    }
    sums = NoisySums.of(public, by_silo)
    assert (sums.cells.tolist(), sums.silos) == ([16.0], ("a", "b"))
    assert sums.deviation == pytest.approx((9 / 2 + 9) ** 0.5)
    with pytest.raises(InputError, match="no silo released"):
        NoisySums.of(public, {"c": by_silo["c"]})


def checked(world: World, statistic: Statistic) -> list[bool]:
    every = replace(world, takes_part=np.ones_like(world.takes_part))
    everyone = of_world(every, Inquiry((statistic,), "everyone", for_check=True), 3.0)
    inquiry = Inquiry((statistic,), "representative")
    cells = world.weights @ contributions(world, inquiry.request)
    representative = inquiry.estimates(NoisySums(inquiry.request, cells, 1.0, ("a",)))
    return [each.is_flagged for each in check_budgets(everyone, representative)]


def test_the_check_flags_values_that_go_with_budgets_only() -> None:
    assert checked(World.make(2000, is_correlated=True), Mean("age", AGE)) == [True]
    assert checked(World.make(2000), Mean("age", AGE)) == [False]


def test_the_check_needs_the_spread_of_everyone() -> None:
    world = World.make(500)
    blind = of_world(world, Inquiry((Mean("age", AGE),), "everyone"), 1.0)
    representative = of_world(world, Inquiry((Mean("age", AGE),), "representative"), 1.0)
    with pytest.raises(InputError, match="for_check"):
        check_budgets(blind, representative)
    with pytest.raises(InputError, match='compares estimates by "everyone"'):
        check_budgets(representative, representative)
    with pytest.raises(InputError, match="same statistics"):
        check_budgets([], representative)


def test_expected_intervals_are_those_of_evenly_spread_values() -> None:
    inquiry = Inquiry((Mean("age", AGE), Mean("age", AGE, axis("sex"))), "everyone")
    found = expected_estimates(inquiry, total_weight=1000, noise_multiplier=2.0)
    real = of_world(World.make(2000), inquiry, 2.0 * inquiry.request.norm)
    assert found[0].half_width == pytest.approx(real[0].half_width, rel=1.2)
    assert found[1].half_width > found[0].half_width
    four = expected_estimates(inquiry, total_weight=1000, noise_multiplier=2.0, silos=4)
    assert four[0].half_width == pytest.approx(2 * found[0].half_width, rel=0.01)


@pytest.mark.parametrize("estimator", ["everyone", "representative"])
def test_every_statistic_can_be_planned(estimator: str) -> None:
    asked = tuple(each for each in EVERY if (estimator == "everyone" or not isinstance(each, Count)))
    inquiry = Inquiry(asked, estimator)  # type: ignore[arg-type]
    for estimate in expected_estimates(inquiry, total_weight=5000, noise_multiplier=2.0):
        assert np.isfinite([estimate.low, estimate.high]).all()


def test_a_table_s_columns_are_those_of_its_schema() -> None:
    given = schema()
    columns = Columns.of_table(given.encode(patients(ANN, BOB, EVE)), given)
    assert columns.declared == declared_columns(given)
    assert columns.declared["TYPE"] == Levels(("a", "b", "3"))
    assert columns.declared["OUTCOME"] == Levels(("well", "ill"), has_other=False, has_missing=False)
    values = {name: each.tolist() for name, each in columns.values.items()}
    assert np.isnan(values["AGE"][1:]).all()
    assert values["AGE"][0] == 60
    assert values["PRESSURE"][:2] == [160, 240]
    assert values["SEX"] == [0, 2, 1]
    assert values["OUTCOME"] == [1, 0, 1]
    assert values["ASPIRIN"][::2] == [1, 0]


def test_columns_do_not_show_their_values() -> None:
    assert "60" not in repr(Columns.of_arrays({"age": [60.0]}, ranges={"age": (0, 99)}))


def test_bad_statistics_are_refused() -> None:
    for made, message in (
        (lambda: Quantiles(Axis("sex", Levels(("F",)))), "no quantiles"),
        (lambda: Quantiles(axis("age"), (0.0,)), "strictly between"),
        (lambda: Histogram((axis("age"),), "groups"), "two columns"),
        (lambda: Inquiry((), "everyone"), "at least one"),
        (lambda: Axis("sex", Levels(("F",)), (0.0, 1.0)), "no edges"),
    ):
        with pytest.raises(InputError, match=message):
            made()
