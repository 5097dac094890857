"""Budgets in the order of a silo's records: exactly one for each, matched by id."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from rpdp.budgets import BudgetTable
from rpdp.errors import BudgetError

IDS = ["a", "b", "c", "d"]


def make() -> BudgetTable:
    return BudgetTable(IDS, [1.0, 2.0, 3.0, 3.0], delta=[0.1, 0.2, 0.3, 0.3], subjects=["p", "q", "r", "r"])


def test_another_order_takes_all_columns_along() -> None:
    arranged = make().arranged(["d", "b", "a", "c"])
    assert arranged.ids.to_pylist() == ["d", "b", "a", "c"]
    assert arranged.epsilon.tolist() == [3.0, 2.0, 1.0, 3.0]
    assert arranged.delta is not None
    assert arranged.delta.tolist() == [0.3, 0.2, 0.1, 0.3]
    assert arranged.subjects is not None
    assert arranged.subjects.to_pylist() == ["r", "q", "p", "r"]
    assert arranged.subject_sizes().tolist() == [2, 1, 1, 2]
    assert make().epsilon.tolist() == [1.0, 2.0, 3.0, 3.0]


def test_a_table_without_optional_columns() -> None:
    arranged = BudgetTable(["a", "b"], [1.0, 2.0]).arranged(("b", "a"))
    assert arranged.epsilon.tolist() == [2.0, 1.0]
    assert arranged.delta is None
    assert arranged.subjects is None


def test_a_table_in_pieces() -> None:
    """Read from a large file, a table's ids come in chunks."""
    table = BudgetTable(pa.chunked_array([["a"], [], ["b", "c"]]), [1.0, 2.0, 3.0])
    assert table.arranged(["c", "a", "b"]).epsilon.tolist() == [3.0, 1.0, 2.0]


def test_many_records_in_random_order() -> None:
    order = np.random.default_rng(0).permutation(5000)
    ids = [f"record {number}" for number in range(5000)]
    arranged = BudgetTable(ids, 1.0 + np.arange(5000) / 5000).arranged([ids[row] for row in order])
    np.testing.assert_array_equal(arranged.epsilon, 1.0 + order / 5000)


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (["a", "b", "c", "d", "e", "f"], "2 of 6 records have no budget, the first is 'e'; every record needs one"),
        (["a", "b", "c", "x"], "1 of 4 records have no budget, the first is 'x'"),
        (["a", "b", "c", "D"], "1 of 4 records have no budget, the first is 'D'"),
        (["a", "b", "c", "d "], "1 of 4 records have no budget, the first is 'd '"),
        (["d", "b"], "2 budgets belong to no record, the first is 'a'; the table must match the data"),
        (["a", "b", "c", "c"], "record id 'c' occurs in row 3 and again in row 4"),
        (["a", "b", "c", ""], "row 4 has no record id"),
        (["a", "b", "c", 4], "must be a list of strings, got 4"),
    ],
    ids=["missing", "other", "case", "space", "spare", "duplicate", "no id", "number"],
)
def test_anything_but_the_same_records_is_refused(ids: list[str], words: str) -> None:
    with pytest.raises(BudgetError, match=words):
        make().arranged(ids)
