"""The Gaussian mechanism without sampling: δ(ε) in closed form, and ε at a given δ, both exact and rounded outward.

A release that moves the mean of a Gaussian by at most μ standard deviations is (ε, δ)-private exactly if

    δ ≥ Φ(−t) − e^ε Φ(−t − μ),   t = ε/μ − μ/2   (Balle & Wang 2018, arXiv 1805.06530, theorem 8).

Several releases with μ_1, μ_2, … are one with μ² = Σ μ_i², also if later ones are chosen after seeing earlier ones
(Dong, Roth, Su 2019, corollary 3.3). Adding and removing a record cost the same.

How it is computed. With the Mills ratio R(t) = Φ(−t)/φ(t), which falls and is convex, δ = φ(t) (R(t) − R(t + μ)): e^ε
has gone, so nothing overflows, and tiny δ are computed in logarithms. Where μ is so small that the difference would
lose its digits, it is ∫ D over [t, t + μ], D = −R′ = 1 − tR. D falls and is convex, so the trapezoidal rule is above
the integral and the midpoint rule below. The better of two sound bounds is taken, each with an allowance for rounding.

log δ falls with t and is concave. So Newton's method that starts where δ is small enough stays there, and ends at the
smallest such t. A t is returned only if the upper bound on its δ is within the δ asked for; ε = μ(t + μ/2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from rpdp.accounting._types import FloatArray

_MILLS_ERROR = 4e-14
"""The relative error allowed for R; against sixty digits at most 8e-15 was seen, at t = −9 (tested)."""

_LOG_ERROR = 1e-12
"""The absolute error allowed for the logarithm of δ beyond that of R, for t up to 40."""

_ROUNDING = 8.0 * float(np.finfo(np.float64).eps)

_LEAST = -9.0
"""No t below this is of use: Φ(9) is 1 to all digits."""

_NEWTON_STEPS = 10
_AIM = 2e-11
_LOWER_STEP = 1e-7
"""How far below an upper bound on t a lower one is tried."""

_TINY = float(np.finfo(np.float64).tiny)
_LOG_ROOT_2PI = 0.5 * float(np.log(2.0 * np.pi))


def gaussian_epsilon(shift: FloatArray, delta: float) -> FloatArray:
    """Upper bounds on ε at this δ, for releases that move the mean by `shift` standard deviations; 0 for a shift of 0.

    They exceed the exact ε by less than 1e-8 of it, or by less than 1e-14.
    """
    mu = np.asarray(shift, dtype=np.float64)
    result = np.zeros(mu.shape)
    some = mu > 0.0
    t = _least_t(mu[some], delta)
    result[some] = _epsilon_at(t, mu[some], up=True)
    return result


def gaussian_lower_epsilon(shift: FloatArray, delta: float) -> FloatArray:
    """Lower bounds on ε at this δ: releases that move the mean are private for no ε below. 0 if none is known."""
    mu = np.asarray(shift, dtype=np.float64)
    result = np.zeros(mu.shape)
    some = mu > 0.0
    below = _least_t(mu[some], delta)
    below -= _LOWER_STEP * (1.0 + np.abs(below))
    is_proven = (below > _lowest(mu[some])) & (_lower_log_delta(below, mu[some]) > np.log(delta))
    result[some] = np.where(is_proven, np.maximum(_epsilon_at(below, mu[some], up=False), 0.0), 0.0)
    return result


def gaussian_delta(shift: FloatArray, epsilon: FloatArray) -> FloatArray:
    """Upper bounds on δ(ε), elementwise over the broadcast of both; at least 2e-308 for a shift above 0."""
    mu, level = np.broadcast_arrays(np.asarray(shift, np.float64), np.asarray(epsilon, np.float64))
    result = np.zeros(mu.shape)
    some = mu > 0.0
    with np.errstate(over="ignore"):
        ratio = np.minimum(level[some] / mu[some], 1e100)
    t = ratio - mu[some] / 2.0 - _ROUNDING * (ratio + mu[some])
    log_delta, _ = _log_delta_and_slope(np.maximum(t, _LEAST), mu[some])
    result[some] = np.where(t < _LEAST, 1.0, np.maximum(np.exp(np.minimum(log_delta, 0.0)), _TINY))
    return result


def gaussian_shift(epsilon: FloatArray, delta: float) -> FloatArray:
    """For each ε, the largest shift (to 1e-9) whose upper bound on ε at this δ is within it; 0 for ε ≤ 0."""
    budget = np.asarray(epsilon, dtype=np.float64)
    low, high = np.full(budget.shape, _SMALLEST_SHIFT), np.full(budget.shape, _LARGEST_SHIFT)
    for _ in range(_BISECTIONS):
        middle = np.sqrt(low * high)
        fits = gaussian_epsilon(middle, delta) <= budget
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    is_within = (budget > 0.0) & (gaussian_epsilon(low, delta) <= budget)
    return np.where(is_within, low, 0.0)


_SMALLEST_SHIFT, _LARGEST_SHIFT = 1e-30, 1e6
_BISECTIONS = 37
"""The logarithm of the range, 83, divided by 2^37 is below 1e-9."""


def _least_t(mu: FloatArray, delta: float) -> FloatArray:
    """For each μ, nearly the least t whose δ is certainly within `delta`; never below that of ε = 0."""
    goal, lowest = np.log(delta), _lowest(mu)
    start = float(-special.ndtri(delta)) + 1e-6  # Φ(−t) alone is within δ there
    t = np.maximum(np.full(mu.shape, start), lowest)
    log_delta, slope = _log_delta_and_slope(t, mu)
    t = np.where(log_delta <= goal, t, np.inf)  # never seen; an infinite ε fits no budget
    with np.errstate(invalid="ignore"):
        for _ in range(_NEWTON_STEPS):
            # Aim a little to the safe side: a step that ends on the other one, if only by rounding, is not taken.
            further = np.maximum(t - (log_delta + _AIM - goal) / slope, lowest)
            found, found_slope = _log_delta_and_slope(further, mu)
            is_better = (found <= goal) & (further < t)
            t, log_delta, slope = (
                np.where(is_better, new, old) for new, old in ((further, t), (found, log_delta), (found_slope, slope))
            )
    return t


def _lowest(mu: FloatArray) -> FloatArray:
    """The t of ε = 0, or one at which δ is nearly 1."""
    return np.maximum(-mu / 2.0, _LEAST)


def _epsilon_at(t: FloatArray, mu: FloatArray, *, up: bool) -> FloatArray:
    """ε = μ(t + μ/2), rounded up or down; exactly 0 at the t of ε = 0."""
    sign = 1.0 if up else -1.0
    half = mu / 2.0
    epsilon = mu * (t + half + sign * _ROUNDING * (np.abs(t) + half)) * (1.0 + sign * _ROUNDING)
    return np.where(t == -half, 0.0, epsilon)


def _log_delta_and_slope(t: FloatArray, mu: FloatArray) -> tuple[FloatArray, FloatArray]:
    """An upper bound on log δ = log φ(t) + log(R(t) − R(t + μ)), and its derivative, −μ R(t + μ)/(R(t) − R(t + μ))."""
    here, there = _mills(t), _mills(t + mu)
    difference = here - there + _MILLS_ERROR * (here + there)
    integral = 0.5 * mu * (_decline(t, here, 1.0) + _decline(t + mu, there, 1.0))
    bound = np.minimum(difference, integral)
    return _log_density(t) + np.log(bound) + _LOG_ERROR, -mu * there / bound


def _lower_log_delta(t: FloatArray, mu: FloatArray) -> FloatArray:
    """A lower bound on log δ."""
    here, there, middle = _mills(t), _mills(t + mu), t + 0.5 * mu
    difference = here - there - _MILLS_ERROR * (here + there)
    bound = np.maximum(difference, mu * _decline(middle, _mills(middle), -1.0))
    with np.errstate(divide="ignore"):
        return np.asarray(_log_density(t) + np.log(np.maximum(bound, 0.0)) - _LOG_ERROR)


def _log_density(t: FloatArray) -> FloatArray:
    return -0.5 * t * t - _LOG_ROOT_2PI


def _mills(t: FloatArray) -> FloatArray:
    """R(t) = Φ(−t)/φ(t)."""
    return np.asarray(np.sqrt(0.5 * np.pi) * special.erfcx(t * np.sqrt(0.5)))


def _decline(t: FloatArray, mills: FloatArray, sign: float) -> FloatArray:
    """D(t) = −R′(t) = 1 − t R(t), with the allowance for its rounding."""
    return 1.0 - t * mills + sign * _MILLS_ERROR * (1.0 + np.abs(t) * mills)
