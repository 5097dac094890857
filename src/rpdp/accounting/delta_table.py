"""Prices at many δ: what a run costs records that allow another δ than most, such as a share of a person's.

A `PrivacyCurve` is made for one δ. Here the divergences of a public list of sampling probabilities are computed once,
at all orders of a public list, and turned into ε at any δ. Prices are Rényi bounds, some per cent above those of
privacy-loss distributions, and several times as high where a cost is tiny. A table takes seconds, and each further δ
next to nothing. Everything is public, so neither a price nor the time that it takes depends on which records there are.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from rpdp.accounting.certificate import largest_within
from rpdp.accounting.noise_limits import require_priceable
from rpdp.accounting.renyi import run_log_moments, tight_epsilon
from rpdp.accounting.renyi_filter import ORDERS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.accounting._types import FloatArray
    from rpdp.accounting.schedule import Schedule

_NODES_PER_OCTAVE = 96
_OCTAVES = 24
_DELTAS_PER_OCTAVE = 4


def delta_below(delta: FloatArray) -> FloatArray:
    """Each δ rounded down to a public lattice, four to an octave, so that few different ones are left; 0 stays 0."""
    with np.errstate(divide="ignore"):
        steps = np.ceil(-np.log2(delta) * _DELTAS_PER_OCTAVE)
    rounded = np.where(delta > 0.0, np.exp2(-steps / _DELTAS_PER_OCTAVE), 0.0)
    return np.minimum(rounded, delta)  # rounding of the logarithm must not raise it


class DeltaTable:
    """The cost of a run at any δ, for a fixed list of sampling probabilities."""

    def __init__(self, schedule: Schedule, *, noise_multiplier: float) -> None:
        self._schedule = schedule
        self._noise_multiplier = require_priceable(noise_multiplier)
        self.q = np.exp2(-np.arange(_OCTAVES * _NODES_PER_OCTAVE, -1, -1) / _NODES_PER_OCTAVE)
        """The sampling probabilities, rising to 1."""

    def costs(self, delta: float) -> FloatArray:
        """Upper bounds on ε for each q of the table, rising with q."""
        orders = ORDERS[1:]
        return np.maximum.accumulate(tight_epsilon(self._moments, orders, delta).min(axis=1))

    def certify(self, epsilon: FloatArray, delta: float) -> tuple[FloatArray, FloatArray]:
        """For each budget, the largest q of the table whose cost is within it, and that cost; 0 and 0 if none is."""
        return largest_within(self.q, self.costs(delta), epsilon)

    def covers(self, q: FloatArray, cost: FloatArray, delta: float) -> NDArray[np.bool_]:
        """Whether each stated cost is at least that of the q of the table at or just above its q."""
        at = np.searchsorted(self.q, q, side="left")
        return np.asarray((q <= 1.0) & (cost >= self.costs(delta)[np.minimum(at, self.q.size - 1)]))

    def tabulate(self) -> None:
        """Compute the table now, so that no price takes longer than another."""
        self._moments  # noqa: B018

    @cached_property
    def _moments(self) -> FloatArray:
        count, steps = self._schedule.count(), self._schedule.local_steps
        return run_log_moments(self.q[:, None], ORDERS[None, 1:], self._noise_multiplier, steps, count)
