"""Orders and lifetime budgets of Rényi accounts: the public map, the conversion, and several silos together."""

from __future__ import annotations

import numpy as np
import pytest
from dp_accounting.rdp import compute_epsilon
from scipy.optimize import minimize_scalar

from rpdp.accounting.renyi_filter import (
    ORDERS,
    SUMS,
    conversion,
    is_mapped_order,
    lifetime_divergence,
    order_numbers,
)

DELTAS = [0.3, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-12, 1e-30]
EPSILONS = np.geomspace(1e-3, 1000.0, 4000)


def at(delta: float, like: np.ndarray) -> np.ndarray:
    return np.full(like.shape, delta)


def budget(epsilon: np.ndarray, delta: float, numbers: np.ndarray, silos: int = 1) -> np.ndarray:
    return lifetime_divergence(epsilon, at(delta, epsilon), numbers, delta if silos > 1 else None)


def test_the_list_of_orders_is_public_and_rises() -> None:
    assert ORDERS[SUMS] == 0.0
    assert ORDERS.size == 58
    assert ORDERS[1] == 1.25
    assert ORDERS[-1] == 4097.0
    assert (np.diff(ORDERS) > 0.0).all()
    with pytest.raises(ValueError, match="read-only"):
        ORDERS[1] = 2.0


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("order", [1.25, 2.0, 4.4, 13.6, 257.0])
@pytest.mark.parametrize("divergence", [0.3, 2.0])
def test_the_conversion_is_that_of_dp_accounting(delta: float, order: float, divergence: float) -> None:
    """A divergence of B = ε − g(α, δ) is worth ε, no more and no less. A wrong sign in g is off by several tenths."""
    epsilon = divergence + float(conversion(np.array([order]), np.array([delta]))[0])
    theirs, _ = compute_epsilon([order], [divergence], delta)
    if epsilon > 0.0 and delta**2 + np.expm1(-divergence) < 0.0:
        assert epsilon == pytest.approx(theirs, rel=1e-12)


@pytest.mark.parametrize("delta", DELTAS)
def test_a_larger_budget_never_has_a_larger_order(delta: float) -> None:
    numbers = order_numbers(EPSILONS, at(delta, EPSILONS))
    assert (np.diff(numbers.astype(int)) <= 0).all()
    assert numbers.min() >= 1
    assert len(set(numbers.tolist())) > 5  # it is a map, not a constant


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-8])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 5.0, 10.0, 50.0])
def test_the_order_pays_for_nearly_as_many_runs_as_the_best_one(epsilon: float, delta: float) -> None:
    """Light runs cost in proportion to α, so (ε − g)/α is their number. Within 1 % of the best of all orders."""

    def runs(log_theta: float) -> float:
        order = np.array([1.0 + np.exp(log_theta)])
        return float((epsilon - conversion(order, np.array([delta]))[0]) / order[0])

    best = -minimize_scalar(lambda x: -runs(x), bounds=(-1.4, 8.3), method="bounded").fun
    chosen = ORDERS[order_numbers(np.array([epsilon]), np.array([delta]))][0]
    assert 0.99 * best <= runs(float(np.log(chosen - 1.0))) <= best * (1.0 + 1e-6)


def test_no_other_order_of_the_list_is_better() -> None:
    """At δ from 1e-300 to nearly 1, by trying all of them; and as fast for many different δ as for one."""
    generator = np.random.default_rng(4)
    epsilon = np.exp(generator.uniform(np.log(1e-4), np.log(1000.0), 100_000))
    delta = np.where(generator.random(100_000) < 0.5, 10.0 ** generator.uniform(-300.0, 0.0, 100_000), 1e-5)
    value = (epsilon[:, None] - conversion(ORDERS[None, 1:], delta[:, None])) / ORDERS[None, 1:]
    chosen = value[np.arange(100_000), order_numbers(epsilon, delta).astype(int) - 1]
    assert (chosen >= value.max(axis=1) - 1e-9 * np.abs(value).max(axis=1)).all()


