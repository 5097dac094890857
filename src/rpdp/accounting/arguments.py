"""The arguments of curves: numbers or arrays that are checked, and results of the same kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpdp.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from rpdp.accounting._types import FloatArray


def probabilities(q: ArrayLike) -> FloatArray:
    """Return sampling probabilities, or weights; they must lie between 0 and 1."""
    values = np.asarray(q, dtype=np.float64)
    wrong = ~((values >= 0.0) & (values <= 1.0))
    if wrong.any():
        raise InputError(f"q={values[wrong].flat[0]} must lie between 0 and 1")
    return values


def not_negative(epsilon: ArrayLike) -> FloatArray:
    """Return budgets; they may be infinite, but not negative."""
    budgets = np.asarray(epsilon, dtype=np.float64)
    wrong = ~(budgets >= 0.0)
    if wrong.any():
        raise InputError(f"epsilon={budgets[wrong].flat[0]} must be a number that is not negative")
    return budgets


def finite_levels(epsilon: ArrayLike) -> FloatArray:
    """Return the ε of a privacy profile; they must be finite and not negative."""
    levels = np.asarray(epsilon, dtype=np.float64)
    if not np.isfinite(levels).all() or (levels < 0.0).any():
        raise InputError(f"epsilon={epsilon!r} must be finite and not negative")
    return levels


def like(given: ArrayLike, values: FloatArray) -> FloatArray | float:
    """A float for a scalar argument, else the array."""
    return float(values) if np.ndim(given) == 0 else values
