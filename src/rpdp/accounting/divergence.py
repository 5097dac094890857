"""What a run costs a Rényi account: the divergence ρ(q) of the whole run at one order, and its inverse."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from rpdp.accounting.certificate import SMALLEST_PROBABILITY, Certificate
from rpdp.accounting.noise_limits import require_priceable
from rpdp.accounting.renyi import MOMENT_ERROR, run_log_moments

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.accounting._types import FloatArray
    from rpdp.accounting.schedule import Schedule

_SMALLEST_DIVERGENCE = 2.0**-30
"""Below this, gaps between nodes are absolute: no account is as small."""


class DivergenceCurve:
    """The divergence ρ(q) = log E_k[exp(k τ K_α(q))] / (α − 1) of a run for a record that is sampled with q.

    It is a pure upper bound, exact to eleven digits, and rises with q. `certify` gives the largest q (to 0.5 % of ρ)
    that is within a divergence, like `PrivacyCurve.certify` for ε: never interpolated, never over.

    >>> from rpdp.accounting.schedule import Schedule
    >>> curve = DivergenceCurve(Schedule(15, 50, participations=8), noise_multiplier=9.11, order=4.0)
    >>> q, cost = curve.certify(np.array([0.5]))
    >>> bool(0.4975 <= cost[0] <= 0.5)
    True
    """

    def __init__(self, schedule: Schedule, *, noise_multiplier: float, order: float) -> None:
        self.schedule = schedule
        self.noise_multiplier = require_priceable(noise_multiplier)
        self.order = order
        self._count = schedule.count()

    def divergence(self, q: FloatArray) -> FloatArray:
        """Upper bounds on the divergence of each q; 0 at q = 0, and below 2⁻⁴⁰ as much as at 2⁻⁴⁰."""
        probabilities = np.asarray(q, dtype=np.float64)
        result = np.zeros(probabilities.shape)
        drawn = probabilities > 0.0
        result[drawn] = self._price(np.maximum(probabilities[drawn], SMALLEST_PROBABILITY))
        return result

    def certify(self, divergence: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The sampling probability for each divergence, and its own divergence, which never exceeds it."""
        return self._certificate.invert(np.asarray(divergence, dtype=np.float64))

    def covers(self, q: FloatArray, cost: FloatArray, times: int = 1) -> NDArray[np.bool_]:
        """Whether each stated cost is at least `times` the divergence of its q."""
        covered = cost >= times * self._certificate.prices(q)
        rest = np.flatnonzero(~covered)
        covered[rest] = cost[rest] >= times * self.divergence(q[rest])
        return np.asarray(covered)

    def tabulate(self) -> None:
        """Compute everything that `certify` may need for any budgets, so that it takes no further time."""
        self._certificate.fill()

    @cached_property
    def _certificate(self) -> Certificate:
        return Certificate(self._price, absolute_below=_SMALLEST_DIVERGENCE)

    def _price(self, q: FloatArray) -> FloatArray:
        moments = run_log_moments(
            q, np.full(q.shape, self.order), self.noise_multiplier, self.schedule.local_steps, self._count
        )
        return np.asarray(moments * (1.0 + MOMENT_ERROR) / (self.order - 1.0))
