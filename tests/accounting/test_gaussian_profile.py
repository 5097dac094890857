"""The Gaussian mechanism without sampling: against sixty digits, a peer, and controls that are a little too cheap."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution

from rpdp import Schedule
from rpdp.accounting import gaussian_profile
from rpdp.accounting.gaussian_profile import gaussian_delta, gaussian_epsilon, gaussian_lower_epsilon, gaussian_shift
from tests.accounting.oracle import exact_delta

if TYPE_CHECKING:
    from numpy.typing import NDArray

DELTAS = [0.9, 0.1, 1e-3, 1e-5, 1e-10, 1e-30, 1e-100, 1e-300]


def digits_delta(shift: float, epsilon: float) -> mpmath.mpf:
    """Balle & Wang's formula as it stands, in sixty digits."""
    with mpmath.workdps(60):
        mu, level = mpmath.mpf(shift), mpmath.mpf(epsilon)
        t, root = level / mu - mu / 2, mpmath.sqrt(2)
        return (mpmath.erfc(t / root) - mpmath.exp(level) * mpmath.erfc((t + mu) / root)) / 2


def shifts(count: int, seed: int) -> NDArray[np.float64]:
    return np.exp(np.random.default_rng(seed).uniform(np.log(1e-20), np.log(2e4), count))


@pytest.mark.parametrize("delta", DELTAS)
def test_prices_are_exact_and_rounded_up_whatever_the_shift(delta: float) -> None:
    """From a millionth of a millionth of noise to none: δ(price) ≤ δ, and a price less by 1e-8 has more than δ."""
    mu = shifts(40, 1)
    for shift, price in zip(mu.tolist(), gaussian_epsilon(mu, delta).tolist(), strict=True):
        assert digits_delta(shift, price) <= delta
        less = price * (1.0 - 1e-8) - 1e-14
        if less > 0.0:
            assert digits_delta(shift, less) > delta


@pytest.mark.parametrize("delta", DELTAS)
def test_lower_bounds_are_below_and_close(delta: float) -> None:
    mu = shifts(40, 2)
    price, lower = gaussian_epsilon(mu, delta), gaussian_lower_epsilon(mu, delta)
    for shift, low in zip(mu[lower > 0.0].tolist(), lower[lower > 0.0].tolist(), strict=True):
        assert digits_delta(shift, low) > delta
    dear = price > 1e-12
    assert (lower[dear] >= price[dear] * (1.0 - 1e-5)).all()
    assert (lower[price == 0.0] == 0.0).all()


def test_a_profile_is_an_upper_bound_and_close() -> None:
    generator = np.random.default_rng(3)
    mu = np.exp(generator.uniform(np.log(1e-6), np.log(50.0), 200))
    epsilon = np.exp(generator.uniform(np.log(1e-6), np.log(100.0), 200))
    for shift, level, delta in zip(mu.tolist(), epsilon.tolist(), gaussian_delta(mu, epsilon).tolist(), strict=True):
        exact = digits_delta(shift, level)
        assert exact <= delta
        assert delta <= exact * (1.0 + 1e-7) + 1e-300


def test_at_the_ends() -> None:
    """Nothing for nothing; the whole δ for ε = 0 is the total variation; no overflow far out."""
    assert gaussian_epsilon(np.array([0.0, 1e-9]), 1e-5).tolist() == [0.0, 0.0]
    assert gaussian_delta(np.array([0.0, 1e3, 1e-9]), np.array([0.0, 0.0, 1e300])).tolist() == [
        0.0,
        1.0,
        pytest.approx(0.0),
    ]
    assert gaussian_delta(np.array([1.0]), np.array([0.0]))[0] == pytest.approx(0.38292492, rel=1e-8)
    assert gaussian_epsilon(np.array([1e6]), 1e-5)[0] == pytest.approx(0.5e12, rel=1e-4)


def test_a_step_onto_the_wrong_side_is_never_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """However badly Newton's method aims, the price stays a bound: control of the check after every step."""
    exact = gaussian_epsilon(np.array([0.3]), 1e-5)
    monkeypatch.setattr(gaussian_profile, "_AIM", -1.0)
    assert gaussian_epsilon(np.array([0.3]), 1e-5) >= exact * (1.0 - 1e-8)


def test_the_shift_of_a_budget_is_the_largest() -> None:
    budgets = np.append(np.geomspace(1e-6, 1e4, 60), 0.0)
    for delta in (1e-2, 1e-5, 1e-50):
        shift = gaussian_shift(budgets, delta)
        assert (gaussian_epsilon(shift, delta) <= budgets).all()
        assert (gaussian_epsilon(shift[:-1] * (1.0 + 3e-9), delta) > budgets[:-1]).all()
        assert shift[-1] == 0.0


@pytest.mark.parametrize(("sigma", "rounds"), [(0.7, 1), (2.0, 5), (30.0, 3)])
def test_a_peer_finds_the_same(sigma: float, rounds: int) -> None:
    """dp_accounting's privacy-loss distribution, rounded up, is just above; its Rényi bound further above."""
    shift = np.sqrt(rounds) / sigma
    price, dearer = gaussian_epsilon(np.array([shift, 1.005 * shift]), 1e-5)
    loss = privacy_loss_distribution.from_gaussian_mechanism(sigma, value_discretization_interval=1e-4)
    assert price <= float(loss.self_compose(rounds).get_epsilon_for_delta(1e-5)) < dearer
    accountant = dp_accounting.rdp.RdpAccountant()
    accountant.compose(dp_accounting.GaussianDpEvent(sigma), rounds)
    assert float(accountant.get_epsilon(1e-5)) > price


@pytest.mark.parametrize(("sigma", "rounds", "epsilon"), [(1.0, 1, 1.0), (2.0, 4, 3.0), (40.0, 2, 0.05)])
def test_the_oracle_finds_the_same(sigma: float, rounds: int, epsilon: float) -> None:
    """The contour integral at q = 1, which knows nothing of Φ."""
    found = gaussian_delta(np.array([np.sqrt(rounds) / sigma]), np.array([epsilon]))[0]
    oracle = exact_delta(Schedule(rounds, 1, participation=1.0), sigma, 1.0, epsilon, relevant=1e-12)
    assert oracle.value == pytest.approx(found, rel=1e-7)


def test_the_mills_ratio_has_the_digits_that_are_allowed_for() -> None:
    points = np.concatenate([np.linspace(-9.0, 45.0, 400), np.geomspace(1e-12, 1e6, 100)])
    with mpmath.workdps(60):
        for t, found in zip(points.tolist(), gaussian_profile._mills(points).tolist(), strict=True):
            exact = mpmath.sqrt(mpmath.pi / 2) * mpmath.erfc(t / mpmath.sqrt(2)) * mpmath.exp(mpmath.mpf(t) ** 2 / 2)
            assert abs(found / exact - 1) < 0.25 * gaussian_profile._MILLS_ERROR