def test_orders_of_the_specification() -> None:
    """privacy.md, section 7: 13.6, 4.4 and 3.0 for ε = 1, 5 and 10 at δ = 1e-4; the list has steps of 19 %."""
    chosen = ORDERS[order_numbers(np.array([1.0, 5.0, 10.0]), np.full(3, 1e-4))]
    np.testing.assert_allclose(chosen - 1.0, [12.6, 3.4, 2.0], rtol=0.1)


@pytest.mark.parametrize("delta", DELTAS)
def test_the_lifetime_budget_is_epsilon_less_the_conversion_and_rises(delta: float) -> None:
    numbers = order_numbers(EPSILONS, at(delta, EPSILONS))
    own = budget(EPSILONS, delta, numbers)
    exact = EPSILONS - conversion(ORDERS[numbers], at(delta, EPSILONS))
    assert (own <= np.maximum(exact, 0.0)).all()
    np.testing.assert_allclose(own, np.maximum(exact, 0.0), rtol=1e-9, atol=1e-9)
    several = budget(EPSILONS, delta, numbers, 2)
    assert (np.diff(several) >= -1e-8).all()  # but for the last digits, which are taken off
    assert (several <= own).all()


def joint_excess(generator: np.random.Generator, delta: float, silos: int, *, envelope: bool) -> float:
    """The mean of the budgets of one person in several silos, less what the largest ε allows at the smallest order."""
    epsilon = np.exp(generator.uniform(np.log(0.2), np.log(20.0), silos))
    numbers = order_numbers(epsilon, at(delta, epsilon))
    held = budget(epsilon, delta, numbers, silos if envelope else 1)
    smallest = ORDERS[numbers].min()
    return float(held.mean() - (epsilon.max() - conversion(np.array([smallest]), np.array([delta]))[0]))


@pytest.mark.parametrize("silos", [2, 3, 5])
@pytest.mark.parametrize("delta", [1e-2, 1e-3, 1e-5, 1e-8])
def test_the_silos_of_a_person_together_stay_within_the_largest_epsilon(silos: int, delta: float) -> None:
    """Divergences at the smallest order add up to at most the mean of the budgets; that must be within the largest ε.

    The next test is the control.
    """
    generator = np.random.default_rng(silos)
    assert max(joint_excess(generator, delta, silos, envelope=True) for _ in range(2000)) <= 0.0


def test_without_the_envelope_two_silos_exceed_the_largest_epsilon() -> None:
    """The control: just below a border B is larger than just above it, where the order is smaller."""
    delta = 1e-5
    numbers = order_numbers(EPSILONS, at(delta, EPSILONS))
    alone = budget(EPSILONS, delta, numbers)
    assert (np.diff(alone) < 0.0).any()
    assert (np.diff(budget(EPSILONS, delta, numbers, 2)) >= -1e-8).all()
    fall = int(np.argmin(np.diff(alone)))
    pair = EPSILONS[fall : fall + 2]
    chosen = numbers[fall : fall + 2]
    allowed = pair.max() - conversion(ORDERS[chosen[1:]], np.array([delta]))[0]
    assert budget(pair, delta, chosen).mean() > allowed + 1e-3
    assert budget(pair, delta, chosen, 2).mean() <= allowed


