"""The public schedule: what it accepts and what it says."""

from __future__ import annotations

from typing import Any

import pytest

from rpdp import Schedule
from rpdp.errors import InputError


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"rounds": 0, "participation": 0.5}, "rounds=0"),
        ({"rounds": 2.5, "participation": 0.5}, "rounds=2.5"),
        ({"rounds": True, "participation": 0.5}, "rounds=True"),
        ({"rounds": 10**7, "participation": 0.5}, "rounds=10000000"),
        ({"local_steps": -1, "participation": 0.5}, "local_steps=-1"),
        ({}, "either participation"),
        ({"participation": 0.5, "participations": 3}, "either participation"),
        ({"participation": 0.0}, "participation=0.0"),
        ({"participation": 1.1}, "participation=1.1"),
        ({"participation": float("nan")}, "participation=nan"),
        ({"participation": "0.5"}, "participation='0.5'"),
        ({"participations": 16}, "participations=16"),
        ({"participations": 0}, "participations=0"),
        ({"participation": 0.5, "max_participations": 16}, "max_participations=16"),
        ({"participations": 3, "max_participations": 2}, "max_participations"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match="(?i)" + named.replace("(", r"\(")):
        Schedule(**{"rounds": 15, "local_steps": 50, **arguments})


def test_steps_and_expected_participations() -> None:
    assert Schedule(15, 50, participation=0.5).steps == 750
    assert Schedule(15, 50, participations=8).steps == 400
    assert Schedule(15, 50, participation=0.5).expected_participations == pytest.approx(7.5)
    assert Schedule(15, 50, participation=0.5, max_participations=8).steps == 400


def test_a_cap_that_cannot_bind_changes_nothing() -> None:
    assert (
        Schedule(15, 50, participation=0.5, max_participations=15).count()
        == Schedule(15, 50, participation=0.5).count()
    )


def test_no_rounds_announced_means_no_rounds_joined() -> None:
    assert Schedule(15, 50, participation=0.5).count(0).largest == 0
