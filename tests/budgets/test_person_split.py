"""Group composition: the smallest δ over all orders, and the equal part that adds up to it."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from rpdp.budgets.person_split import equal_log_delta, log_joint_delta
from rpdp.budgets.table import delta_share

NOBODY = np.zeros(0, dtype=np.int64)


def composed(epsilon: list[float], delta: list[float], order: tuple[int, ...]) -> float:
    """One record after another is taken away: e^(what came before) times its own δ."""
    total, spent = 0.0, 0.0
    for row in order:
        total += delta[row] * float(np.exp(spent))
        spent += epsilon[row]
    return total


def test_the_smallest_of_all_orders() -> None:
    """500 persons with 1 to 5 records, all at once; seed 3."""
    generator = np.random.default_rng(3)
    person = np.repeat(np.arange(500), generator.integers(1, 6, 500))
    epsilon = generator.choice([0.0, 0.1, 1.0, 3.0], person.size) * generator.random(person.size)
    delta = generator.choice([0.0, 1e-6, 1e-3], person.size) * generator.random(person.size)
    shuffled = generator.permutation(person.size)
    found = np.exp(log_joint_delta(epsilon[shuffled], delta[shuffled], person[shuffled], 500))
    for number in range(500):
        parts, deltas = epsilon[person == number].tolist(), delta[person == number].tolist()
        smallest = min(composed(parts, deltas, order) for order in permutations(range(len(parts))))
        assert found[number] == pytest.approx(smallest, rel=1e-9)


def test_equal_parts_are_the_split_of_a_person() -> None:
    for records in (1, 2, 7):
        for epsilon in (1e-6, 0.5, 8.0, 300.0):
            parts, person = np.full(records, epsilon / records), np.zeros(records, dtype=np.int64)
            one = np.exp(equal_log_delta(parts, np.log([1e-3]), person))
            assert one == pytest.approx(1e-3 * delta_share(np.array([epsilon]), np.array([records]))[0], rel=1e-9)
            assert log_joint_delta(parts, one, person, 1)[0] == pytest.approx(np.log(1e-3), rel=1e-9)


def test_uneven_parts_with_one_delta_add_up() -> None:
    parts, person = np.array([0.5, 2.0, 0.1, 1.0]), np.array([0, 0, 1, 0])
    delta = np.exp(equal_log_delta(parts, np.log([1e-3, 1e-5]), person))
    assert np.exp(log_joint_delta(parts, delta, person, 2)) == pytest.approx([1e-3, 1e-5])
    assert delta[0] == delta[1] == delta[3]


def test_nothing_left_is_nothing() -> None:
    none = np.zeros(2)
    assert log_joint_delta(none, none, np.zeros(2, dtype=np.int64), 1)[0] == -np.inf
    assert np.exp(equal_log_delta(none, np.array([-np.inf]), np.zeros(2, dtype=np.int64))).tolist() == [0.0, 0.0]
    assert log_joint_delta(np.zeros(0), np.zeros(0), NOBODY, 0).size == 0
