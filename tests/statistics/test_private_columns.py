"""Statistics in one place: real silos, accounts that are charged, and numbers near the truth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import rpdp.statistics as st
from rpdp.budgets.distributions import ThreeLevels
from rpdp.errors import InputError
from rpdp.ledger import MemoryAccount
from rpdp.statistics import DeclaredRecords, PrivateColumns, RequestTerms
from tests.statistics.world import RANGES, World

if TYPE_CHECKING:
    from rpdp.planning import RequestEstimator

WORLD = World.make(2000)
BUDGETS = ThreeLevels().sample(2000, 3)


def private(estimator: RequestEstimator = "representative", share: float = 0.5, **changes: Any) -> PrivateColumns:
    known = DeclaredRecords(ThreeLevels().sample(1000, 0), 2000)
    return PrivateColumns(
        WORLD.columns, BUDGETS, known, RequestTerms(1e-3, share), estimator=estimator, **{"seed": 7, **changes}
    )


@pytest.mark.parametrize("estimator", ["everyone", "representative"])
def test_every_question_is_answered_near_the_truth(estimator: RequestEstimator) -> None:
    age = WORLD.arrays["age"].astype(float)
    answers = [
        (
            st.mean(
                private(
                    estimator,
                ),
                "age",
            ),
            age.mean(),
        ),
        (st.total(private(estimator), "age", records=2000), age.sum()),
        (st.standard_deviation(private(estimator), "age"), age.std()),
        (st.variance(private(estimator), "age"), age.var()),
        (st.quantiles(private(estimator), "age")[1], np.median(age)),
        (st.proportions(private(estimator), "type")[0], (WORLD.arrays["type"] == "a").mean()),
        (st.group_means(private(estimator), "age", "sex")[0], age[WORLD.arrays["sex"] == "F"].mean()),
    ]
    for found, truth in answers:
        assert abs(found.value - truth) <= 2.0 * found.half_width
    assert len(st.contingency_table(private(estimator), "sex", "type")) == 20
    assert len(st.histogram(private(estimator), "age", bins=5)) == 6
    assert -1.0 <= st.correlation(private(estimator), "age", "pressure").value <= 1.0


def test_records_are_counted_by_everyone_alone() -> None:
    found = st.count(private("everyone", floor=1.0))
    assert found.low <= 600 <= found.high
    with pytest.raises(InputError, match="cannot count records"):
        st.count(private())


def test_every_question_is_charged_and_together_they_take_no_more_than_there_is() -> None:
    account = MemoryAccount(2000)
    asked = private("everyone", share=0.5, floor=1.0, account=account)
    first, second = st.count(asked), st.count(asked)
    third = st.count(asked)
    assert first.value != second.value
    assert abs(first.value - 600) < 100 > abs(second.value - 600)
    assert abs(third.value) < 100  # nobody can pay for a third one: the answer is noise alone
    left = account.left(asked.budgets, 1e-3)
    assert (left.amount[BUDGETS == 1.0] <= 0.01).all()
    assert np.allclose(left.amount[BUDGETS == 5.0], 4.0, atol=0.01)  # all pay the same price


@pytest.mark.parametrize("estimator", ["everyone", "representative"])
def test_noise_does_not_depend_on_real_budgets(estimator: RequestEstimator) -> None:
    known = DeclaredRecords(ThreeLevels().sample(1000, 0), 2000)
    noises = []
    for real in (np.full(2000, 0.7), BUDGETS):
        columns = PrivateColumns(WORLD.columns, real, known, RequestTerms(1e-3), estimator=estimator, seed=7)
        age = columns.columns.declared["age"]
        assert isinstance(age, st.NumberRange)
        noises.append(columns.planned(st.Mean("age", age)).noise_multiplier)
    assert noises[0] == noises[1]


def test_without_a_seed_a_production_ledger_is_needed() -> None:
    with pytest.raises(InputError, match="a real run needs run"):
        st.mean(private(seed=None), "age")


def test_the_same_seed_gives_the_same_numbers() -> None:
    assert st.mean(private(), "age") == st.mean(private(), "age")
    assert st.mean(private(), "age").value != st.mean(private(seed=8), "age").value


def test_budgets_must_be_of_the_records() -> None:
    known = DeclaredRecords(np.ones(5), 5)
    with pytest.raises(InputError, match="one ε for each of 2,000"):
        PrivateColumns(WORLD.columns, [1.0, 2.0], known, RequestTerms(1e-3))


def test_statistics_are_named_by_columns() -> None:
    declared = WORLD.columns.declared
    assert [each.name for each in st.statistics_of(declared, "age")] == [
        "mean of age",
        "standard deviation of age",
        "age",
    ]
    assert [each.name for each in st.statistics_of(declared, "type", by="sex")] == ["type by sex"]
    assert [each.name for each in st.statistics_of(declared, "age", by="sex")] == [
        "mean of age",
        "standard deviation of age",
    ]
    assert st.axis_of(declared, "age", bins=2).edges == (40.0, 70.0, 100.0) == (*RANGES["age"][:1], 70.0, 100.0)
    for column, by, message in (
        ("aeg", None, "did you mean age"),
        ("age", "pressure", "is a number"),
        ("age", "six", "did you mean sex"),
    ):
        with pytest.raises(InputError, match=message):
            st.statistics_of(declared, column, by=by)
    with pytest.raises(InputError, match="not a statistic of numbers"):
        st.statistics_of(declared, "age", ["median"])  # type: ignore[list-item]
