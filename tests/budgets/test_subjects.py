"""A subject's budget is split so that group composition gives it back exactly."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpdp.budgets import BudgetTable
from rpdp.errors import BudgetError


def compose_group(records: int, epsilon: float, delta: float) -> tuple[float, float]:
    """(ε, δ) of a group: change one record after the other, each step multiplying by e^ε and adding δ.

    Pr[M(D_k)] ≤ e^ε Pr[M(D_{k−1})] + δ, k times.
    """
    factor, rest = 1.0, 0.0
    for _ in range(records):
        factor, rest = factor * math.exp(epsilon), rest * math.exp(epsilon) + delta
    return math.log(factor), rest


@settings(deadline=None)  # the machine may be busy
@given(records=st.integers(1, 40), epsilon=st.floats(1e-3, 100.0), delta=st.floats(1e-12, 0.5))
def test_group_composition_gives_the_subjects_budget_back(records: int, epsilon: float, delta: float) -> None:
    ids = [str(number) for number in range(records)]
    split = BudgetTable(ids, [epsilon] * records, delta=[delta] * records, subjects=["p"] * records).per_record()
    assert split.delta is not None
    group_epsilon, group_delta = compose_group(records, float(split.epsilon[0]), float(split.delta[0]))
    assert group_epsilon == pytest.approx(epsilon, rel=1e-9)
    assert group_delta == pytest.approx(delta, rel=1e-9)


def test_a_wrong_split_of_delta_would_be_noticed() -> None:
    assert compose_group(3, 1.0, 1e-3 / 3)[1] > 2e-3


def test_subjects_of_different_sizes_in_any_order() -> None:
    table = BudgetTable(list("abcdef"), [6.0, 1.0, 6.0, 2.0, 6.0, 2.0], subjects=list("pqprps"))
    assert table.subject_sizes().tolist() == [3, 1, 3, 1, 3, 1]
    assert table.per_record().epsilon.tolist() == [2.0, 1.0, 2.0, 2.0, 2.0, 2.0]
    assert table.per_record().delta is None


def test_a_single_record_keeps_exactly_what_its_subject_allows() -> None:
    split = BudgetTable(["a"], [0.3], delta=[1e-7], subjects=["p"]).per_record()
    assert split.delta is not None
    assert (split.epsilon[0], split.delta[0]) == (0.3, 1e-7)


@pytest.mark.parametrize("records", [1, 2, 50])
def test_the_largest_budgets_do_not_overflow(records: int) -> None:
    ids = [str(number) for number in range(records)]
    split = BudgetTable(ids, [1000.0] * records, subjects=["p"] * records).per_record(lifetime_delta=0.1)
    assert split.delta is not None
    assert (split.delta >= 0.0).all()
    assert (split.delta <= 0.1).all()


def test_the_policys_delta_is_split_too() -> None:
    split = BudgetTable(["a", "b"], [1.0, 1.0], subjects=["p", "p"]).per_record(lifetime_delta=1e-3)
    assert split.delta is not None
    assert split.delta == pytest.approx(1e-3 / (1 + math.exp(0.5)))


def test_refuses_unequal_budgets_within_a_subject() -> None:
    message = r"row 3: subject 'p' has epsilon 2 here and 1 in row 1; .* in all rows of a subject"
    with pytest.raises(BudgetError, match=message):
        BudgetTable(["a", "b", "c"], [1.0, 5.0, 2.0], subjects=["p", "q", "p"])
    with pytest.raises(BudgetError, match=r"row 2: subject 'p' has delta 0\.2 here and 0\.1 in row 1"):
        BudgetTable(["a", "b"], [1.0, 1.0], delta=[0.1, 0.2], subjects=["p", "p"])


@pytest.mark.parametrize("missing", ["", None])
def test_refuses_a_missing_subject(missing: str) -> None:
    with pytest.raises(BudgetError, match="row 2 has no subject; omit the column"):
        BudgetTable(["a", "b"], [1.0, 1.0], subjects=["p", missing])
