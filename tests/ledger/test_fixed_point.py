"""Booked amounts are exact: whatever the floats, true costs never add up to more than a budget."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rpdp.ledger.store.fixed_point import (
    DELTA_SHIFT,
    EPSILON_SHIFT,
    amounts,
    fits_amount,
    left_of,
    rounded_down,
    rounded_up,
)

budgets = st.floats(1e-9, 1000.0, allow_subnormal=False)


def one(value: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.array([value])


@given(budgets)
def test_rounding_is_to_the_next_whole_unit(value: float) -> None:
    units = Fraction(value) * 2**EPSILON_SHIFT
    up, down = int(rounded_up(one(value), EPSILON_SHIFT)[0]), int(rounded_down(one(value), EPSILON_SHIFT)[0])
    assert up - 1 < units <= up
    assert down <= units < down + 1


@given(st.integers(0, 2**63 - 1024), st.sampled_from([EPSILON_SHIFT, DELTA_SHIFT]))
def test_amounts_are_never_above_their_units(units: int, shift: int) -> None:
    value = float(amounts(np.array([units], dtype=np.int64), shift)[0])
    assert Fraction(value) <= Fraction(units, 2**shift)
    assert Fraction(np.nextafter(value, np.inf)) > Fraction(units, 2**shift)


@given(budgets, st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12))
def test_any_costs_within_what_is_left_add_up_to_at_most_the_budget(budget: float, shares: list[float]) -> None:
    reserved, spent = np.zeros(1, dtype=np.int64), Fraction(0)
    for share in [*shares, 1.0]:
        left = float(left_of(one(budget), reserved, EPSILON_SHIFT)[0])
        cost = one(min(left * share, left))
        assert fits_amount(cost, one(budget), reserved)[0]
        reserved = reserved + rounded_up(cost, EPSILON_SHIFT)
        spent += Fraction(float(cost[0]))
    assert spent <= Fraction(budget)
    assert Fraction(int(reserved[0]), 2**EPSILON_SHIFT) < Fraction(budget) + Fraction(1, 2**EPSILON_SHIFT)
    assert left_of(one(budget), reserved, EPSILON_SHIFT)[0] < 1e-12 * budget + 1e-12


@given(budgets)
def test_a_cost_just_above_what_is_left_does_not_fit(budget: float) -> None:
    assert not fits_amount(np.nextafter(one(budget), np.inf), one(budget), np.zeros(1, dtype=np.int64))[0]
    reserved = rounded_up(one(budget / 3), EPSILON_SHIFT)
    left = left_of(one(budget), reserved, EPSILON_SHIFT)
    assert not fits_amount(np.nextafter(left, np.inf), one(budget), reserved)[0]


def test_the_largest_budgets_do_not_overflow() -> None:
    reserved = rounded_up(one(1000.0), EPSILON_SHIFT)
    assert int((reserved + rounded_up(one(1000.0), EPSILON_SHIFT))[0]) > 0
    assert int((2 * rounded_up(np.nextafter(one(1.0), 0.0), DELTA_SHIFT))[0]) > 0
