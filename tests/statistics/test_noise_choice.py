"""The noise of a request from declared budgets: who takes part, and how wide intervals will be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from rpdp.budgets.distributions import BoundedPareto, ThreeLevels
from rpdp.errors import InputError
from rpdp.statistics import DeclaredRecords, Inquiry, Mean, NumberRange, RequestTerms, choose_noise

if TYPE_CHECKING:
    from rpdp.planning import RequestEstimator

AGE = NumberRange(40, 100)
THREE = DeclaredRecords(ThreeLevels().sample(1000, 0), 300)


def inquiry(estimator: RequestEstimator) -> Inquiry:
    return Inquiry((Mean("age", AGE),), estimator)


@pytest.mark.parametrize("account", ["sums", "renyi"])
@pytest.mark.parametrize("level", [0.1, 1.0, 5.0])
def test_the_budget_of_the_floor_just_pays_for_weight_1(level: float, account: str) -> None:
    terms = RequestTerms(1e-5, 0.1, {"account": account})
    noise = choose_noise(inquiry("everyone"), THREE, terms, floor=level).noise_multiplier
    request = inquiry("everyone").request
    assert terms.weights(request, noise, np.array([level, 0.98 * level])).tolist() == [1.0, 0.0]
    assert terms.weights(request, 0.99 * noise, np.array([level])).tolist() == [0.0]


def test_everyone_takes_part_by_default() -> None:
    choice = choose_noise(inquiry("everyone"), THREE, RequestTerms(1e-5))
    assert [choice.taking_part, choice.mean_weight] == pytest.approx([1.0, 1.0])
    above = choose_noise(inquiry("everyone"), THREE, RequestTerms(1e-5), floor=1.0)
    assert above.taking_part == pytest.approx(0.3)
    assert above.estimates[0].half_width < choice.estimates[0].half_width


def test_no_noise_gives_narrower_intervals_than_the_one_that_is_chosen() -> None:
    terms = RequestTerms(1e-5)
    chosen = choose_noise(inquiry("representative"), THREE, terms)
    budgets, shares = THREE.levels()
    from rpdp.statistics import expected_estimates

    for noise in np.geomspace(0.8, 30, 12):
        weight = float(terms.weights(inquiry("representative").request, float(noise), budgets) @ shares)
        found = expected_estimates(inquiry("representative"), total_weight=weight * 300, noise_multiplier=float(noise))
        assert found[0].half_width >= 0.99 * chosen.estimates[0].half_width


def test_weights_saturate_where_many_records_make_noise_small() -> None:
    few = choose_noise(inquiry("representative"), THREE, RequestTerms(1e-5))
    many = choose_noise(inquiry("representative"), DeclaredRecords(THREE.budgets, 100_000), RequestTerms(1e-5))
    assert few.mean_weight < 0.5 < many.mean_weight


def test_personal_weights_are_better_than_the_smallest_budget_for_all() -> None:
    everyone, representative = (
        choose_noise(inquiry(estimator), THREE, RequestTerms(1e-5)) for estimator in ("everyone", "representative")
    )
    assert representative.estimates[0].half_width < everyone.estimates[0].half_width / 1.5


def test_a_smaller_share_gives_wider_intervals() -> None:
    widths = [
        choose_noise(inquiry("representative"), DeclaredRecords(THREE.budgets, 3000), RequestTerms(1e-5, share))
        for share in (0.02, 0.1, 0.5)
    ]
    assert sorted((each.estimates[0].half_width for each in widths), reverse=True) == [
        each.estimates[0].half_width for each in widths
    ]


def test_many_different_budgets_are_summarised() -> None:
    budgets, shares = DeclaredRecords(BoundedPareto().sample(5000, 0), 300).levels()
    assert len(budgets) == 200
    assert shares.sum() == pytest.approx(1.0)


def test_what_cannot_be_planned_is_refused() -> None:
    with pytest.raises(InputError, match="weights leave nobody out"):
        choose_noise(inquiry("representative"), THREE, RequestTerms(1e-5), floor=1.0)
    with pytest.raises(InputError, match="no declared record can take part"):
        choose_noise(inquiry("everyone"), THREE, RequestTerms(1e-5), floor=50.0)
    with pytest.raises(InputError, match="share"):
        RequestTerms(1e-5, 0.0)
    with pytest.raises(InputError, match="must be positive"):
        DeclaredRecords(np.array([0.0]), 300)
