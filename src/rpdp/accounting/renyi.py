"""Rényi accounting: moments of the Poisson-sampled Gaussian, and their conversion to (ε, δ).

One local step has the moment A_α(q) = E[(1 − q + q e^Y)^α], where Y is the log-ratio of the shifted to the unshifted
Gaussian under the unshifted one; K_α = log A_α (Mironov, Talwar, Zhang, arXiv 1908.10530). A silo that joins k rounds
of τ steps has the log-moment k τ K_α, and the run has the moment E_k[exp(k τ K_α)] (privacy.md, section 4).

How the moments are computed: since E[e^Y] = 1, A_α − 1 = E[f(q (e^Y − 1))] with f(v) = (1+v)^α − 1 − αv ≥ 0. All terms
are positive, so nothing cancels, however small q is. The integrand is analytic, so the trapezoidal rule converges
exponentially. One formula covers integer and fractional orders, vectorised over q and orders, in log space.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rpdp.accounting.row_sizes import equal_rows, public_sizes

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rpdp.accounting._types import FloatArray
    from rpdp.accounting.participation import ParticipationCount

LARGEST_ORDER = float(2**20)
"""Larger orders would lower ε by less than about 1e-5; the bound is valid without them."""

_SMALLEST_ORDER_ABOVE_ONE = 2.0**-10
_REACH = 10.0
"""Standard deviations kept on each side of a Gaussian; about e^(−50) of the mass lies beyond."""

_NEGLIGIBLE = 40.0
"""Parts of the integrand whose logarithm is this far below that of the total are left out."""

MOMENT_ERROR = 1e-11
"""The relative error allowed for a moment; integration in forty digits shows less (tested)."""

_NODES_AT_ONCE = 500_000
_SERIES_BELOW = 0.03
_LARGE = 30.0
_REFINEMENTS = 4


def log_moments(q: FloatArray, orders: FloatArray, noise_multiplier: float) -> FloatArray:
    """K_α(q), elementwise over the broadcast of `q` in (0, 1] and `orders` above 1."""
    q, orders = np.broadcast_arrays(np.asarray(q, np.float64), np.asarray(orders, np.float64))
    flat_q, flat_orders = q.ravel(), orders.ravel()
    result = np.empty(flat_q.size)
    step = _axis_step(noise_multiplier)
    points = np.ceil(_axis_ends(flat_q, flat_orders, noise_multiplier) / step).astype(np.int64)
    ends = public_sizes(points)  # each pair's own: its moment must not depend on the other pairs
    for equal in equal_rows(ends):
        x = np.arange(np.floor(-_REACH * noise_multiplier / step), ends[equal[0]] + 1.0) * step
        for block in np.array_split(equal, -(-equal.size * x.size // _NODES_AT_ONCE)):
            result[block] = _moments_on(x, flat_q[block], flat_orders[block], noise_multiplier)
    unsampled = flat_q == 1.0  # without sampling the moment has a closed form
    result[unsampled] = (flat_orders * (flat_orders - 1.0))[unsampled] / (2.0 * noise_multiplier**2)
    return result.reshape(q.shape)


def _axis_step(noise_multiplier: float) -> float:
    """The distance of the points of the axis.

    The nearest singularities of the integrand lie π σ² off the axis, and the Gaussian itself allows steps of 0.7 σ. A
    step of half of σ or σ², whichever is smaller, gives more than twelve digits.
    """
    return 0.5 * min(noise_multiplier, noise_multiplier**2)


def _axis_ends(q: FloatArray, orders: FloatArray, noise_multiplier: float) -> FloatArray:
    """How far the axis must reach for each (q, α), so that the part beyond is below 1e-14 of A_α − 1.

    With g the logarithm of the integrand and s(x) the share of the shifted Gaussian in the mixture at x,
    σ² g'(x) = α s(x) − x. An end suffices if g is small there and falls from there on. Since s is convex where it is
    below ½, α s(x) < x at the end and at x = α implies the same in between; beyond α it always holds. If no such end is
    found, the axis covers the Gaussian shifted by α.
    """
    variance = noise_multiplier**2
    ends = orders + _REACH * noise_multiplier
    low_at_order = q * np.exp(np.minimum((orders - 0.5) / variance, 700.0)) < 0.5 * (1.0 - q)
    smallest = np.log(0.5 * orders * (orders - 1.0)) + 2.0 * np.log(q) + np.log(np.expm1(min(1.0 / variance, 700.0)))
    for reach in (12.0, 16.0, 24.0, 40.0, 80.0):
        x = reach * noise_multiplier
        growth = q * np.expm1(min((x - 0.5) / variance, 700.0))
        height = -0.5 * reach**2 + orders * np.log1p(growth)
        falling = orders * (growth + q) < x * (1.0 + growth)
        enough = low_at_order & falling & (height < np.minimum(smallest, 0.0) - _NEGLIGIBLE)
        ends = np.where(enough & (x < ends), x, ends)
    return ends


def _moments_on(x: FloatArray, q: FloatArray, orders: FloatArray, noise_multiplier: float) -> FloatArray:
    step = x[1] - x[0]
    log_density = -0.5 * (x / noise_multiplier) ** 2 + np.log(step / (noise_multiplier * np.sqrt(2.0 * np.pi)))
    y = (x - 0.5) / noise_multiplier**2
    log_f = _log_convex_excess(q[:, None], y[None, :], orders[:, None])
    log_f += log_density
    top = log_f.max(axis=1)
    return np.asarray(np.logaddexp(0.0, top + np.log(np.exp(log_f - top[:, None]).sum(axis=1))))


def _log_convex_excess(q: FloatArray, y: FloatArray, order: FloatArray) -> FloatArray:
    """Log f(v) for v = q (e^y − 1), f(v) = (1+v)^α − 1 − αv, without cancellation or overflow."""
    v = q * np.expm1(np.minimum(y, 700.0))
    log_one_plus_v = np.log1p(np.maximum(v, -1.0 + 1e-16))
    if y[0, -1] > 700.0:
        log_one_plus_v = np.where(y > 700.0, np.log(q) + y, log_one_plus_v)
    exponent = order * log_one_plus_v
    linear = order * v
    value = np.expm1(np.minimum(exponent, _LARGE)) - linear
    tiny = np.abs(linear) < _SERIES_BELOW
    if tiny.any():
        rows, columns = np.nonzero(tiny)
        value[rows, columns] = _series(v[rows, columns], np.broadcast_to(order, v.shape)[rows, columns])
    with np.errstate(divide="ignore"):
        result = np.log(np.maximum(value, 0.0))
    large = exponent > _LARGE  # (1+v)^α dwarfs 1 + αv
    if large.any():
        result[large] = exponent[large] + np.log1p(-(1.0 + linear[large]) * np.exp(-exponent[large]))
    return result


def _series(v: FloatArray, order: FloatArray) -> FloatArray:
    """f(v) as C(α,2) v² + C(α,3) v³ + … for small αv."""
    total, coefficient, power = np.zeros_like(v), order, v
    for degree in range(2, 11):
        coefficient = coefficient * (order - degree + 1.0) / degree
        power = power * v
        total += coefficient * power
    return total


def run_log_moments(
    q: FloatArray, orders: FloatArray, noise_multiplier: float, local_steps: int, count: ParticipationCount
) -> FloatArray:
    """The log of the α-th moment of the whole run, which is (α − 1) times its Rényi divergence."""
    return count.log_moment(local_steps * log_moments(q, orders, noise_multiplier))


def tight_epsilon(log_moment: FloatArray, orders: FloatArray, delta: float) -> FloatArray:
    """ε at each order by the tight conversion (Canonne, Kamath, Steinke 2020, proposition 12), at least 0.

    It is also 0 where the divergence alone bounds the total variation by δ (Bretagnolle–Huber: 1 − e^(−ρ) < δ²). The
    bound jumps there, so no q uses up a budget between 0 and the value just above the jump.
    """
    theta = orders - 1.0
    divergence, needed = log_moment * (1.0 + MOMENT_ERROR) / theta, (np.log(delta) + np.log(orders)) / theta
    rounding = 4.0 * np.finfo(np.float64).eps * (divergence + np.abs(needed) + np.log1p(1.0 / theta))
    epsilon = divergence - np.log1p(1.0 / theta) - needed + rounding
    within_delta = delta**2 + np.expm1(-divergence) > 0.0
    return np.where(within_delta, 0.0, np.maximum(epsilon, 0.0))


def lemma_1_epsilon(log_moment: FloatArray, orders: FloatArray, delta: float) -> FloatArray:
    """ε by the classical conversion ρ + log(1/δ)/(α − 1), as in the paper's Lemma 1: looser, kept for its figures."""
    return np.asarray((log_moment - np.log(delta)) / (orders - 1.0))


