"""Canaries: who they are."""

from __future__ import annotations

import numpy as np
import pytest

from rpdp.audit import Canaries, canary_budgets, plant
from rpdp.errors import InputError
from rpdp.sampling import Seeded


def test_coins_are_fair_and_independent_of_groups() -> None:
    """40,000 coins of seed 1; false alarm 1e-6 for each half."""
    canaries = Canaries.flip((5.0, 1.0), 20_000, Seeded(1))
    assert canaries.groups == (1.0, 5.0)
    for group in range(2):
        assert abs(canaries.taken[canaries.rows(group)].sum() - 10_000) < 4.9 * 71
    assert np.array_equal(canaries.budgets, np.where(canaries.members < 20_000, 1.0, 5.0))
    assert np.array_equal(canaries.group_of(canaries.members), (canaries.members >= 20_000).astype(int))


def test_budgets_and_records_are_in_the_same_order() -> None:
    canaries = Canaries.flip((1.0, 5.0), 100, Seeded(1))
    assert len(canary_budgets(canaries)) == len(plant(canaries, 1.0).records)
    table = canary_budgets(canaries, np.full(12, 0.3))
    assert table.epsilon[:12].tolist() == [0.3] * 12
    assert np.array_equal(table.epsilon[12:], canaries.budgets)


@pytest.mark.parametrize(
    ("groups", "per_group", "message"),
    [
        ((1.0,), 99, "canaries=99 must be between 100 and"),
        ((), 100, r"groups=\[\] must be between 1 and 50 different budgets"),
        ((1.0, 1.0), 100, "different budgets"),
        ((0.0,), 100, "groups=0.0 must be positive"),
    ],
)
def test_nonsense_is_refused(groups: tuple[float, ...], per_group: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Canaries.flip(groups, per_group, Seeded(1))
