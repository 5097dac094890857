from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rpdp.budgets import BudgetTable
from rpdp.errors import BudgetError, InputError

IDS = ["a", "b", "c"]


@pytest.mark.parametrize(
    "ids", [IDS, tuple(IDS), np.array(IDS), pa.array(IDS), pa.chunked_array([["a"], [], ["b", "c"]])], ids=type
)
def test_from_lists_and_arrays(ids: Any) -> None:
    table = BudgetTable(ids, [1, 2.5, 3])
    assert table.ids.to_pylist() == IDS
    assert table.epsilon.tolist() == [1.0, 2.5, 3.0]
    assert table.delta is None
    assert table.subjects is None
    assert len(table) == 3
    assert repr(table) == "BudgetTable(3 records)"


@pytest.mark.parametrize(
    ("ids", "epsilon", "message"),
    [
        ([], [], "there are no records"),
        (["a", "b"], [1.0], "2 values of record for 1 of epsilon"),
        (["a", "b", "a"], [1, 1, 1], "record id 'a' occurs in row 1 and again in row 3; every record needs its own id"),
        (["a", "b", "b", "a"], [1] * 4, r"occurs in row 1 and again in row 4 \(2 ids occur more than once\)"),
        (["a", ""], [1, 1], "row 2 has no record id"),
        (["a", None], [1, 1], "row 2 has no record id"),
        (["a", 7], [1, 1], "record ids must be a list of strings, got 7"),
        ("ab", [1, 1], "record ids must be a list of strings, got 'ab'"),
        (["a", "\ud800"], [1, 1], "record ids must be valid Unicode"),
        (pa.array([1, 2]), [1, 1], "record ids must be text, got int64"),
        (["a"], [[1.0, 2.0]], r"epsilon must be a list of numbers, got an array of shape \(1, 2\)"),
        (["a"], ["much"], "epsilon must be a list of numbers: could not convert"),
        (["a", "b"], [1, [2, 3]], "epsilon must be a list of numbers"),
    ],
)
def test_refuses_what_is_no_table(ids: Any, epsilon: Any, message: str) -> None:
    with pytest.raises(BudgetError, match=message):
        BudgetTable(ids, epsilon)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.nan, "epsilon is missing or not a number, must be above 0 and at most 1000; leave out records"),
        (None, "epsilon is missing or not a number"),
        (0.0, "epsilon is 0, must be above 0"),
        (-0.5, "epsilon is -0.5, must be above 0"),
        (np.inf, "epsilon is inf, must be above 0 and at most 1000; a larger ε promises nothing"),
        (1000.1, "epsilon is 1000.1, must .* looks like a wrong unit. Write 1000"),
    ],
)
def test_refuses_impossible_epsilon(value: Any, message: str) -> None:
    with pytest.raises(BudgetError, match=f"^row 2, record 'b': {message}"):
        BudgetTable(IDS, [1.0, value, 1.0])


def test_counts_further_mistakes() -> None:
    with pytest.raises(BudgetError, match=r"row 1, record 'a': epsilon is -1, .* \(2 more rows are wrong\)$"):
        BudgetTable(IDS, [-1.0, -1.0, 0.0])
    with pytest.raises(BudgetError, match=r"\(1 more row is wrong\)$"):
        BudgetTable(IDS, [1.0, -1.0, 0.0])


@pytest.mark.parametrize("value", [0.0, -1e-9, 1.0, 1.5, np.inf, np.nan])
def test_refuses_delta_out_of_range(value: float) -> None:
    message = r"row 3, record 'c': delta .* must lie strictly between 0 and 1; omit the column"
    with pytest.raises(BudgetError, match=message):
        BudgetTable(IDS, [1.0] * 3, delta=[0.5, 0.5, value])


@pytest.mark.parametrize("epsilon", [1000.0, 5e-324])
def test_accepts_the_ends_of_the_range(epsilon: float) -> None:
    assert BudgetTable(["a"], [epsilon], delta=[1 - 1e-15]).epsilon[0] == epsilon


def test_lengths_of_the_other_columns() -> None:
    with pytest.raises(BudgetError, match="2 values of delta for 3 of epsilon"):
        BudgetTable(IDS, [1.0] * 3, delta=[0.1] * 2)
    with pytest.raises(BudgetError, match="1 values of subject for 3 of epsilon"):
        BudgetTable(IDS, [1.0] * 3, subjects=["p"])


def test_cannot_be_altered() -> None:
    epsilon, delta = np.ones(3), np.full(3, 1e-3)
    table = BudgetTable(IDS, epsilon, delta=delta)
    assert table.delta is not None
    epsilon[0] = delta[0] = 0.7  # the caller's arrays are not the table's
    assert table.epsilon[0] == 1.0
    assert table.delta[0] == 1e-3
    for array in (table.epsilon, table.delta):
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 9.0
    with pytest.raises(FrozenInstanceError):
        table.epsilon = np.full(3, 9.0)  # type: ignore[misc]


def test_position() -> None:
    table = BudgetTable(pa.chunked_array([["a"], ["b", "c"]]), [1.0] * 3)
    assert [table.position(record) for record in IDS] == [0, 1, 2]
    with pytest.raises(BudgetError, match="no record 'A' among 3; ids are compared exactly"):
        table.position("A")


def test_without_subjects_every_record_allows_its_own_budget() -> None:
    table = BudgetTable(IDS, [1.0, 2.0, 3.0])
    assert table.subject_sizes().tolist() == [1, 1, 1]
    assert table.per_record().epsilon is table.epsilon
    assert table.per_record().delta is None
    stand_in = table.per_record(lifetime_delta=1e-3).delta
    assert stand_in is not None
    assert stand_in.tolist() == [1e-3] * 3


def test_a_delta_column_goes_before_the_policy() -> None:
    own = BudgetTable(["a"], [1.0], delta=[1e-5]).per_record(lifetime_delta=1e-3).delta
    assert own is not None
    assert own.tolist() == [1e-5]
    with pytest.raises(InputError, match=r"lifetime_delta=1\.5 must lie strictly between 0 and 1"):
        BudgetTable(["a"], [1.0]).per_record(lifetime_delta=1.5)
