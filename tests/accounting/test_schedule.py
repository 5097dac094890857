"""The public schedule: what it accepts and what it says."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import stats

from rpdp import Schedule
from rpdp.accounting.participation import _PROBABILITY_ERROR
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


def test_probabilities_are_as_exact_as_the_accountant_assumes() -> None:
    """Binomial and hypergeometric probabilities against forty digits, up to 20,000 rounds."""
    generator = np.random.default_rng(3)
    worst = 0.0
    with mpmath.workdps(40):
        for _ in range(300):
            rounds = int(np.exp(generator.uniform(0.0, np.log(20_000))))
            chosen, announced = (int(generator.integers(1, rounds + 1)) for _ in range(2))
            rate, k = float(generator.uniform(0.001, 0.999)), int(generator.integers(0, rounds + 1))
            binomial = mpmath.binomial(rounds, k) * mpmath.mpf(rate) ** k * (1 - mpmath.mpf(rate)) ** (rounds - k)
            j = int(generator.integers(max(0, chosen + announced - rounds), min(chosen, announced) + 1))
            ways = mpmath.binomial(chosen, j) * mpmath.binomial(rounds - chosen, announced - j)
            exact = ways / mpmath.binomial(rounds, announced)
            pairs = (
                (binomial, stats.binom.pmf(k, rounds, rate)),
                (exact, stats.hypergeom.pmf(j, rounds, chosen, announced)),
            )
            for truth, computed in pairs:
                if truth > 1e-290:
                    worst = max(worst, float(abs(computed / truth - 1)))
    assert worst < 1e-11 < _PROBABILITY_ERROR
