"""Poisson sampling for a local step: each record independently with its own probability (privacy.md, rule 4).

The accounting holds for Poisson sampling and for nothing else: no shuffling, no fixed batch size, no redraw of an
empty batch. With personal budgets the probabilities differ from record to record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpdp.errors import InputError
from rpdp.sampling.bernoulli_draws import BernoulliDraws
from rpdp.sampling.geometric_skips import GeometricSkips

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from rpdp.sampling.randomness import Randomness

SKIP_FROM = 100_000  # measured: from this size on, skipping is at least as fast, whatever the probabilities

_LEAST = 2.0**-64  # the smallest probability that one word can express
_DENSE = 1 / 16  # above this probability so many records are drawn that skipping saves nothing


class PoissonSampler:
    """Draws batches that hold record j with probability q_j, independently of all others and of the past.

    | q_j | what happens |
    |---|---|
    | 0 | never drawn |
    | below 2⁻⁶⁴ | never drawn |
    | below 1/16, at least 100,000 records | drawn with q_j, too low by at most 1e-6 of it: see `geometric_skips` |
    | otherwise | drawn with q_j, rounded down to a multiple of 2⁻⁶⁴ |
    | 1 | always drawn |

    The realised probability never exceeds q_j, so the realised cost never exceeds the planned one. With many records
    the time of a draw depends on the number drawn, not on the number of records. Batches may be empty and have no
    maximum size.

    >>> from rpdp.sampling import Seeded
    >>> PoissonSampler([0.0, 1.0, 0.5, 1.0]).draw(Seeded(1))
    array([1, 3])
    """

    def __init__(self, probabilities: ArrayLike, randomness: Randomness | None = None) -> None:
        q = _checked(probabilities)
        self._size = q.size
        self._randomness = randomness
        self._switched_off: NDArray[np.bool_] | None = None
        dense_from = _DENSE if q.size >= SKIP_FROM else 0.0
        self._comparison = BernoulliDraws(q, np.flatnonzero(q >= dense_from))
        sparse = np.flatnonzero((q >= _LEAST) & (q < dense_from))
        self._skipping = GeometricSkips(q, sparse) if sparse.size else None

    def __len__(self) -> int:
        return self._size

    def draw(self, randomness: Randomness | None = None) -> NDArray[np.int64]:
        """Return the sorted record indices of one batch, drawn with `randomness` or with that of the constructor."""
        source = randomness if randomness is not None else self._randomness
        if source is None:
            raise InputError("no randomness: give it to draw(...) or to PoissonSampler(probabilities, ...)")
        drawn = self._comparison.draw(source)
        if self._skipping is not None:
            skipped = self._skipping.draw(source)
            drawn = np.sort(np.concatenate((drawn, skipped)) if drawn.size else skipped)
        # Remove switched-off records only after the draw, so that the draws of all other records stay the same.
        if self._switched_off is not None:
            drawn = drawn[~self._switched_off[drawn]]
        return drawn

    def switch_off(self, indices: ArrayLike) -> None:
        """Never draw these records again. Draws of all other records are unaffected."""
        chosen = np.asarray(indices)
        if chosen.size == 0:
            return
        if chosen.dtype.kind not in "iu":
            raise InputError(f"indices must be whole numbers, not {chosen.dtype}")
        wrong = chosen[(chosen < 0) | (chosen >= self._size)]
        if wrong.size:
            raise InputError(f"index {wrong[0]} is not one of the {self._size} records")
        if self._switched_off is None:
            self._switched_off = np.zeros(self._size, dtype=bool)
        self._switched_off[chosen] = True


def _checked(probabilities: ArrayLike) -> NDArray[np.float64]:
    try:
        q = np.array(probabilities, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"probabilities must be numbers: {error}") from None
    if q.ndim != 1:
        raise InputError(f"probabilities must be one number for each record, not an array of shape {q.shape}")
    wrong = np.flatnonzero(~((q >= 0.0) & (q <= 1.0)))
    if wrong.size:
        raise InputError(
            f"probability {q[wrong[0]]} of record {wrong[0]} must be between 0 and 1 ({wrong.size} such records)"
        )
    return q
