"""The model-only audit on real records: leakage follows the budgets where there is something to see."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rpdp import BudgetTable, PublicPlan, Recipe, Schedule
from rpdp.audit import MembershipResult, audit_model
from rpdp.errors import InputError
from rpdp.federation import Policy, Silo
from rpdp.tasks.registry import task
from rpdp.training import Records

GROUPS = (1.0, 4.0, 16.0, 64.0)
SIGMA = 1.1485
"""At which a record in every batch of 10 × 10 steps pays ε = 64: more than anybody should, so that something shows."""


def digits(runs: int, *, records: int = 200, groups: tuple[float, ...] = GROUPS, seed: int = 1) -> MembershipResult:
    """A linear model of 650 parameters on 200 handwritten digits, half of them in."""
    chosen = task("digits")
    train = next(iter(chosen.load().silos.values())).train
    held = Records.of(torch.from_numpy(train.features[:records]), torch.from_numpy(train.labels[:records]))
    public = PublicPlan(
        Schedule(10, 10, participation=1.0),
        noise_multiplier=SIGMA,
        delta=1e-3,
        clip_norm=1.0,
        normaliser=37.0,
        weights=1.0,
        recipe=Recipe(learning_rate=0.5),
    )
    silo = Silo("a", held, BudgetTable([str(i) for i in range(records)], np.ones(records)), policy=Policy.of(public))
    return audit_model(chosen.model(), chosen.loss, [silo], public, groups=groups, runs=runs, seed=seed, workers=1)


def test_leakage_follows_the_budgets() -> None:
    """12 simulations of seed 1."""
    result = digits(12, groups=(1.0, 64.0))
    low, high = result.groups
    assert result.follows_budgets
    assert result.passed
    assert low.area.high < high.area.low
    assert high.advantage.low > 0.2
    assert low.advantage.high < high.advantage.low
    assert high.advantage.high < high.bound
    assert (result.runs, result.records) == (12, 200)


def test_nothing_is_seen_where_nobody_is_drawn_more_than_others() -> None:
    """Negative control: two groups with nearly the same budget show no order."""
    result = digits(8, groups=(16.0, 16.001))
    assert not result.follows_budgets
    assert result.slope.low < 0.0 < result.slope.high


@pytest.mark.slow
def test_the_order_of_leakage_is_the_order_of_budgets() -> None:
    """60 simulations: every group above the one before, neighbours' intervals of the larger budgets apart."""
    groups = digits(60).groups
    means = [group.area.mean for group in groups]
    assert means == sorted(means)
    assert groups[1].area.high < groups[2].area.low
    assert groups[2].area.high < groups[3].area.low
    assert all(group.advantage.high < group.bound for group in groups)


def test_what_cannot_be_done_is_refused() -> None:
    with pytest.raises(InputError, match="runs=3 must be at least 8"):
        digits(3)
    with pytest.raises(InputError, match="10 records are too few for 4 budget groups"):
        digits(8, records=10)