def tight_log_delta(log_moment: FloatArray, orders: FloatArray, epsilon: FloatArray) -> FloatArray:
    """Log δ at each order for a given ε: the tight conversion solved for δ."""
    theta = orders - 1.0
    return log_moment - theta * epsilon - np.log(orders) - theta * np.log1p(1.0 / theta)


@dataclass(frozen=True)
class BestOrders:
    """For each q, the best bound over all orders, and θ = α − 1 of the order α that gives it."""

    bound: FloatArray
    theta: FloatArray


def best_epsilon(
    q: FloatArray, noise_multiplier: float, local_steps: int, count: ParticipationCount, delta: float
) -> BestOrders:
    """Upper bounds on ε(δ) for each q."""

    def bound(rows: NDArray[np.int64], orders: FloatArray) -> FloatArray:
        moment = run_log_moments(_rows(q, rows, orders), orders, noise_multiplier, local_steps, count)
        return tight_epsilon(moment, orders, delta)

    return _search_orders(bound, q.size, floor=0.0)


def best_log_delta(
    q: FloatArray, noise_multiplier: float, local_steps: int, count: ParticipationCount, epsilon: FloatArray
) -> BestOrders:
    """Upper bounds on log δ(ε) for each q and its ε."""

    def bound(rows: NDArray[np.int64], orders: FloatArray) -> FloatArray:
        moment = run_log_moments(_rows(q, rows, orders), orders, noise_multiplier, local_steps, count)
        return tight_log_delta(moment, orders, _rows(epsilon, rows, orders))

    return _search_orders(bound, q.size, floor=-np.inf)


