"""Rényi moments against numerical integration, dp_accounting and closed forms."""

from __future__ import annotations

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant, compute_epsilon
from scipy import special

from rpdp.accounting import renyi
from rpdp.accounting.participation import BinomialCount, ExplicitCount

SPREAD = [
    (0.01, 10.748, 1.01),
    (0.01, 10.748, 2.5),
    (0.3, 10.748, 1.5),
    (1e-4, 1.0, 2.5),
    (1e-4, 0.5, 4.7),
    (0.01, 0.5, 8.0),
    (0.3, 1.0, 1.1),
    (1e-6, 2.0, 20.3),
    (0.9, 0.3, 3.3),
    (1e-9, 1000.0, 500.5),
    (0.5, 30.0, 100.0),
    (1e-12, 1.0, 3.0),
    (0.999, 5.0, 7.7),
]


def moment_by_integration(q: float, sigma: float, order: float) -> mpmath.mpf:
    """log E[(1 − q + q e^Y)^α] with forty digits."""
    with mpmath.workdps(40):
        q_, sigma_, order_ = mpmath.mpf(q), mpmath.mpf(sigma), mpmath.mpf(order)

        def integrand(x: mpmath.mpf) -> mpmath.mpf:
            ratio = 1 - q_ + q_ * mpmath.exp((2 * x - 1) / (2 * sigma_**2))
            return mpmath.npdf(x, 0, sigma_) * ratio**order_

        low, high = -40 * sigma_, order_ + 40 * sigma_
        shifts = [k * sigma_ for k in range(-12, 13, 3)] + [order_ + k * sigma_ for k in range(-12, 13, 3)]
        points = sorted({low, high, *shifts, *mpmath.linspace(low, high, 60)})
        return mpmath.log(mpmath.quad(integrand, points))


@pytest.mark.parametrize(("q", "sigma", "order"), SPREAD)
def test_moments_match_integration_to_nine_digits(q: float, sigma: float, order: float) -> None:
    ours = renyi.log_moments(np.array([q]), np.array([order]), sigma)[0]
    assert abs(ours / moment_by_integration(q, sigma, order) - 1) < 1e-9


@pytest.mark.parametrize("sigma", [0.4, 1.0, 3.0, 30.0])
@pytest.mark.parametrize("q", [1e-8, 1e-3, 0.2, 0.99])
def test_whole_orders_match_the_binomial_sum(q: float, sigma: float) -> None:
    orders = np.arange(2, 200)
    ours = renyi.log_moments(np.array([q]), orders.astype(float), sigma)
    for order, value in zip(orders, ours, strict=True):
        terms = np.arange(2, order + 1)
        log_pmf = (
            (special.gammaln(order + 1) - special.gammaln(terms + 1) - special.gammaln(order - terms + 1))
            + terms * np.log(q)
            + (order - terms) * np.log1p(-q)
        )
        exponent = terms * (terms - 1) / (2 * sigma**2)
        log_gain = np.where(exponent > 30, exponent, np.log(np.expm1(np.minimum(exponent, 30))))
        assert value == pytest.approx(np.logaddexp(0, special.logsumexp(log_pmf + log_gain)), rel=1e-9)


@pytest.mark.parametrize("steps", [1, 750])
@pytest.mark.parametrize(("q", "sigma"), [(1e-3, 0.7), (0.0187, 10.748), (0.1, 1.0), (0.5, 4.0), (1.0, 10.748)])
def test_equals_dp_accounting_on_the_same_orders(q: float, sigma: float, steps: int) -> None:
    # Whole orders: the peer's series for fractional ones is off by up to 20 times (compare SPREAD above).
    orders = np.arange(2.0, 128.0)
    event = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(sigma))
    peer = RdpAccountant(list(orders)).compose(event, steps)
    moments = renyi.run_log_moments(np.array([q]), orders, sigma, steps, BinomialCount(1, 1.0))
    np.testing.assert_allclose(moments / (orders - 1), peer._rdp, rtol=1e-6)
    ours = renyi.tight_epsilon(moments, orders, 1e-5).min()
    assert ours == pytest.approx(peer.get_epsilon(1e-5), rel=1e-6)


@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.05])
@pytest.mark.parametrize("divergence", [0.0, 1e-14, 1e-7, 1e-3, 0.5, 20.0])
def test_conversion_equals_dp_accounting(divergence: float, delta: float) -> None:
    orders = np.array([1.5, 2.0, 8.0, 64.0])
    moments = divergence * orders * (orders - 1)
    peer, _ = compute_epsilon(orders, divergence * orders, delta)
    assert renyi.tight_epsilon(moments, orders, delta).min() == pytest.approx(peer, rel=1e-9, abs=1e-12)


