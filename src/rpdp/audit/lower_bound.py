"""ε_L: a lower bound on ε that an attacker can prove, for one budget group.

The attacker points at the share of canaries with the highest scores and says "in" (or at those with the lowest, and
says "out"). Let t be the score at which that share ends, and a and b the probabilities that a canary whose coin agrees,
or disagrees, with the guess scores beyond t. If the run is (ε, δ)-DP for a record, then a ≤ e^ε b + δ, whatever t is.
The coin is fair, so given t the number of right guesses among the r canaries beyond t is Binomial(r, π) with π = a/(a +
b). With lower confidence bounds π_L on π and s_L on s = a + b (Clopper and Pearson, exact at every sample size):

    ε ≥ log((π − δ/s) / (1 − π)) ≥ log((π_L − δ/s_L) / (1 − π_L)) = ε_L

One binomial instead of separate bounds on true and false positives is what makes the bound sharp: errors of the two
rates do not add up. For δ = 0 it is the bound of Steinke, Nasr and Jagielski (2023, arXiv 2305.08846), which needs no
independence at all; with δ we use that canaries are independent (see `rpdp.audit.planting`). For s: the probability
beyond the (r + 1)-th highest of n continuous scores is Beta(r + 1, n − r), above the Beta(r, n − r + 1) that is used.

The share has to be chosen before the data are seen. It is: from an independent simulation of the *law* that the plan
states, side and share with the largest expected ε_L are taken. One share per group, so only the number of groups has to
be corrected for: all ε_L hold together with the stated confidence. A share rather than a threshold, because the scores
of a build that does not conform may lie elsewhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.audit.canary_law import CanaryLaw
    from rpdp.sampling import Randomness

SHARES = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
"""Candidates for the share of all canaries that the attacker points at."""

_SHARE_IF_HOPELESS = 0.1
"""Where so few canaries cannot prove anything about a build that conforms; one that does not may still show."""

_FOR_SHARE = 0.05
"""The part of a group's error that goes to the bound on s, which δ makes necessary; the rest goes to π."""

_DESIGN_WORK = 20_000_000
_DESIGN_LEAST, _DESIGN_FACTOR = 10_000, 2
"""Canaries that are simulated, in and out each, to choose a share: as many as make so many observations, at least the
first number and at most so many times the canaries of the group."""


@dataclass(frozen=True)
class Cut:
    """What the attacker does, fixed in advance: guess "in" on the highest scores, or "out" on the lowest.

    Attributes:
        says_in: Which guess is made.
        share: Of the canaries that a guess is made on.
        expected: The ε_L that a build which conforms to the plan leads to, about.
    """

    says_in: bool
    share: float
    expected: float

    def points_at(self, scores: NDArray[np.float64]) -> NDArray[np.bool_]:
        """The canaries that a guess is made on: fewer where scores are tied."""
        ranked = scores if self.says_in else -scores
        place = scores.size - 1 - min(round(self.share * scores.size), scores.size - 1)
        return np.asarray(ranked > np.partition(ranked, place)[place])


@dataclass(frozen=True)
class LowerBound:
    """ε_L of a group, and the counts that it comes from."""

    epsilon: float
    guesses: int
    right: int
    cut: Cut


def lower_epsilon(right: float, guesses: float, canaries: int, delta: float, error: float) -> float:
    """ε_L from right guesses, guesses and canaries, wrong with probability at most `error`; never negative."""
    if right <= 0 or guesses <= 0:
        return 0.0
    share = 2.0 * float(stats.beta.ppf(_FOR_SHARE * error, guesses, canaries - guesses + 1))
    correct = float(stats.beta.ppf((1.0 - _FOR_SHARE) * error, right, guesses - right + 1))
    numerator = correct - delta / share if share > 0.0 else 0.0
    return max(0.0, math.log(numerator / (1.0 - correct))) if numerator > 0.0 else 0.0


def choose_cut(
    law: CanaryLaw, observations: int, canaries: int, delta: float, error: float, randomness: Randomness
) -> Cut:
    """Side and share with the largest expected ε_L under the plan's own law; looks at no silo."""
    count = max(min(_DESIGN_WORK // (2 * observations), _DESIGN_FACTOR * canaries), _DESIGN_LEAST)
    scores = np.concatenate([_scores(law, observations, count, randomness, taken=is_in) for is_in in (True, False)])
    is_taken = np.repeat([True, False], count)
    best = Cut(True, _SHARE_IF_HOPELESS, 0.0)
    for share, says_in in product(SHARES, (True, False)):
        found = bound(scores, is_taken, Cut(says_in, share, 0.0), delta, error)
        scale = canaries / scores.size
        right, guesses = _cautious(found.right, found.guesses) * scale, found.guesses * scale
        expected = lower_epsilon(right, guesses, canaries, delta, error)
        if expected > best.expected:
            best = Cut(says_in, share, expected)
    return best


def bound(scores: NDArray[np.float64], taken: NDArray[np.bool_], cut: Cut, delta: float, error: float) -> LowerBound:
    """ε_L of one group from the scores of its canaries and their coins."""
    guessed = cut.points_at(scores)
    right = int((taken if cut.says_in else ~taken)[guessed].sum())
    guesses = int(guessed.sum())
    return LowerBound(lower_epsilon(right, guesses, len(scores), delta, error), guesses, right, cut)


def _scores(
    law: CanaryLaw, observations: int, count: int, randomness: Randomness, *, taken: bool
) -> NDArray[np.float64]:
    scores = np.zeros(count)
    for _ in range(observations):
        scores += law.log_ratio(law.sample(count, randomness, taken=taken))
    return scores


def _cautious(right: int, guesses: int) -> float:
    """A right count one deviation lower: among many candidates, a lucky one would win."""
    return max(0.0, right - math.sqrt(right * (guesses - right) / guesses)) if guesses else 0.0
