"""The table of a certificate on costs that are known in closed form: what is in it, and how close its nodes are."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np
import pytest

from rpdp.accounting.certificate import NODE_GAP, SMALLEST_PROBABILITY, Certificate

if TYPE_CHECKING:
    from collections.abc import Callable

    from rpdp.accounting._types import FloatArray

CURVES: dict[str, Callable[[FloatArray], FloatArray]] = {
    "10 q": lambda q: 10.0 * q,
    "flat, then steep": lambda q: 0.02 * q + 30.0 * q**6,
    "steep, then flat": lambda q: 8.0 * q**0.2,
}


@pytest.mark.parametrize("price", CURVES.values(), ids=CURVES.keys())
def test_little_of_a_budget_is_left_over_wherever_it_falls(price: Callable[[FloatArray], FloatArray]) -> None:
    """The next node costs at most 0.42 % more, and below ε = 0.05 at most 0.42 % of 0.05."""
    budgets = np.geomspace(price(np.array([2.0**-30]))[0], 0.999 * price(np.ones(1))[0], 4000)
    q, cost = Certificate(price).invert(budgets)
    np.testing.assert_array_equal(cost, price(q))
    assert (cost <= budgets).all()
    assert (budgets - cost <= NODE_GAP * np.maximum(budgets, 0.05) * (1.0 + 1e-9)).all()


def test_nodes_reach_from_the_smallest_probability_to_one() -> None:
    certificate = Certificate(lambda q: q)
    certificate.fill()
    q, _ = certificate.invert(np.array([0.9 * SMALLEST_PROBABILITY, SMALLEST_PROBABILITY, 1.0, 2.0]))
    assert q.tolist() == [0.0, 2.0**-40, 1.0, 1.0]


def test_only_nodes_have_a_known_price() -> None:
    """Of what lies between nodes nothing is known, not even if the node above it has a price."""
    certificate = Certificate(lambda q: 3.0 * q)
    asked = np.array([0.3, 0.7, 1.0])
    assert np.isinf(certificate.prices(asked)).all()
    nodes, costs = certificate.invert(np.array([0.9, 2.1, 50.0]))
    np.testing.assert_array_equal(certificate.prices(nodes), costs)
    for close in (np.nextafter(nodes, 0.0), np.nextafter(nodes, 2.0), np.zeros(3)):
        assert np.isinf(certificate.prices(close)).all()


def test_a_certificate_starts_empty() -> None:
    """Everything in the table was priced by its own rule; a table from elsewhere would be believed."""
    table = [each for each in fields(Certificate) if each.name.startswith("_")]
    assert len(table) == 4
    assert not any(each.init for each in table)
