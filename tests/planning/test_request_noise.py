"""What a request can be expected to find out, and its noise: against simulated releases, with controls."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from rpdp import PublicPlan
from rpdp.budgets.distributions import BoundedPareto, ThreeLevels
from rpdp.errors import InputError, PlanError
from rpdp.planning import MeasureSpec, Request, assign_allowed
from rpdp.planning.allowances import Allowances
from rpdp.planning.request_noise import ValuesInMeasure, expected_weights, noise_for_weight_1, with_best_noise
from tests.planning.test_request_plans import ids_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.planning import RequestEstimator

MEAN = (MeasureSpec("sum", 1), MeasureSpec("count", 1))
TERMS: list[dict[str, Any]] = [
    {"account": "sums"},
    {"account": "sums", "lifetime_delta": 1e-2, "share": 0.05},
    {"account": "renyi", "share": 0.3},
    {"account": "renyi", "share": 0.5, "lifetime_delta": 1e-3, "silos_per_person": 3},
]


def plan(estimator: RequestEstimator = "representative", noise: float = 10.0, **settings: Any) -> PublicPlan:
    given = {"delta": 1e-3, "purpose": "statistics", "noise_multiplier": noise, **settings}
    return PublicPlan.of_request(Request(estimator, MEAN), **given)


def three_levels(count: int = 1000) -> NDArray[np.float64]:
    return ThreeLevels().sample(count, 0)


def weights_of(public: PublicPlan, budgets: NDArray[np.float64]) -> NDArray[np.float64]:
    return assign_allowed(public, ids_of(budgets.size), Allowances.of_new_accounts(public, budgets)).q


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("rounds", [1, 7])
def test_weight_1_is_paid_for_from_that_noise_on_and_not_before(terms: dict[str, Any], rounds: int) -> None:
    budgets = np.array([0.1, 0.7, 3.0, 10.0])
    needed = noise_for_weight_1(plan(rounds=rounds, **terms), budgets)
    for row, noise in enumerate(needed.tolist()):
        enough, less = (plan(noise=factor * noise, rounds=rounds, **terms) for factor in (1.0, 1.0 - 1e-6))
        assert weights_of(enough, budgets[row : row + 1])[0] == 1.0
        assert weights_of(less, budgets[row : row + 1])[0] < 1.0
        below = weights_of(plan(noise=noise / 5.0, rounds=rounds, **terms), budgets[row : row + 1])[0]
        assert 0.9986 / 5.0 <= below <= 1.0 / 5.0 * (1.0 + 1e-9)


def test_expected_weights_are_those_of_the_plan() -> None:
    budgets = three_levels(500)
    for estimator in ("everyone", "representative"):
        public = plan(estimator, noise=20.0, share=0.2, account="renyi")
        weights, found = weights_of(public, budgets), expected_weights(public, budgets)
        assert found.share_taking_part == pytest.approx((weights > 0.0).mean())
        assert found.mean == pytest.approx(weights.mean())
        assert found.mean_square == pytest.approx((weights**2).mean())
    assert expected_weights(plan("everyone", noise=0.1), [0.1]).error(100) == float("inf")


@pytest.mark.parametrize("silos", [1, 4])
def test_the_expected_error_is_that_of_simulated_releases(silos: int) -> None:
    """6,000 releases, within 3 %; the controls, Σw for Σw² and one noise for all silos, are 10 % off and more."""
    records, generator = 1000, np.random.default_rng(7)
    public = plan(noise=6.0, share=0.5, account="renyi")
    budgets = three_levels(records * silos)
    values = generator.uniform(-1.0, 1.0, records * silos)
    weights, found = weights_of(public, budgets), expected_weights(public, budgets)
    assumed = ValuesInMeasure(float(values.mean()), float(values.var()))
    means = np.empty(6_000)
    for trial in range(means.size):
        noise = generator.normal(0.0, 6.0 * np.sqrt(2.0) * np.sqrt(silos), 2)
        drawn = generator.permutation(weights)
        means[trial] = (drawn @ values + noise[0]) / (drawn.sum() + noise[1])
    error = float(np.sqrt(((means - values.mean()) ** 2).mean()))
    expected = found.error(records, silos, assumed)
    assert expected == pytest.approx(error, rel=0.03)
    assert abs(replace(found, mean_square=found.mean).error(records, silos, assumed) / error - 1.0) > 0.1
    if silos > 1:
        assert found.error(records * silos, 1, assumed) < 0.9 * error


@pytest.mark.parametrize("terms", TERMS[:3])
@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_the_best_noise_has_the_smallest_error(terms: dict[str, Any], share: float) -> None:
    """Among a hundred others, and *representative* is never worse than *everyone* at the smallest budget."""
    budgets = BoundedPareto().sample(400, 0)
    for estimator in ("everyone", "representative"):
        public = plan(estimator, **{**terms, "share": share})
        best = with_best_noise(public, budgets, 2000)
        least = expected_weights(best, budgets).error(2000)
        needed = noise_for_weight_1(public, budgets)
        others = np.geomspace(0.5 * needed.min(), 2.0 * needed.max(), 25)
        errors = [expected_weights(replace(public, noise_multiplier=float(one)), budgets).error(2000) for one in others]
        assert least <= 1.005 * min(errors)
        whole = replace(public, noise_multiplier=float(needed.max()))
        assert expected_weights(whole, budgets).mean == 1.0
        assert least <= 1.002 * expected_weights(whole, budgets).error(2000)


def test_weights_help_where_few_records_allow_much() -> None:
    """300 records of ThreeLevels: less than two thirds of the error of everybody at the smallest budget."""
    budgets = three_levels()
    everyone = plan("everyone", noise=float(noise_for_weight_1(plan(), budgets).max()))
    whole = expected_weights(everyone, budgets)
    assert whole.share_taking_part == 1.0
    best = with_best_noise(plan(), budgets, 300)
    assert expected_weights(best, budgets).error(300) < whole.error(300) / 1.5


def test_with_many_records_and_equal_budgets_there_is_nothing_to_choose() -> None:
    alike = with_best_noise(plan(), np.full(5, 1.0), 300)
    assert alike.noise_multiplier == pytest.approx(noise_for_weight_1(plan(), [1.0])[0])
    many = with_best_noise(plan(), three_levels(), 10_000_000)
    assert many.noise_multiplier == pytest.approx(noise_for_weight_1(plan(), three_levels()).max())


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="no such mean and variance"):
        ValuesInMeasure(0.5, 0.9)
    with pytest.raises(InputError, match="positive numbers"):
        with_best_noise(plan(), [1.0, 0.0], 100)
    with pytest.raises(PlanError, match="no declared budget pays for weight 1"):
        with_best_noise(plan(rounds=1_000_000, share=1e-9, account="renyi"), [1e-3], 100)
    training = PublicPlan.of_request(Request("everyone", MEAN), noise_multiplier=1.0, delta=1e-3, purpose="statistics")
    training = replace(training, request=None, purpose="training")
    with pytest.raises(InputError, match="this plan trains"):
        expected_weights(training, [1.0])
