"""The paper's bounds: type 2 is valid and loose, type 1 is no bound."""

from __future__ import annotations

import numpy as np
import pytest

from rpdp import PrivacyCurve, Schedule
from rpdp.accounting import paper_type_1, paper_type_2, renyi
from rpdp.accounting.paper_bounds import PAPER_ORDERS
from rpdp.errors import InputError

MNIST = Schedule(15, 50, participation=0.5)


def test_the_orders_are_tenths_then_whole_numbers_then_powers_of_two() -> None:
    orders = [1.0 + tenth / 10.0 for tenth in range(1, 100)] + list(range(11, 64)) + [128, 256, 512]
    np.testing.assert_allclose(PAPER_ORDERS, orders, rtol=1e-14)
    best = paper_type_2(MNIST, 0.1, noise_multiplier=10.748, delta=1e-4)
    assert best == paper_type_2(MNIST, 0.1, noise_multiplier=10.748, delta=1e-4, orders=PAPER_ORDERS)


def test_type_2_is_an_upper_bound() -> None:
    q = np.array([0.01, 0.1, 1.0])
    claimed = paper_type_2(MNIST, q, noise_multiplier=10.748, delta=1e-4)
    assert (claimed >= PrivacyCurve(MNIST, noise_multiplier=10.748, delta=1e-4, accountant="rdp").epsilon(q)).all()


def test_type_1_claims_less_than_an_attacker_can_prove() -> None:
    """With the tight conversion the average over participation falls below the lower bound on the true cost."""
    orders = 1.0 + np.geomspace(0.01, 100.0, 2000)
    average = 0.5 * 15 * 50 * renyi.log_moments(np.array([1.0]), orders, 10.748)
    claimed = renyi.tight_epsilon(average, orders, 1e-4).min()
    assert claimed == pytest.approx(8.48, abs=0.02)
    assert claimed < PrivacyCurve(MNIST, noise_multiplier=10.748, delta=1e-4).bounds(1.0).lower[0]


def test_type_1_is_below_type_2() -> None:
    q = np.geomspace(0.01, 1.0, 5)
    one = paper_type_1(MNIST, q, noise_multiplier=10.748, delta=1e-4)
    two = paper_type_2(MNIST, q, noise_multiplier=10.748, delta=1e-4)
    assert (one < two).all()
    always = Schedule(15, 50, participation=1.0)
    np.testing.assert_allclose(
        paper_type_1(always, q, noise_multiplier=10.748, delta=1e-4),
        paper_type_2(always, q, noise_multiplier=10.748, delta=1e-4),
    )


@pytest.mark.parametrize(
    "schedule", [Schedule(15, 50, participations=8), Schedule(9, 1, participation=0.5, max_participations=2)]
)
def test_only_what_the_paper_knows(schedule: Schedule) -> None:
    for bound in (paper_type_1, paper_type_2):
        with pytest.raises(InputError, match="only Poisson participation"):
            bound(schedule, 0.1, noise_multiplier=1.0, delta=1e-3)