def _rows(values: FloatArray, rows: NDArray[np.int64], like: FloatArray) -> FloatArray:
    """The chosen rows of `values`, shaped to broadcast against `like`."""
    return values[rows].reshape(-1, *[1] * (like.ndim - 1))


def _search_orders(bound: Callable[[NDArray[np.int64], FloatArray], FloatArray], rows: int, floor: float) -> BestOrders:
    """Minimise over orders, for all rows at once.

    As a function of the order, the bound falls and then rises (a convex function over a linear one). So orders are
    doubled until the bound has risen, and then narrowed around the best. The optimum is never at an end of the range,
    except at `LARGEST_ORDER`.
    """
    best = np.full(rows, np.inf)
    best_theta = np.full(rows, _SMALLEST_ORDER_ABOVE_ONE)
    active = np.arange(rows)
    theta = _SMALLEST_ORDER_ABOVE_ONE
    while active.size and theta < LARGEST_ORDER:
        value = bound(active, np.full(active.size, 1.0 + theta))
        better = value < best[active]
        best[active[better]], best_theta[active[better]] = value[better], theta
        active = active[(better | np.isinf(best[active])) & (best[active] > floor)]
        theta *= 2.0
    span = 1.0
    every = np.arange(rows)
    for _ in range(_REFINEMENTS):
        candidates = np.minimum(best_theta[:, None] * np.exp2(np.linspace(-span, span, 9)), LARGEST_ORDER)
        values = bound(every, 1.0 + candidates)
        pick = np.argmin(values, axis=1)
        improved = values[every, pick] < best
        best = np.where(improved, values[every, pick], best)
        best_theta = np.where(improved, candidates[every, pick], best_theta)
        span /= 4.0
    return BestOrders(best, best_theta)
