"""Odds never understate: against exact arithmetic, against every attack on a release, and monotone."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from rpdp.accounting.odds import right_guesses
from rpdp.accounting.renyi_filter import ORDERS, lifetime_divergence, order_numbers
from rpdp.errors import InputError

EPSILONS = st.floats(0.0, 50.0)
DELTAS = st.one_of(st.just(0.0), st.floats(1e-30, 0.5))
ORDER = st.floats(1.01, 4097.0)
DIVERGENCES = st.one_of(st.just(0.0), st.floats(1e-18, 60.0))

LARGE = 700.0
"""An ε that bounds nothing."""


def exactly(epsilon: float, delta: float) -> mpmath.mpf:
    with mpmath.workdps(60):
        return 100 * (mpmath.e ** mpmath.mpf(epsilon) + mpmath.mpf(delta)) / (1 + mpmath.e ** mpmath.mpf(epsilon))


def divergence_of(order: float, share: float) -> mpmath.mpf:
    """D_α(p ‖ 1 − p) in 80 digits."""
    with mpmath.workdps(80):
        a, p = mpmath.mpf(order), mpmath.mpf(share)
        if p >= 1:
            return mpmath.inf
        total = p**a * (1 - p) ** (1 - a) + (1 - p) ** a * p ** (1 - a)
        return mpmath.log(total) / (a - 1)


@given(epsilon=EPSILONS, delta=DELTAS)
def test_a_pair_is_never_understated_and_tight(epsilon: float, delta: float) -> None:
    found, exact = right_guesses(epsilon, delta), exactly(epsilon, delta)
    assert exact <= found or found == 100.0
    assert found <= float(exact) * (1 + 1e-13)
    assert 50.0 <= found <= 100.0


@given(order=ORDER, divergence=DIVERGENCES)
def test_a_divergence_is_never_understated_and_tight(order: float, divergence: float) -> None:
    """At the answer the divergence is at least B. A sign or a factor wrong would put it well below."""
    share = right_guesses(LARGE, 0.0, order=order, divergence=divergence) / 100.0
    assert divergence_of(order, share) >= divergence
    if share < 1.0 - 1e-9 and divergence > 1e-9:
        assert float(divergence_of(order, share)) == pytest.approx(divergence, rel=1e-5, abs=1e-12)


@given(sigma=st.floats(0.3, 30.0), order=ORDER)
def test_no_attack_on_a_gaussian_release_does_better(sigma: float, order: float) -> None:
    """The best guess about one Gaussian release is right with Φ(1/2σ). Of half of its divergence that is not true."""
    best, divergence = 100.0 * norm.cdf(0.5 / sigma), order / (2.0 * sigma**2)
    epsilon = 1.0
    delta = norm.cdf(0.5 / sigma - epsilon * sigma) - math.exp(epsilon) * norm.cdf(-0.5 / sigma - epsilon * sigma)
    assert best <= right_guesses(epsilon, max(0.0, delta)) + 1e-9
    assert best <= right_guesses(LARGE, 0.0, order=order, divergence=divergence)


def test_a_bound_of_too_little_is_noticed() -> None:
    """The negative control: half of a Gaussian's divergence promises less than its best guess has."""
    assert 100.0 * norm.cdf(0.5) > right_guesses(LARGE, 0.0, order=1.25, divergence=1.25 / 4.0)


@given(order=ORDER, shares=st.tuples(st.floats(1e-6, 1 - 1e-6), st.floats(1e-6, 1 - 1e-6)))
def test_no_unequal_errors_do_better(order: float, shares: tuple[float, float]) -> None:
    """A guess with rates t and f, whatever they are, within a divergence of both directions."""

    def of(p: float, q: float) -> float:
        return float(np.logaddexp(*(order * np.log(x) + (1 - order) * np.log(y) for x, y in ((p, q), (1 - p, 1 - q)))))

    t, f = max(shares), min(shares)
    divergence = max(of(t, f), of(f, t)) / (order - 1.0)
    bound = right_guesses(LARGE, 0.0, order=order, divergence=max(0.0, divergence) + 1e-12)
    assert 50.0 * (t + 1.0 - f) <= bound + 1e-9


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (1.0, 1e-5), (5.0, 1e-3), (10.0, 1e-2)])
def test_a_renyi_account_is_tighter_than_its_pair(epsilon: float, delta: float) -> None:
    budget, small = np.array([epsilon]), np.array([delta])
    numbers = order_numbers(budget, small)
    divergence = float(lifetime_divergence(budget, small, numbers)[0])
    account = right_guesses(epsilon, delta, order=float(ORDERS[numbers[0]]), divergence=divergence)
    assert 50.0 < account < right_guesses(epsilon, delta)


@given(values=st.tuples(EPSILONS, EPSILONS), delta=DELTAS, order=ORDER)
def test_more_budget_never_gives_smaller_odds(values: tuple[float, float], delta: float, order: float) -> None:
    less, more = min(values), max(values)
    assert right_guesses(less, delta) <= right_guesses(more, delta)
    pair = [right_guesses(LARGE, 0.0, order=order, divergence=one) for one in (less, more)]
    assert pair[0] <= pair[1] * (1 + 1e-12)


def test_wrong_arguments_are_named() -> None:
    for values in (
        {"epsilon": -1.0, "delta": 0.0},
        {"epsilon": 1.0, "delta": 1.5},
        {"epsilon": math.nan, "delta": 0.0},
    ):
        with pytest.raises(InputError, match=r"epsilon|delta"):
            right_guesses(**values)
    with pytest.raises(InputError, match="order=1"):
        right_guesses(1.0, 0.0, order=1.0, divergence=1.0)
    with pytest.raises(InputError, match="go together"):
        right_guesses(1.0, 0.0, order=2.0)
