"""Prices at many δ: upper bounds at each, and a lattice that only ever rounds down."""

from __future__ import annotations

import numpy as np
import pytest

from rpdp import PrivacyCurve, Schedule
from rpdp.accounting.delta_table import DeltaTable, delta_below

SCHEDULE, SIGMA = Schedule(6, 5, participation=0.5), 4.0
DELTAS = [1e-2, 1e-3, 1e-5, 1e-8]


@pytest.fixture(scope="module")
def table() -> DeltaTable:
    return DeltaTable(SCHEDULE, noise_multiplier=SIGMA)


def test_the_lattice_rounds_down_by_less_than_a_fifth() -> None:
    delta = np.exp(np.random.default_rng(1).uniform(np.log(1e-300), np.log(0.9), 10_000))
    rounded = delta_below(delta)
    assert (rounded <= delta).all()
    assert (rounded > 0.84 * delta).all()
    assert len(set(rounded.tolist())) < 4100


def test_the_lattice_keeps_its_own_points_and_nothing() -> None:
    steps = np.exp2(-np.arange(4.0, 200.0) / 4.0)
    np.testing.assert_array_equal(delta_below(steps), steps)
    assert delta_below(np.array([0.0])).tolist() == [0.0]


def test_a_point_of_the_lattice_rests_on_one_delta_alone() -> None:
    delta = np.array([3e-4, 1e-5, 2.5e-7])
    assert delta_below(delta).tolist() == [delta_below(delta[i : i + 1])[0] for i in range(3)]


@pytest.mark.parametrize("delta", DELTAS)
def test_prices_are_upper_bounds_at_every_delta(table: DeltaTable, delta: float) -> None:
    """Above what a privacy-loss distribution proves; the control, the price at ten times that δ, is not."""
    rows = np.flatnonzero(table.q >= 0.05)[::97]
    lower = PrivacyCurve(SCHEDULE, noise_multiplier=SIGMA, delta=delta).bounds(table.q[rows]).lower
    costs = table.costs(delta)[rows]
    assert (costs >= lower).all()
    assert (np.diff(costs) >= 0.0).all()
    assert (table.costs(10.0 * delta)[rows] < lower).any()
    every_order = PrivacyCurve(SCHEDULE, noise_multiplier=SIGMA, delta=delta, accountant="rdp")
    assert (costs <= 1.02 * every_order.epsilon(table.q[rows]) + 1e-3).all()  # few orders lose little


@pytest.mark.parametrize("delta", DELTAS)
def test_the_largest_probability_within_a_budget_is_certified(table: DeltaTable, delta: float) -> None:
    budgets = np.geomspace(1e-2, 20.0, 200)
    q, cost = table.certify(budgets, delta)
    drawn = q > 0.0
    assert (cost <= budgets).all()
    assert table.covers(q[drawn], cost[drawn], delta).all()
    tight = drawn & (q < 1.0)
    above = np.searchsorted(table.q, q[tight]) + 1
    assert (table.costs(delta)[above] > budgets[tight]).all()
    assert (table.q[above] < 1.008 * q[tight]).all()
    tight &= cost > 0.1
    assert not table.covers(q[tight], 0.96 * cost[tight], delta).any()
    assert not table.covers(q[tight] * 1.001, cost[tight], delta).any()


def test_nothing_is_certified_for_nothing(table: DeltaTable) -> None:
    q, cost = table.certify(np.array([0.0, -1.0]), 1e-5)
    assert q.tolist() == cost.tolist() == [0.0, 0.0]
    assert not table.covers(np.array([1.5]), np.array([1e9]), 1e-5).any()
