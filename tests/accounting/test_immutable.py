"""What a guarantee rests on cannot be changed after it was checked or priced."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

import rpdp.accounting
import rpdp.planning
from rpdp import BudgetTable, PrivacyCurve, PublicPlan, Schedule
from rpdp.accounting.certificate import Certificate

CHANGING = {Certificate}
"""A table that grows as budgets are asked for."""


def dataclasses_of(package: Any) -> list[Any]:
    modules = [
        importlib.import_module(f"{package.__name__}.{one.name}") for one in pkgutil.iter_modules(package.__path__)
    ]
    return [
        one
        for module in modules
        for one in vars(module).values()
        if isinstance(one, type) and is_dataclass(one) and one.__module__ == module.__name__ and one not in CHANGING
    ]


def used() -> list[object]:
    """Objects of both packages, from a run that is priced and planned."""
    schedule = Schedule(2, 2, participations=1)
    public = PublicPlan(schedule, noise_multiplier=9.0, delta=1e-4, clip_norm=1.0, normaliser=8, weights=1.0)
    coin = PrivacyCurve(Schedule(2, 2, participation=0.5), noise_multiplier=9.0, delta=1e-4)
    silo = public.assign(BudgetTable(["a"], [0.1]))
    return [schedule, public, silo, coin.bounds(0.5), schedule.count(), Schedule(2, 2, participation=0.5).count()]


@pytest.mark.parametrize("package", [rpdp.accounting, rpdp.planning], ids=lambda package: package.__name__)
def test_data_of_accounting_and_planning_is_frozen(package: Any) -> None:
    found = dataclasses_of(package)
    assert len(found) >= 7
    assert [one.__name__ for one in found if not one.__dataclass_params__.frozen] == []
    for one in used():
        with pytest.raises(AttributeError):
            setattr(one, fields(one)[0].name, None)  # type: ignore[arg-type]


def test_a_schedule_that_was_priced_cannot_get_more_rounds() -> None:
    schedule = Schedule(3, 2, participations=2)
    with pytest.raises(AttributeError):
        schedule.rounds = 300  # type: ignore[misc]
    assert schedule.steps == 4
