"""The curve ε*(q): the numbers of privacy.md, monotonicity, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpdp import PrivacyCurve, Schedule
from rpdp.accounting import ACCOUNTANTS, Accountant, renyi
from rpdp.accounting import pld as pld_route
from rpdp.accounting.renyi import BestOrders
from rpdp.errors import InputError, PrivacyRefusal

MNIST: dict[str, Any] = {"noise_multiplier": 10.748, "delta": 1e-4}
# What two upper bounds of the same accountant may differ by for numerical reasons alone.
STATED = 1.003


@pytest.mark.parametrize(
    ("schedule", "pld", "rdp"),
    [
        (Schedule(15, 50, participation=0.5), 8.79, 9.80),
        (Schedule(15, 50, participation=0.5, max_participations=8), 7.82, 8.55),
        (Schedule(15, 50, participations=8), 8.11, 8.82),
    ],
    ids=["poisson", "capped", "exact"],
)
def test_numbers_at_the_mnist_setting(schedule: Schedule, pld: float, rdp: float) -> None:
    assert PrivacyCurve(schedule, **MNIST).epsilon(1.0) == pytest.approx(pld, abs=0.01)
    assert PrivacyCurve(schedule, **MNIST, accountant="rdp").epsilon(1.0) == pytest.approx(rdp, abs=0.01)


def test_cost_given_the_realised_rounds_can_exceed_the_promise() -> None:
    curve = PrivacyCurve(Schedule(15, 50, participation=0.5), **MNIST)
    assert curve.given(12).epsilon(1.0) == pytest.approx(10.49, abs=0.02)
    exact = PrivacyCurve(Schedule(15, 50, participations=8), **MNIST)
    assert exact.given(8).epsilon(0.3) == exact.epsilon(0.3)
    assert curve.given(0).epsilon(1.0) == 0.0


def test_cost_of_the_first_rounds_grows_to_the_whole() -> None:
    for schedule in (Schedule(15, 50, participation=0.5), Schedule(15, 50, participations=8)):
        curve = PrivacyCurve(schedule, **MNIST)
        costs = [curve.after(announced).epsilon(0.2) for announced in range(16)]
        assert costs[0] == 0.0
        assert (np.diff(costs) > 0).all()
        assert costs[-1] == curve.epsilon(0.2)


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_monotone_in_q_within_a_call(accountant: Accountant) -> None:
    curve = PrivacyCurve(Schedule(20, 5, participation=0.5), noise_multiplier=1.0, delta=1e-3, accountant=accountant)
    costs = curve.epsilon(np.concatenate([[0.0], np.geomspace(1e-6, 1.0, 400)]))
    assert (np.diff(costs) >= 0).all()
    assert costs[0] == 0.0


@given(
    rounds=st.integers(1, 60),
    local_steps=st.integers(1, 60),
    participation=st.floats(0.05, 1.0),
    sigma=st.floats(0.6, 20.0),
    q=st.floats(1e-4, 1.0),
    accountant=st.sampled_from(ACCOUNTANTS),
    data=st.data(),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_monotone_in_every_setting(
    rounds: int,
    local_steps: int,
    participation: float,
    sigma: float,
    q: float,
    accountant: Accountant,
    data: st.DataObject,
) -> None:
    cap = data.draw(st.integers(1, rounds))

    def cost(
        rounds: int = rounds,
        local_steps: int = local_steps,
        participation: float = participation,
        cap: int = cap,
        sigma: float = sigma,
    ) -> float:
        schedule = Schedule(rounds, local_steps, participation=participation, max_participations=cap)
        return PrivacyCurve(schedule, noise_multiplier=sigma, delta=1e-5, accountant=accountant).epsilon(q)

    base = cost() - 1e-4
    assert base <= cost(rounds=rounds + data.draw(st.integers(1, 20))) * STATED
    assert base <= cost(local_steps=local_steps + data.draw(st.integers(1, 20))) * STATED
    assert base <= cost(participation=min(1.0, participation * 1.3)) * STATED
    assert base <= cost(cap=data.draw(st.integers(cap, rounds))) * STATED
    assert base <= cost(sigma=sigma / data.draw(st.floats(1.01, 2.0))) * STATED


def test_pld_never_exceeds_rdp() -> None:
    q = np.geomspace(1e-5, 1.0, 60)
    for schedule in (Schedule(15, 50, participation=0.5), Schedule(3, 400, participations=2)):
        pld, rdp = (PrivacyCurve(schedule, **MNIST, accountant=name).epsilon(q) for name in ACCOUNTANTS)
        assert (pld <= rdp * (1 + 1e-3)).all()


def test_many_different_q_are_rounded_up_a_little() -> None:
    curve = PrivacyCurve(Schedule(15, 50, participation=0.5), **MNIST, accountant="rdp")
    q = np.geomspace(1e-3, 1.0, 5000)
    many, few = curve.epsilon_above(q), curve.epsilon(q[::250])
    assert (many[::250] >= few * (1 - 1e-9)).all()
    assert (many[::250] <= few * 1.005).all()


def test_what_was_priced_for_many_is_not_priced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silos of a federation ask for the same points, of the same curve after so many rounds."""
    curve = PrivacyCurve(Schedule(15, 50, participation=0.5), **MNIST, accountant="rdp")
    q = np.geomspace(1e-3, 1.0, 2000)
    first = curve.after(4).epsilon_above(q)
    monkeypatch.setattr(PrivacyCurve, "_price", lambda *_: pytest.fail("priced again"))
    assert (curve.after(4).epsilon_above(q[::-1])[::-1] == first).all()
    with pytest.raises(pytest.fail.Exception):
        curve.after(5).epsilon_above(q)


