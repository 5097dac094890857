"""A lower bound on the cost of a record that shares no code with the accountants: what the simplest attacker proves.

The attacker knows everything except whether the record is in the data. From every release of a round that the silo
joined it subtracts what it knows, projects the rest on the direction of the record's gradient, and adds up. Over n = kτ
local steps of k joined rounds it sees Binomial(n, q) + N(0, nσ²) clip norms if the record is in, and N(0, nσ²) if not.
It says "there" above a threshold. A plan that is (ε, δ)-private has Pr[there | in] ≤ e^ε Pr[there | out] + δ; so for
every threshold, averaged over k, which the attacker sees,

    δ ≥ Σ_k Pr[k] max_c (Pr[Binomial(kτ, q) + N(0, kτσ²) > c] − e^ε Pr[N(0, kτσ²) > c]).

Nothing is discretised, composed or converted here: the formula holds exactly, for any thresholds. How tight it is
depends on σ: at the paper's settings (σ = 5 and 10) it proves 99 % of the certified cost, at σ = 2 nine tenths, and at
σ = 1 two thirds. In very long runs the attacker uses only some of the steps, which proves less.

In a run with a request nobody is sampled: with weight w the record moves the sum of n releases by nw norms for certain,
and the noise of that sum is √n s. Then one threshold, half way and ε n s²/(nw) further, proves the whole price.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln, log_ndtr, ndtr, xlog1py, xlogy

if TYPE_CHECKING:
    from rpdp.accounting import Schedule
    from rpdp.ledger.store.fixed_point import FloatArray
    from rpdp.planning import PublicPlan

THRESHOLDS, MOST_STEPS, MOST_COUNTS = 120, 20_000, 25
"""The attacker's effort: thresholds, local steps it uses, numbers of joined rounds it distinguishes."""

_FAR = 8.0
"""The range of thresholds in standard deviations; any range is valid."""

_RARE = 1e-9
"""Numbers of joined rounds that are less likely than this are left out, which can only lower the bound."""

_ROUNDING = 1e-14
"""The relative error allowed for Φ; with an exponent of ε it grows in proportion to ε."""


def provable_delta(public: PublicPlan, active: int, q: FloatArray, epsilon: FloatArray) -> FloatArray:
    """Return a lower bound on δ: below it, the plan is not (ε, δ)-private for a record of probability or weight q.

    `active` is the number of rounds, from the first, in which the record may be drawn.
    """
    if public.request is not None:
        return _advantage_of_weight(q, epsilon, active, public.noise_multiplier)
    law, total = joined_rounds(public.schedule, active), np.zeros(len(q))
    counts = 1 + np.flatnonzero(law[1:] > _RARE)
    for alike in np.array_split(counts, min(len(counts), MOST_COUNTS) or 1):
        if alike.size:  # treated as the fewest of them: the attacker ignores the other rounds, which proves less
            steps = min(int(alike[0]) * public.schedule.local_steps, MOST_STEPS)
            total += law[alike].sum() * _advantage(q, epsilon, steps, public.noise_multiplier)
    return total


def _advantage(q: FloatArray, epsilon: FloatArray, steps: int, sigma: float) -> FloatArray:
    """Return the best bound over all thresholds for exactly `steps` steps.

    It is never negative, because an attacker may choose never to say "there".
    """
    spread = sigma * np.sqrt(steps)
    # More draws than `most` are so unlikely that they hardly count, and leaving them out only lowers the bound.
    most = float(steps * q.max() + 1.5 * _FAR * np.sqrt(steps * q.max()) + 20)
    drawn = np.arange(min(steps, int(most)) + 1, dtype=np.float64)
    thresholds = np.linspace(-_FAR * spread, drawn[-1] + _FAR * spread, THRESHOLDS)
    there = _binomial(steps, drawn, q) @ ndtr((drawn[:, None] - thresholds) / spread)
    not_there = log_ndtr(-thresholds / spread)
    best: FloatArray = (there - np.exp(np.minimum(epsilon[:, None] + not_there, 700.0))).max(axis=1)
    return np.maximum(best, 0.0)


def _advantage_of_weight(q: FloatArray, epsilon: FloatArray, releases: int, sigma: float) -> FloatArray:
    """Return the bound for a record that moves every release by q norms; less what rounding may add to it."""
    spread = sigma * np.sqrt(releases)
    moved = np.maximum(q * releases, np.finfo(np.float64).tiny)
    with np.errstate(over="ignore"):
        threshold = np.minimum(0.5 * moved + epsilon * spread**2 / moved, 1e100)
    there = ndtr((moved - threshold) / spread)
    not_there = np.exp(np.minimum(epsilon + log_ndtr(-threshold / spread), 0.0))
    rounding = _ROUNDING * (1.0 + epsilon) * (there + not_there)
    proven: FloatArray = np.where(q > 0.0, np.maximum(there - not_there - rounding, 0.0), 0.0)
    return proven


def _binomial(count: int, successes: FloatArray, q: FloatArray) -> FloatArray:
    """Return Pr[Binomial(count, q) = successes], one row for each q."""
    ways = _ways(count, successes)
    chance: FloatArray = np.exp(ways + xlogy(successes, q[:, None]) + xlog1py(count - successes, -q[:, None]))
    return chance


def joined_rounds(schedule: Schedule, active: int) -> FloatArray:
    """Return Pr[k of the first `active` rounds are joined] for k = 0 … active, from the definition of the schedule."""
    counts = np.arange(active + 1, dtype=np.float64)
    if schedule.participations is None:
        assert schedule.participation is not None
        law: FloatArray = _binomial(active, counts, np.array([schedule.participation]))[0]
        cap = schedule.max_participations
        if cap is not None and cap < active:
            law[cap], law[cap + 1 :] = law[cap:].sum(), 0.0
        return law
    rounds, chosen = schedule.rounds, schedule.participations  # exactly k of T rounds, every choice equally likely
    law = np.zeros(active + 1)
    possible = (counts <= chosen) & (chosen - counts <= rounds - active)
    inside = counts[possible]
    ways = _ways(active, inside) + _ways(rounds - active, chosen - inside)
    law[possible] = np.exp(ways - _ways(rounds, np.array([float(chosen)])))
    return law


def _ways(count: int, chosen: FloatArray) -> FloatArray:
    """Return the logarithm of the binomial coefficient."""
    ways: FloatArray = gammaln(count + 1) - gammaln(chosen + 1) - gammaln(count - chosen + 1)
    return ways
