"""Nothing that a record causes is visible (privacy.md, rule 16): live agents with and without a target record.

`pytest -s` prints the table of cases; the slow part has the products of the grammar.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.deployment.agent import interference
from tests.deployment.agent.interference import ALARM, WITH, WITHOUT, Unit, run_cases, sign_test, table
from tests.deployment.agent.interference_cases import (
    ENDLESS,
    FAST,
    HONEST,
    OWN_BUDGET,
    SLEEPS,
    SLOW,
    TWO_RUNS,
    looking_loss,
    looking_model,
)
from tests.deployment.agent.interference_host import LEAKS, NO_TABLE, OTHER_RUN, SOMETIMES, UNCHECKED, not_covered

if TYPE_CHECKING:
    from pathlib import Path

    from tests.deployment.agent.interference import Verdict
    from tests.deployment.agent.interference_host import Case


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory that only this user can write to, with a path short enough for a socket."""
    tmp_path.chmod(0o700)
    return tmp_path


def require_good(verdicts: list[Verdict]) -> None:
    sys.stdout.write(table(verdicts))
    assert [f"{one.case}: {one.detail}" for one in verdicts if not one.is_good] == []


def test_no_answer_depends_on_a_record(folder: Path) -> None:
    require_good(run_cases(folder, FAST))


@pytest.mark.slow
def test_no_answer_depends_on_a_record_in_many_more_cases(folder: Path) -> None:
    cases: list[Case] = [case for case in SLOW if case not in FAST]
    require_good(run_cases(folder, cases))


def require_caught(folder: Path, controls: list[tuple[str, Case]]) -> None:
    leaks = [leak for leak, _ in controls]
    cases = [replace(case, name=f"control: {leak}; {case.name}") for leak, case in controls]
    verdicts = run_cases(folder, cases, leaks=leaks, at_once=len(cases))
    sys.stdout.write(table(verdicts))
    assert [one.case for one in verdicts if one.word != "LEAK"] == []
    assert not any("SIGTERM" in one.detail for one in verdicts)  # ending an agent is another matter


def test_an_agent_that_shows_the_target_is_caught(folder: Path) -> None:
    """The control: the same experiment, with agents that lack non-interference in one thing each.

    Without the checks of models, a record that sleeps or never ends is seen although training is ended in time; without
    the whole table of prices, a budget that no other record has is seen in the time of an admission.
    """
    shown = [(leak, HONEST) for leak in LEAKS if leak not in (SOMETIMES, UNCHECKED, NO_TABLE, OTHER_RUN)]
    unchecked = [(UNCHECKED, case) for case in (SLEEPS, ENDLESS, looking_loss("sleeps", "item"))]
    require_caught(folder, [*shown, *unchecked, (NO_TABLE, OWN_BUDGET), (OTHER_RUN, TWO_RUNS)])


@pytest.mark.slow
def test_an_agent_that_shows_the_target_in_few_rounds_or_models_is_caught(folder: Path) -> None:
    effects = ("process dies", "sys.exit", "spins for ever", "sleeps long")
    require_caught(folder, [(SOMETIMES, HONEST), *((UNCHECKED, looking_model(effect)) for effect in effects)])


# The test of times and kinds


def unit_of(sign: int) -> Unit:
    """A unit in which one agent takes longer, or none."""
    seen = [("update", "None", 100)]
    late = {WITH: 1.0 + max(sign, 0), WITHOUT: 1.0 + max(-sign, 0)}
    return Unit(dict.fromkeys(late, seen), {name: [seconds] for name, seconds in late.items()})


def test_the_sign_of_a_unit() -> None:
    assert [unit_of(sign).sign for sign in (-1, 0, 1)] == [-1, 0, 1]
    tied = unit_of(0)
    tied.times[WITH] = [1.0 + 0.9 * interference.RESOLUTION * tied.release_after]
    assert tied.sign == 0
    for other in (("sat-out", "None", 100), ("update", "None", 101), ("update", "failed", 100)):
        unit = unit_of(0)
        unit.seen = {WITH: [other], WITHOUT: [("update", "None", 100)]}
        swapped = unit_of(0)
        swapped.seen = {WITH: unit.seen[WITHOUT], WITHOUT: unit.seen[WITH]}
        assert unit.sign == -swapped.sign != 0


def test_the_sign_test() -> None:
    assert sign_test([0] * 50) == sign_test([1, -1] * 20) == 1.0
    assert sign_test([1] * 17) == sign_test([-1] * 17 + [0] * 9) == 2.0**-16 < ALARM / 2 < sign_test([1] * 16)
    assert sign_test([1] * 19 + [-1]) == 2 * 21 / 2**20


def test_what_the_check_names_is_found_wherever_it_stands() -> None:
    facts = {"silo": "a", "models": {"study": {"notes": ["not covered: the speed of torch"]}}, "not covered": 3}
    assert not_covered(facts) == ("not covered: the speed of torch",)


def alarms(count: int, chance: float, bias: float) -> int:
    """How often a case is called a leak when units differ with a chance, to the side of the target with a bias."""
    dice = np.random.default_rng(7)

    def draw() -> Unit:
        differs = dice.random() < chance
        return unit_of((1 if dice.random() < bias else -1) if differs else 0)

    return sum(
        not interference._judge(HONEST, [draw() for _ in range(interference.SCREENED)], draw).is_good
        for _ in range(count)
    )


@pytest.mark.parametrize("chance", [0.1, 0.5, 1.0])
def test_false_alarms_are_as_rare_as_stated(chance: float) -> None:
    """Of 20,000 cases at most 0.8 are expected; more than 6 would come once in 100,000 such tests."""
    assert alarms(20_000, chance, 0.5) <= 6


def test_leaks_are_found_with_the_power_that_is_stated() -> None:
    """A leak in every unit always; one in two thirds of the units nearly always."""
    assert alarms(200, 1.0, 1.0) == 200
    assert alarms(200, 0.67, 1.0) >= 180