@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-8])
def test_a_lowered_delta_lowers_what_several_silos_may_book(delta: float) -> None:
    """At every border of two orders: one silo just above it, another just below it that lowers its δ to δ′.

    Both together stay within the ε of the first. The control takes the envelope at δ′, whose map has larger orders: B
    rises as δ falls, and the person exceeds.
    """
    borders = np.flatnonzero(np.diff(order_numbers(EPSILONS, at(delta, EPSILONS)).astype(int)))
    below, above = EPSILONS[borders], EPSILONS[borders + 1]
    above_number = order_numbers(above, at(delta, above))
    below_number = order_numbers(below, at(delta, below))
    allowed = above - conversion(ORDERS[above_number], at(delta, above))
    largest = lifetime_divergence(above, at(delta, above), above_number, delta)
    unchanged = lifetime_divergence(below, at(delta, below), below_number, delta)
    exceeds = np.zeros(below.shape, dtype=bool)
    for factor in np.exp2(-np.linspace(0.0, 4.0, 60)):
        lowered = lifetime_divergence(below, at(delta * factor, below), below_number, delta)
        assert (lowered <= unchanged).all()
        assert ((lowered + largest) / 2.0 <= np.maximum(allowed, 0.0)).all()
        control = lifetime_divergence(below, at(delta * factor, below), below_number, delta * factor)
        exceeds |= (control + largest) / 2.0 > np.maximum(allowed, 0.0) + 1e-3
    assert exceeds.mean() > 0.2


@pytest.mark.parametrize("silos", [1, 3])
@pytest.mark.parametrize("delta", [1e-2, 1e-5])
def test_raising_and_lowering_keep_the_order(silos: int, delta: float) -> None:
    """A raise adds its difference at the same order. It never adds more than enrolling anew with several silos."""
    first, then = np.array([1.0, 2.0, 5.0]), np.array([3.0, 3.0, 9.0])
    numbers = order_numbers(first, at(delta, first))
    raised = budget(then, delta, numbers, silos)
    if silos == 1:
        np.testing.assert_allclose(raised, budget(first, delta, numbers) + (then - first), rtol=1e-9)
    anew = budget(then, delta, order_numbers(then, at(delta, then)), silos)
    assert (raised <= anew).all() if silos > 1 else (raised > anew).any()
    lowered = budget(first / 4.0, delta, numbers, silos)
    assert (lowered <= budget(first, delta, numbers, silos)).all()
    assert (lowered >= 0.0).all()


def test_a_budget_of_nothing_allows_nothing() -> None:
    """At a large δ the conversion is below 0: ε = 0 alone would leave a divergence of about δ."""
    number = order_numbers(np.array([1e-3]), np.array([1e-2]))
    assert conversion(ORDERS[number], np.array([1e-2]))[0] < 0.0
    assert budget(np.array([0.0]), 1e-2, number)[0] == 0.0
    assert budget(np.array([1e-3]), 1e-2, number)[0] > 1e-3


def test_a_delta_too_small_for_a_float_has_an_order() -> None:
    numbers = order_numbers(np.array([250.0]), np.array([0.0]))
    assert 1 <= numbers[0] < ORDERS.size


def test_every_delta_has_its_own_map() -> None:
    epsilon = np.array([1.0, 1.0, 5.0, 5.0])
    delta = np.array([1e-2, 1e-8, 1e-2, 1e-8])
    together = order_numbers(epsilon, delta)
    alone = [order_numbers(epsilon[i : i + 1], delta[i : i + 1])[0] for i in range(4)]
    assert together.tolist() == alone
    assert len(set(alone)) == 4


def test_an_order_is_recognised_as_that_of_the_map() -> None:
    delta = at(1e-4, EPSILONS)
    numbers = order_numbers(EPSILONS, delta)
    assert is_mapped_order(numbers, EPSILONS, delta).all()
    for other in (numbers + np.uint8(1), numbers - np.uint8(1)):
        assert is_mapped_order(other, EPSILONS, delta).mean() < 0.001
    border = EPSILONS[np.flatnonzero(np.diff(numbers.astype(int)))[0]]
    low, high = border, EPSILONS[np.searchsorted(EPSILONS, border) + 1]
    for _ in range(200):  # bisect to the border itself: there, either order is that of some machine
        middle = 0.5 * (low + high)
        below = order_numbers(np.array([middle]), delta[:1])[0] == order_numbers(np.array([border]), delta[:1])[0]
        low, high = (middle, high) if below else (low, middle)
    both = order_numbers(np.array([border, high]), delta[:2])
    assert is_mapped_order(both, np.array([high, high]), delta[:2]).all()
