"""Classes of a plan stand for its records exactly; hashes are found even where half of their bits agree."""

from __future__ import annotations

import numpy as np
import pytest

from rpdp import BudgetTable
from rpdp.ledger.store.roster import Roster, sorted_order
from rpdp.ledger.store.sampling_classes import classes_of, spread
from rpdp.planning import SiloPlan
from tests.ledger import small


def made(q: list[float], cost: list[float], active: list[int]) -> SiloPlan:
    return SiloPlan(
        public=small.public(),
        ids=BudgetTable([f"r{number}" for number in range(len(q))], [1.0] * len(q)).ids,
        budget=np.ones(len(q)),
        q=np.array(q),
        cost=np.array(cost),
        active_rounds=np.array(active, dtype=np.int32),
        status=np.zeros(len(q), dtype=np.uint8),
        estimator="by hand",
        facts={},
    )


@pytest.mark.parametrize(
    ("q", "count"),
    [([0.5, 0.1, 0.5, 0.1], 5), ([0.5, 0.0, 0.5, 0.0], 3), ([0.0] * 4, 1), ([0.2] * 4, 5)],
)
def test_classes_give_every_record_its_numbers_back(q: list[float], count: int) -> None:
    plan = made(q, [0.3, 0.2, 0.3, 0.1], [4, 4, 2, 4])
    classes, index = classes_of(plan)
    assert len(classes) == count
    assert (classes.q[0], classes.cost[0], classes.active[0]) == (0.0, 0.0, 0)
    drawn = plan.q > 0.0
    assert classes.q[index].tolist() == plan.q.tolist()
    assert classes.cost[index].tolist() == np.where(drawn, plan.cost, 0.0).tolist()
    assert classes.active[index].tolist() == np.where(drawn, plan.active_rounds, 0).tolist()
    assert ((index > 0) == drawn).all()


@pytest.mark.parametrize(("classes", "width"), [(200, 1), (256, 2), (70_000, 4)])
def test_class_numbers_take_as_few_bytes_as_they_need(classes: int, width: int) -> None:
    q = np.linspace(0.1, 0.9, classes)
    found, index = classes_of(made(q.tolist(), [0.1] * classes, [1] * classes))
    assert found.index_type.itemsize == width
    assert found.q[index].tolist() == q.tolist()
    assert np.unique(index).tolist() == list(range(1, classes + 1))


def test_records_outside_the_roster_are_in_no_class() -> None:
    places = np.array([2, -1, 0, 1, -1], dtype=np.int32)
    assert spread(places, np.array([7, 8, 9])).tolist() == [9, 0, 7, 8, 0]


def test_hashes_whose_first_words_agree_are_told_apart() -> None:
    hashes = np.array([[5, 1], [3, 9], [5, 0], [5, 2], [1, 1]], dtype=np.uint64)
    assert sorted_order(hashes).tolist() == [4, 1, 2, 0, 3]
    roster = Roster(hashes)
    assert roster.find(hashes).tolist() == [0, 1, 2, 3, 4]
    others = np.array([[5, 3], [5, 7], [3, 8], [9, 9], [0, 0]], dtype=np.uint64)
    assert roster.find(others).tolist() == [-1] * 5
    assert Roster(hashes[:0]).find(hashes).tolist() == [-1] * 5


def test_the_order_of_hashes_says_nothing_of_the_order_of_records() -> None:
    """Also among hashes whose first words agree: from either end of the table, the same rows in the same order."""
    hashes = np.array([[number // 20, number % 20] for number in range(60)], dtype=np.uint64)
    for table in (hashes, hashes[::-1], np.roll(hashes, 31, axis=0)):
        assert table[sorted_order(table)].tolist() == hashes.tolist()
