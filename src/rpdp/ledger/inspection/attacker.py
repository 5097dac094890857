"""A lower bound on the cost of a record that shares nothing with the accountants: what the simplest attacker proves.

It knows everything but whether the record is there. From every release of a round that the silo joined it takes away
what it knows, looks in the direction of the record's gradient, and adds up: over n = kτ local steps of k joined rounds
it sees Binomial(n, q) + N(0, nσ²) clip norms, or N(0, nσ²) if the record is not there. It says "there" above a
threshold. A plan that is (ε, δ)-private has Pr[there | in] ≤ e^ε Pr[there | out] + δ; so for every threshold, averaged
over k, which the attacker sees,

    δ ≥ Σ_k Pr[k] max_c (Pr[Binomial(kτ, q) + N(0, kτσ²) > c] − e^ε Pr[N(0, kτσ²) > c]).

Nothing is discretised, composed or converted here: the formula holds as it stands, for any thresholds. How sharp it is
depends on σ: at the paper's settings (σ = 5 and 10) it proves 99 % of the certified cost, at σ = 2 nine tenths, and two
thirds at σ = 1. Of very long runs the attacker looks at a part, which proves less.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln, log_ndtr, ndtr, xlog1py, xlogy

if TYPE_CHECKING:
    from rpdp.accounting import Schedule
    from rpdp.ledger.store.units import FloatArray
    from rpdp.planning import PublicPlan

THRESHOLDS, MOST_STEPS, MOST_COUNTS = 120, 20_000, 25
"""How hard the attacker tries: thresholds, local steps it looks at, numbers of joined rounds it tells apart."""

_FAR = 8.0
"""Standard deviations between which thresholds lie; any are valid."""

_RARE = 1e-9
"""Numbers of joined rounds, and of draws, that are rarer than this are left out: it only lowers the bound."""


def provable_delta(public: PublicPlan, active: int, q: FloatArray, epsilon: FloatArray) -> FloatArray:
    """A δ below which the plan is not (ε, δ)-private for a record of this q, active in its first rounds."""
    law, total = joined_rounds(public.schedule, active), np.zeros(len(q))
    counts = 1 + np.flatnonzero(law[1:] > _RARE)
    for alike in np.array_split(counts, min(len(counts), MOST_COUNTS) or 1):
        if alike.size:  # as if it were the fewest of them: the attacker ignores the other rounds
            steps = min(int(alike[0]) * public.schedule.local_steps, MOST_STEPS)
            total += law[alike].sum() * _advantage(q, epsilon, steps, public.noise_multiplier)
    return total


def _advantage(q: FloatArray, epsilon: FloatArray, steps: int, sigma: float) -> FloatArray:
    """The best over all thresholds, for exactly so many steps. Never negative: the attacker may never say "there"."""
    spread = sigma * np.sqrt(steps)
    most = float(steps * q.max() + 1.5 * _FAR * np.sqrt(steps * q.max()) + 20)
    drawn = np.arange(min(steps, int(most)) + 1, dtype=np.float64)
    thresholds = np.linspace(-_FAR * spread, drawn[-1] + _FAR * spread, THRESHOLDS)
    there = _binomial(steps, drawn, q) @ ndtr((drawn[:, None] - thresholds) / spread)
    not_there = log_ndtr(-thresholds / spread)
    best: FloatArray = (there - np.exp(np.minimum(epsilon[:, None] + not_there, 700.0))).max(axis=1)
    return np.maximum(best, 0.0)


def _binomial(count: int, successes: FloatArray, q: FloatArray) -> FloatArray:
    """Pr[Binomial(count, q) = successes], a row for each q."""
    ways = _ways(count, successes)
    chance: FloatArray = np.exp(ways + xlogy(successes, q[:, None]) + xlog1py(count - successes, -q[:, None]))
    return chance


def joined_rounds(schedule: Schedule, active: int) -> FloatArray:
    """Pr[k of the first `active` rounds are joined], k = 0 … active, from the definition of the schedule."""
    counts = np.arange(active + 1, dtype=np.float64)
    if schedule.participations is None:
        assert schedule.participation is not None
        law: FloatArray = _binomial(active, counts, np.array([schedule.participation]))[0]
        cap = schedule.max_participations
        if cap is not None and cap < active:
            law[cap], law[cap + 1 :] = law[cap:].sum(), 0.0
        return law
    rounds, chosen = schedule.rounds, schedule.participations  # so many of all rounds, every choice equally likely
    law = np.zeros(active + 1)
    possible = (counts <= chosen) & (chosen - counts <= rounds - active)
    inside = counts[possible]
    ways = _ways(active, inside) + _ways(rounds - active, chosen - inside)
    law[possible] = np.exp(ways - _ways(rounds, np.array([float(chosen)])))
    return law


def _ways(count: int, chosen: FloatArray) -> FloatArray:
    """The logarithm of the number of ways to choose."""
    ways: FloatArray = gammaln(count + 1) - gammaln(chosen + 1) - gammaln(count - chosen + 1)
    return ways