def test_reading_a_curve_does_not_change_it() -> None:
    schedule = Schedule(15, 50, participation=0.5)
    fresh, used = PrivacyCurve(schedule, **MNIST), PrivacyCurve(schedule, **MNIST)
    used.sampling_probability(np.linspace(0.02, 9.0, 300))
    used.epsilon([0.3, 0.4])
    budgets = np.array([0.1, 1.0, 5.0])
    np.testing.assert_array_equal(fresh.sampling_probability(budgets), used.sampling_probability(budgets))
    assert fresh.epsilon(0.37) == used.epsilon(0.37)


def test_scalars_and_shapes_follow_the_argument() -> None:
    curve = PrivacyCurve(Schedule(15, 50, participation=0.5), **MNIST, accountant="rdp")
    assert isinstance(curve.epsilon(0.1), float)
    assert isinstance(curve.sampling_probability(0.1), float)
    assert curve.epsilon(np.full((2, 3), 0.1)).shape == (2, 3)
    assert curve.epsilon([]).shape == (0,)
    assert curve.sampling_probability([]).shape == (0,)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"noise_multiplier": -1.0}, "noise_multiplier=-1.0"),
        ({"noise_multiplier": 0.0}, "noise_multiplier=0.0"),
        ({"noise_multiplier": 1e9}, "noise_multiplier=1000000000.0"),
        ({"noise_multiplier": float("nan")}, "noise_multiplier=nan"),
        ({"delta": 0.0}, "delta=0.0"),
        ({"delta": 1.0}, "delta=1.0"),
        ({"delta": 9e-101}, "delta=9e-101 is below 1e-100"),
        ({"accountant": "gdp"}, "accountant='gdp'"),
    ],
)
def test_wrong_settings_are_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        PrivacyCurve(Schedule(15, 50, participation=0.5), **{**MNIST, **change})


@pytest.mark.parametrize("q", [-0.1, 1.1, float("nan"), [0.1, float("inf")]])
def test_wrong_probabilities_are_refused(q: Any) -> None:
    with pytest.raises(InputError, match="must lie between 0 and 1"):
        PrivacyCurve(Schedule(15, 50, participation=0.5), **MNIST).epsilon(q)


@pytest.mark.parametrize("epsilon", [-0.1, float("nan")])
def test_wrong_budgets_are_refused(epsilon: float) -> None:
    with pytest.raises(InputError, match="epsilon="):
        PrivacyCurve(Schedule(15, 50, participation=0.5), **MNIST).sampling_probability(epsilon)


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_a_tiny_probability_is_priced_as_the_smallest_one_offered(accountant: Accountant) -> None:
    curve = PrivacyCurve(
        Schedule(100_000, 1000, participation=1.0), noise_multiplier=0.5, delta=1e-15, accountant=accountant
    )
    smallest = 2.0**-40
    assert curve.epsilon(smallest) > 0.0
    np.testing.assert_array_equal(curve.epsilon([0.0, 5e-324, 1e-20, smallest])[1:], curve.epsilon(smallest))
    assert curve.epsilon(0.0) == 0.0
    assert curve.delta(1e-200, 0.1) == curve.delta(smallest, 0.1)
    assert curve.bounds([1e-200]).lower[0] == 0.0


def test_the_smallest_delta_can_be_priced() -> None:
    curve = PrivacyCurve(Schedule(15, 50, participation=0.5), noise_multiplier=10.748, delta=1e-100)
    bounds = curve.bounds([1e-6, 0.01, 1.0])
    assert np.isfinite(bounds.upper).all()
    assert (bounds.upper > 0.0).all()


