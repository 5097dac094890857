"""Fixed-point amounts of ε, ρ and δ, so that sums of reservations are exact.

ε and ρ are booked in units of 2⁻⁵² and δ in units of 2⁻⁶², in 64-bit integers. Budgets are at most 1,000, so nothing
overflows. Scaling a float by a power of two is exact, so rounding up to units is exact too.

A record's first reservation may be its whole budget, whatever its binary digits: while nothing is reserved, the budget
itself is what is left. After that, what is left is a whole number of units, so a cost within it still fits when rounded
up. The true costs therefore never add up to more than the budget, and what is booked exceeds it by less than one unit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]
    UnitArray = NDArray[np.int64]

EPSILON_SHIFT = 52
DELTA_SHIFT = 62

DELTA_TOLERANCE = 1e-12
"""A plan's δ may exceed what is left by this fraction of itself: the planner's own tolerance (`rpdp.planning`)."""


def rounded_up(amount: FloatArray, shift: int) -> UnitArray:
    """Return the fewest units that cover each amount."""
    units: UnitArray = np.ceil(np.ldexp(amount, shift)).astype(np.int64)
    return units


def rounded_down(amount: FloatArray, shift: int) -> UnitArray:
    """Return the most units within each amount."""
    units: UnitArray = np.floor(np.ldexp(amount, shift)).astype(np.int64)
    return units


def amounts(units: UnitArray, shift: int) -> FloatArray:
    """Return the largest float that does not exceed each number of units."""
    values = units.astype(np.float64)
    # A 64-bit integer may round up when it becomes a float; step down so that no record appears to have more left.
    values = np.where(values.astype(np.int64) > units, np.nextafter(values, 0.0), values)
    result: FloatArray = np.ldexp(values, -shift)
    return result


def left_of(budget: FloatArray, reserved: UnitArray, shift: int) -> FloatArray:
    """Return what is left of each budget: never negative, never more than is truly left."""
    units = np.maximum(rounded_down(budget, shift) - reserved, 0)
    return np.where(reserved == 0, budget, amounts(units, shift))


def fits_amount(cost: FloatArray, budget: FloatArray, reserved: UnitArray) -> NDArray[np.bool_]:
    """Return whether each cost is within what is left, exactly."""
    return cost <= left_of(budget, reserved, EPSILON_SHIFT)


def fits_delta(delta: FloatArray | float, budget: FloatArray, reserved: UnitArray) -> NDArray[np.bool_]:
    """Return whether each δ is within what is left, up to the planner's tolerance."""
    return left_of(budget, reserved, DELTA_SHIFT) >= delta * (1.0 - DELTA_TOLERANCE)
