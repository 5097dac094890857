"""Bias and coverage of every statistic by both estimators, in simulated releases.

With 600 releases an interval of 95 % that is exact covers at least 92.5 % with probability 0.995 for each number; the
page on statistics has the figures of 10,000 releases, made by `python -m tests.statistics.coverage_table`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.statistics.coverage_table import LINEAR, Row, measured
from tests.statistics.world import World, simulated, statistics

if TYPE_CHECKING:
    from rpdp.planning import RequestEstimator

RELEASES = 600
LEAST = 0.925
NAMES = list(statistics(None))


def row(name: str, estimator: RequestEstimator, *, is_correlated: bool) -> Row:
    return measured(name, estimator, is_correlated=is_correlated, repetitions=RELEASES)


@pytest.mark.parametrize("is_correlated", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_everyone_covers_whatever_budgets_say_of_values(name: str, is_correlated: bool) -> None:
    found = row(name, "everyone", is_correlated=is_correlated)
    assert found.coverage >= LEAST
    if name in LINEAR:
        assert found.bias <= 4.0  # the largest of several numbers, in standard errors


@pytest.mark.parametrize("name", [name for name in NAMES if name != "count"])
def test_representative_covers_all_records_if_values_do_not_depend_on_budgets(name: str) -> None:
    assert row(name, "representative", is_correlated=False).coverage >= LEAST


@pytest.mark.parametrize("name", ["mean", "proportions", "quantiles"])
def test_representative_misses_where_values_depend_on_budgets(name: str) -> None:
    """The negative control: its assumption is one."""
    assert row(name, "representative", is_correlated=True).coverage < 0.5


@pytest.mark.parametrize("name", ["mean", "proportions", "contingency table"])
def test_the_check_flags_dependence_and_is_quiet_without(name: str) -> None:
    assert row(name, "representative", is_correlated=True).flagged > 0.9
    assert row(name, "representative", is_correlated=False).flagged <= 0.05


def test_an_interval_without_the_sampling_spread_would_not_cover() -> None:
    """The spread of weights matters in these worlds, so that the tests above would notice its loss."""
    from dataclasses import replace

    from rpdp.statistics import Inquiry
    from rpdp.statistics.inquiry import noise_of
    from tests.statistics.world import releases

    world = World.make(2000)
    statistic, true = statistics(None)["mean"]
    inquiry = Inquiry((statistic,), "representative")
    cells = releases(world, inquiry, 2.0, RELEASES, np.random.default_rng(3))
    blind = replace(noise_of(2.0, 0.95, "representative"), has_spread=False)
    bounds = inquiry.intervals(cells, blind)[0]
    truth = true(world, np.ones_like(world.takes_part))
    assert ((bounds.low <= truth) & (truth <= bounds.high)).mean() < 0.9


def test_wrong_noise_is_noticed() -> None:
    """Intervals of noise a third too small cover visibly less, so that the tests above can fail."""
    from rpdp.statistics import Inquiry
    from rpdp.statistics.inquiry import noise_of
    from tests.statistics.world import releases

    world = World.make(2000)
    statistic, true = statistics(None)["mean"]
    inquiry = Inquiry((statistic,), "everyone")
    cells = releases(world, inquiry, 3.0, RELEASES, np.random.default_rng(3))
    bounds = inquiry.intervals(cells, noise_of(2.0, 0.95, "everyone"))[0]
    truth = true(world, world.takes_part)
    assert ((bounds.low <= truth) & (truth <= bounds.high)).mean() < 0.9


def test_a_ratio_covers_where_its_divisor_is_uncertain() -> None:
    """The divisor, 600 records, is known to ±87; an interval that took it as known would cover less."""
    world = World.make(2000)
    statistic, _ = statistics(None)["proportions"]
    bounds = simulated(world, statistic, "everyone", 4 * RELEASES, noise_multiplier=50.0)
    truth = float((world.of("type", world.takes_part) == "a").mean())
    covered = (bounds.low[:, 0] <= truth) & (truth <= bounds.high[:, 0])
    assert covered.mean() >= 0.938


def test_quantiles_cover_where_noise_is_wider_than_a_bin() -> None:
    """Elsewhere the width of a bin would hide an interval that is too narrow; 600 records, a count is known to ±60."""
    world = World.make(2000)
    statistic, true = statistics(None)["quantiles"]
    bounds = simulated(world, statistic, "everyone", 4 * RELEASES, noise_multiplier=30.0)
    truth = true(world, world.takes_part)
    covered = ((bounds.low <= truth) & (truth <= bounds.high)).mean(axis=0)
    assert covered.min() >= 0.938
    assert (np.abs(bounds.value.mean(axis=0) - truth) <= 0.3 * bounds.value.std(axis=0)).all()