def test_lemma_1_is_looser_than_the_tight_conversion() -> None:
    orders = np.geomspace(1.01, 500, 60)
    moments = 0.01 * orders * (orders - 1)
    loose, tight = renyi.lemma_1_epsilon(moments, orders, 1e-5), renyi.tight_epsilon(moments, orders, 1e-5)
    assert (loose > tight).all()


@pytest.mark.parametrize("delta", [1e-15, 1e-4, 0.1])
@pytest.mark.parametrize(("q", "sigma"), [(1e-6, 1.0), (0.02, 10.748), (0.3, 0.5), (1.0, 100.0)])
def test_search_finds_the_best_order(q: float, sigma: float, delta: float) -> None:
    count = BinomialCount(15, 0.5)
    best = renyi.best_epsilon(np.array([q]), sigma, 50, count, delta)
    orders = 1 + np.geomspace(2**-10, 4000, 1500)
    scan = renyi.tight_epsilon(renyi.run_log_moments(np.array([q]), orders, sigma, 50, count), orders, delta)
    assert best.bound[0] <= scan.min() * 1.002 + 1e-12
    assert best.theta[0] < renyi.LARGEST_ORDER


def test_vectorised_equals_one_at_a_time() -> None:
    q = np.geomspace(1e-6, 1.0, 9)
    together = renyi.best_epsilon(q, 2.0, 7, ExplicitCount.exactly(3), 1e-6).bound
    alone = [renyi.best_epsilon(np.array([x]), 2.0, 7, ExplicitCount.exactly(3), 1e-6).bound[0] for x in q]
    np.testing.assert_allclose(together, alone, rtol=1e-12)


def test_delta_and_epsilon_are_inverse() -> None:
    q, count = np.array([0.1]), BinomialCount(15, 0.5)
    epsilon = renyi.best_epsilon(q, 5.0, 50, count, 1e-5).bound
    log_delta = renyi.best_log_delta(q, 5.0, 50, count, epsilon).bound[0]
    assert log_delta == pytest.approx(np.log(1e-5), abs=0.01)


@pytest.mark.parametrize("sigma", [0.18812644884538599, 1.0, 13.0])
def test_a_shortened_axis_leaves_out_less_than_the_stated_error(sigma: float) -> None:
    """Tiny q at orders near 1: the part of the shifted Gaussian is small, and yet it is the moment."""
    grid = np.meshgrid(np.geomspace(1e-12, 0.3, 6), 1.0 + np.geomspace(0.01, 20.0, 6))
    q, orders = (each.ravel() for each in grid)
    q, orders = np.append(q, 9.50096979251119e-12), np.append(orders, 1.2434327959696356)
    step = renyi._axis_step(sigma)
    whole = np.arange(np.floor(-10.0 * sigma / step), np.ceil((orders.max() + 10.0 * sigma) / step)) * step
    expected = renyi._moments_on(whole, q, orders, sigma)
    np.testing.assert_allclose(renyi.log_moments(q, orders, sigma), expected, rtol=renyi.MOMENT_ERROR)


@pytest.mark.parametrize("sigma", [0.05, 1.0, 1e6])
def test_without_sampling_moments_are_those_of_the_gaussian_to_the_last_digit(sigma: float) -> None:
    orders = 1.0 + np.array([1e-3, 0.1, 1.0, 63.0, 500.0])
    closed = orders * (orders - 1.0) / (2.0 * sigma**2)
    np.testing.assert_allclose(renyi.log_moments(np.ones(5), orders, sigma), closed, rtol=4e-16)


@pytest.mark.parametrize("sigma", [0.05, 0.5, 1.0, 30.0, 1000.0])
@pytest.mark.parametrize("q", [1e-12, 1e-9, 1e-5, 0.01, 0.5, 0.999])
def test_second_and_third_moments_keep_their_digits_however_small_q_is(q: float, sigma: float) -> None:
    """A₂ = 1 + q² (e^{1/σ²} − 1) and a like sum for A₃: in (1+v)^α − 1 − αv they would be lost in rounding."""

    def log_gain(exponent: float) -> float:
        return exponent if exponent > 40.0 else float(np.log(np.expm1(exponent)))

    second = 2.0 * np.log(q) + log_gain(sigma**-2)
    third = np.logaddexp(np.log(3.0) + np.log1p(-q) + second, 3.0 * np.log(q) + log_gain(3.0 * sigma**-2))
    ours = renyi.log_moments(np.array([q]), np.array([2.0, 3.0]), sigma)
    np.testing.assert_allclose(ours, np.logaddexp(0.0, [second, third]), rtol=1e-11)
