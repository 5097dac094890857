"""The attack "at least m of n outputs lie beyond c": its δ, by exact binomial arithmetic, is a lower bound.

With heavy tails one or a few large outputs give a record away, so the bound is close to the truth, however small δ is.
The attacker sees in how many rounds the silo took part and may ignore some of them: numbers k of rounds are rounded
down to a short list. This file shares nothing with `rpdp.accounting`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import special, stats

from tests.accounting.oracle import participation_masses

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp import Schedule

    Real = NDArray[np.float64]

_MOST_OUTPUTS_BEYOND = 12
_MOST_GROUPS = 24


def attack_delta(schedule: Schedule, sigma: float, q: float, epsilon: float) -> float:
    """The largest Pr[attack | record] − e^ε Pr[attack | no record] over thresholds c and, for each k, numbers m."""
    counts, masses = _grouped(participation_masses(schedule))
    steps = counts.astype(np.float64) * schedule.local_steps
    middle = 0.5 + sigma**2 * np.log1p(np.expm1(epsilon) / q)  # here one output alone has the loss ε
    low, high = 0.0, max(middle, 1.0) + 4.0 * sigma
    for _ in range(3):
        thresholds = np.linspace(low, high, 25)
        deltas = [_at(float(threshold), sigma, q, epsilon, steps, masses) for threshold in thresholds]
        best = int(np.argmax(deltas))
        low, high = thresholds[max(best - 1, 0)], thresholds[min(best + 1, 24)]
    return max(deltas)


def _at(threshold: float, sigma: float, q: float, epsilon: float, steps: Real, masses: Real) -> float:
    absent = float(stats.norm.sf(threshold / sigma))
    present = (1.0 - q) * absent + q * float(stats.norm.sf((threshold - 1.0) / sigma))
    beyond = np.arange(1, _MOST_OUTPUTS_BEYOND + 1)[:, None]
    gain = at_least(beyond, steps, present) - np.exp(epsilon) * at_least(beyond, steps, absent)
    return float(np.maximum(gain, 0.0).max(axis=0) @ masses)


def at_least(m: NDArray[np.int64], n: Real, probability: float) -> Real:
    """Pr[Binomial(n, probability) ≥ m] as an incomplete beta function, exact at tiny values too."""
    possible = m <= n
    return np.where(possible, special.betainc(m, np.where(possible, n - m + 1, 1.0), probability), 0.0)


def _grouped(masses: Real) -> tuple[NDArray[np.int64], Real]:
    """The numbers k ≥ 1 rounded down to a short list."""
    counts = np.flatnonzero(masses[1:] > 0.0) + 1
    likely = counts[np.cumsum(masses[counts]) > 1e-3 * masses[counts].sum()]
    kept = np.unique(np.concatenate([counts[:1], likely[:: max(1, -(-likely.size // _MOST_GROUPS))]]))
    group = np.searchsorted(kept, counts, side="right") - 1
    weights = np.bincount(group, weights=masses[counts], minlength=kept.size)
    return kept, np.asarray(weights, dtype=np.float64)