def test_an_unknown_profile_is_the_other_route_or_one(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = Schedule(15, 50, participation=0.5)
    curve = PrivacyCurve(schedule, **MNIST)
    by_renyi = PrivacyCurve(schedule, **MNIST, accountant="rdp").delta(0.1, 0.3)
    assert curve.delta(0.1, 0.3) < by_renyi
    unknown = np.array([np.nan])
    monkeypatch.setattr(pld_route, "upper_delta", lambda *_: unknown)
    assert curve.delta(0.1, 0.3) == by_renyi
    monkeypatch.setattr(pld_route, "upper_delta", lambda *_: np.array([1e-9]))
    monkeypatch.setattr(renyi, "best_log_delta", lambda *_: BestOrders(unknown, unknown))
    assert curve.delta(0.1, 0.3) == 1.0


@pytest.mark.parametrize(("excess", "refused"), [(1e-10, False), (1e-8, True), (0.01, True), (0.9, True)])
def test_a_lower_bound_above_its_upper_bound_is_refused(
    excess: float, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two are computed independently: if they cross by more than the last digits, one of them is wrong."""
    curve = PrivacyCurve(Schedule(1, 1, participation=1.0), noise_multiplier=1.0, delta=1e-3)
    monkeypatch.setattr(pld_route, "lower_epsilon", lambda q, run, delta, upper, accuracy: upper * (1.0 + excess))
    if refused:
        with pytest.raises(PrivacyRefusal, match="exceeds its upper bound"):
            curve.bounds([0.5, 1.0])
    else:
        bounds = curve.bounds([0.5, 1.0])
        assert (bounds.lower == bounds.upper).all()


def test_between_a_free_knot_and_one_that_costs_the_best_order_is_searched() -> None:
    """At a free knot every order gives 0, so its order says nothing about its neighbourhood."""
    curve = PrivacyCurve(Schedule(1, 1, participation=1.0), noise_multiplier=1.0, delta=1e-3)
    knots = np.exp2(-np.arange(40) / 2.0)
    free = int(np.argmax(curve._renyi(knots).bound == 0.0))
    assert free > 0
    q = np.array([0.9, 0.5, 0.1]) * (knots[free - 1] - knots[free]) + knots[free]
    best = curve._renyi(q).bound
    assert best[0] > 0.0
    np.testing.assert_allclose(curve._guide(q).bound, best, rtol=1e-9)


def test_one_cost_alone_is_covered_as_in_a_list() -> None:
    """Not a node of the table: its own price is computed, for one q as for many."""
    curve = PrivacyCurve(Schedule(15, 50, participation=0.5), noise_multiplier=10.748, delta=1e-4)
    q = 0.1234567
    cost = curve.epsilon(q)
    for stated, is_covered in ((cost, True), (0.999 * cost, False)):
        assert bool(curve.covers(q, stated)) is is_covered
        assert curve.covers([q, q], [stated, cost]).tolist() == [is_covered, True]


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_a_record_that_is_never_drawn_has_no_profile(accountant: Accountant) -> None:
    """Neither with q = 0 nor in a run without a single joined round can anything be told, at any ε."""
    curve = PrivacyCurve(Schedule(3, 2, participation=0.5), **MNIST, accountant=accountant)
    assert curve.delta(0.0, [0.0, 0.5, 3.0]).tolist() == [0.0, 0.0, 0.0]
    assert curve.given(0).delta(0.5, [0.0, 0.5, 3.0]).tolist() == [0.0, 0.0, 0.0]
    assert curve.delta(0.5, 0.0) > 0.0
    assert curve.bounds([0.0]).lower[0] == curve.bounds([0.0]).upper[0] == 0.0


@pytest.mark.parametrize("epsilon", [-0.1, float("inf"), float("nan"), [0.5, -1e-9], [0.5, float("inf")]])
def test_a_profile_at_no_proper_epsilon_is_refused(epsilon: Any) -> None:
    with pytest.raises(InputError, match="must be finite and not negative"):
        PrivacyCurve(Schedule(3, 2, participation=0.5), **MNIST).delta(0.1, epsilon)


def test_a_guide_is_close_to_the_best_order_between_its_knots() -> None:
    """It chooses tilt and grid: far from the best order, the price that comes out of them is looser."""
    curve = PrivacyCurve(Schedule(20, 5, participation=0.5), noise_multiplier=1.0, delta=1e-5)
    q = np.geomspace(1e-3, 1.0, 23)
    guide, best = curve._guide(q), curve._renyi(q)
    np.testing.assert_allclose(guide.bound, best.bound, rtol=2e-4)
    np.testing.assert_allclose(guide.theta, best.theta, rtol=0.02)
