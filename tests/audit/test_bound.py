"""ε_L is a lower bound as often as it says, and one that is worth something."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from rpdp.audit.canary_law import CanaryLaw
from rpdp.audit.lower_bound import Cut, bound, choose_cut, lower_epsilon
from rpdp.sampling import Seeded

TRIALS = 2_000


def exceeded(epsilon: float, claimed: float, delta: float, *, canaries: int = 1_000, error: float = 0.1) -> int:
    """Of many audits of the mechanism that is worst at (ε, δ), how often ε_L is above a claim. Seed 1.

    With probability δ the worst mechanism shows that a canary is in. Else it answers the coin's truth with odds e^ε.
    """
    generator = np.random.default_rng(1)
    taken = generator.random((TRIALS, canaries)) < 0.5
    lucky = taken & (generator.random(taken.shape) < delta)
    truthful = generator.random(taken.shape) < 1.0 / (1.0 + math.exp(-epsilon))
    scores = np.where(lucky, 1.0, np.where(taken == truthful, 1.0, 0.0))
    cut = Cut(True, 0.9, 0.0)  # of two scores: all with the higher one
    return sum(
        bound(score, coin, cut, delta, error).epsilon > claimed for score, coin in zip(scores, taken, strict=True)
    )


@pytest.mark.parametrize("delta", [0.0, 0.02])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_the_bound_is_wrong_no_more_often_than_stated(epsilon: float, delta: float) -> None:
    """2,000 audits at error 0.1: more than 259 wrong ones have probability 1e-5. A claim that is too low shows."""
    assert exceeded(epsilon, epsilon, delta) <= stats.binom.isf(1e-5, TRIALS, 0.1)
    assert exceeded(epsilon, epsilon - 0.3, delta) > 0.3 * TRIALS


def test_forgetting_delta_would_be_wrong() -> None:
    """Negative control: without δ in the formula, more than the stated share of the bounds is too high."""
    generator = np.random.default_rng(2)
    delta, epsilon, canaries = 0.05, 0.2, 4_000
    wrong = 0
    for _ in range(300):
        taken = generator.random(canaries) < 0.5
        shown = taken & (generator.random(canaries) < delta)
        honest = taken == (generator.random(canaries) < 1.0 / (1.0 + math.exp(-epsilon)))
        scores = np.where(shown, 1.0, np.where(honest, 1.0, 0.0))
        wrong += bound(scores, taken, Cut(True, 0.9, 0.0), 0.0, 0.1).epsilon > epsilon
    assert wrong > 0.3 * 300


def test_guessing_out_is_as_good_as_guessing_in() -> None:
    taken = np.repeat([True, False], 500)
    scores = np.concatenate([np.linspace(0.1, 1.0, 500), np.linspace(-1.0, -0.1, 500)])
    says_in = bound(scores, taken, Cut(True, 0.5, 0.0), 1e-3, 0.05)
    says_out = bound(scores, taken, Cut(False, 0.5, 0.0), 1e-3, 0.05)
    assert says_in.epsilon == says_out.epsilon > 4.0
    assert (says_in.guesses, says_in.right) == (500, 500)
    assert bound(scores, ~taken, Cut(True, 0.5, 0.0), 1e-3, 0.05).epsilon == 0.0


@pytest.mark.parametrize(("right", "guesses"), [(0, 0), (0, 50), (25, 50)])
def test_nothing_proven_is_zero(right: int, guesses: int) -> None:
    assert lower_epsilon(right, guesses, 1_000, 1e-3, 0.05) == 0.0


def test_more_canaries_prove_more() -> None:
    found = [lower_epsilon(0.7 * n, n, 10 * n, 1e-4, 0.01) for n in (50, 500, 5_000)]
    assert 0.0 < found[0] < found[1] < found[2] < math.log(0.7 / 0.3)


def test_where_to_guess_does_not_depend_on_the_run() -> None:
    """It is a function of the law and of the design's own stream, and good on scores that it never saw (seed 2)."""
    law = CanaryLaw(0.5, 1.5)
    cut = choose_cut(law, 20, 20_000, 1e-4, 0.01, Seeded(1))
    assert cut == choose_cut(law, 20, 20_000, 1e-4, 0.01, Seeded(1))
    taken = np.repeat([True, False], 10_000)
    scores = np.concatenate([sum_of_scores(law, taken=True), sum_of_scores(law, taken=False)])
    assert bound(scores, taken, cut, 1e-4, 0.01).epsilon == pytest.approx(cut.expected, rel=0.3)


def sum_of_scores(law: CanaryLaw, *, taken: bool) -> np.ndarray:
    stream = Seeded(2).child(str(taken))
    scores = np.zeros(10_000)
    for _ in range(20):
        scores += law.log_ratio(law.sample(10_000, stream, taken=taken))
    return scores


def test_records_that_are_never_drawn_prove_nothing() -> None:
    cut = choose_cut(CanaryLaw(0.0, 1.0), 5, 1_000, 1e-3, 0.01, Seeded(1))
    assert cut.expected == 0.0
    assert not cut.points_at(np.zeros(10)).any()
