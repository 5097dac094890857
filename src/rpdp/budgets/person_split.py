"""What the parts of a person's records add up to: group composition, in the order that shows least.

Take the records of a person away one after another. If record j alone is (ε_j, δ_j)-private, all of them together are
(Σε_j, D)-private with D = Σ_j δ_j e^{Σ_{i before j} ε_i}, in whatever order they are taken away. So the smallest of
these sums holds: it takes the records with the largest δ_j / (e^{ε_j} − 1) first (two neighbours in another order can
be exchanged, which makes the sum smaller). For k equal parts it is δ' (e^ε − 1)/(e^{ε/k} − 1), the split of privacy.md,
section 7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]


def log_joint_delta(epsilon: FloatArray, delta: FloatArray, person: NDArray[np.int64], persons: int) -> FloatArray:
    """The logarithm of each person's δ, whose records have these parts.

    Args:
        epsilon: The part of each record.
        delta: The part of each record.
        person: The person of each record, numbered from 0.
        persons: How many persons there are.
    """
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        rate = np.where(epsilon > 0.0, delta / np.expm1(epsilon), np.inf)
        log_delta = np.log(delta)
    order = np.lexsort((-rate, person))
    before = np.cumsum(epsilon[order]) - epsilon[order]
    first = np.searchsorted(person[order], np.arange(persons))
    before -= before[first][person[order]]
    total = np.full(persons, -np.inf)
    np.logaddexp.at(total, person[order], log_delta[order] + before)
    return total


def equal_log_delta(epsilon: FloatArray, log_total: FloatArray, person: NDArray[np.int64]) -> FloatArray:
    """The logarithm of the one δ that each of a person's records gets if their ε are these and the person's δ is given.

    Args:
        epsilon: The part of each record.
        log_total: The logarithm of each person's δ.
        person: The person of each record.
    """
    ways = log_joint_delta(epsilon, np.ones(len(epsilon)), person, len(log_total))
    return (log_total - ways)[person]
