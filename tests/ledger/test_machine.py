"""The ledger against its model: steps in any order, accidents included; and the paths that once led astray."""

from __future__ import annotations

import sys
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.ledger.machine.processes import Trouble
from tests.ledger.machine.rules import HOUR, LedgerMachine
from tests.ledger.machine.world import DATABASE, LOG

if TYPE_CHECKING:
    from collections.abc import Iterator

WHOLE = Fraction(1)
DAMAGES = ("empty", "cut", "first", "second", "both", "gone")


def explored(examples: int, steps: int, number: int) -> int:
    """Let the machine run; return how many steps it took."""
    before = LedgerMachine.steps
    profile = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        print_blob=False,
        report_multiple_bugs=False,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seed(number)(LedgerMachine), settings=profile)
    return LedgerMachine.steps - before


def test_steps_in_any_order() -> None:
    assert explored(20, 25, 1) > 300
    assert LedgerMachine.most_at_once >= 2


@pytest.mark.slow
def test_many_thousand_steps_in_any_order(capsys: pytest.CaptureFixture[str]) -> None:
    steps = explored(500, 40, 2)
    ended = ", ".join(f"{command} {how}: {count:,}" for (command, how), count in sorted(LedgerMachine.outcomes.items()))
    with capsys.disabled():
        sys.stdout.write(f"\nthe ledger and its model agree after each of {steps:,} steps ({ended})\n")
    assert steps > 8_000


@pytest.fixture
def machine() -> Iterator[LedgerMachine]:
    made = LedgerMachine()
    made.begin()
    yield made
    made.holds()
    made.teardown()


def served(machine: LedgerMachine, run: str = "one", share: Fraction = WHOLE) -> None:
    """A run is admitted and answers its first round."""
    machine.serve(0, run, share, True, None)
    machine.holds()
    assert machine.world.history is not None
    assert [event.kind for event in machine.world.history[-3:]] == ["admit", "charge", "release"]


def opened(machine: LedgerMachine, *, number: int = 0, unlocks: bool = False, with_head: bool = False) -> bool:
    """Whether a process can open the ledger; the machine fails if it can and must not."""
    machine.open(number, with_head, unlocks, False, None)
    machine.holds()
    return machine.world.writers[number].is_open


def test_a_second_process_that_removes_the_lock_does_not_overspend(machine: LedgerMachine) -> None:
    opened(machine)
    machine.look(0, None)
    opened(machine, number=1, unlocks=True)
    machine.admit(1, "one", WHOLE, True, False, None)
    machine.admit(0, "two", WHOLE, True, True, None)


@pytest.mark.parametrize("how", DAMAGES)
def test_no_damage_to_the_notes_lets_a_restored_backup_in(machine: LedgerMachine, how: str) -> None:
    served(machine)
    machine.restore(0, frozenset({DATABASE, LOG}))
    machine.damage_notes(how)
    assert not opened(machine)


def test_what_the_steward_ordered_last_is_in_force(machine: LedgerMachine) -> None:
    machine.order(0, "raise", "a", Fraction(5), None)
    machine.step_clock(-HOUR)
    machine.order(0, "lower", "a", Fraction(1, 8), None)
    machine.holds()
    served(machine)


def test_a_raise_of_one_record_is_divided_among_the_person(machine: LedgerMachine) -> None:
    machine.order(0, "raise", "c", Fraction(3), None)
    machine.holds()
    served(machine)


def test_who_withdrew_during_a_run_never_rejoins_it(machine: LedgerMachine) -> None:
    served(machine, share=Fraction(1, 2))
    for kind in ("withdraw", "reconsent"):
        machine.order(0, kind, "a", WHOLE, None)
        machine.charge(0, "one", 2, True, False, None)
        machine.holds()
    machine.charge(0, "one", 3, True, False, None)
    served(machine, "two", Fraction(1, 2))


def test_an_exception_after_a_commit_leaves_no_old_balance(machine: LedgerMachine) -> None:
    opened(machine)
    machine.admit(0, "one", WHOLE, True, False, Trouble("reserve: committed", is_crash=False))
    machine.admit(0, "two", WHOLE, True, True, None)


@pytest.mark.parametrize("part", [DATABASE, LOG])
def test_a_database_and_a_log_of_different_times_are_refused(machine: LedgerMachine, part: str) -> None:
    """The last events look right, in the log; the totals are those of the older part."""
    served(machine, "one", Fraction(1, 2))
    machine.back_up()
    served(machine, "two")
    machine.restore(0 if part == DATABASE else 1, frozenset({part}))
    for _ in range(2):  # a refused ledger stays as it was, log included
        assert not opened(machine)


def test_the_latest_files_open_again(machine: LedgerMachine) -> None:
    served(machine)
    machine.back_up()
    machine.restore(0, frozenset({DATABASE}))
    assert not opened(machine)
    machine.restore(1, frozenset({DATABASE, LOG}))
    assert opened(machine)
    machine.world.check()


def test_a_hold_that_expired_is_given_back_and_stays_over(machine: LedgerMachine) -> None:
    opened(machine)
    machine.hold(0, "one", WHOLE, None)
    machine.step_clock(HOUR)
    machine.charge(0, "one", 1, True, False, None)
    machine.step_clock(-HOUR)
    machine.charge(0, "one", 1, True, True, None)
    machine.admit(0, "one", WHOLE, True, True, None)
    served(machine, "two")


def test_a_cancelled_run_gives_back_once_and_never_returns(machine: LedgerMachine) -> None:
    opened(machine)
    machine.hold(0, "one", WHOLE, None)
    machine.cancel(0, "one", "server", True, Trouble("cancel: committed", is_crash=False))
    machine.kill(0)
    opened(machine)
    machine.admit(0, "one", WHOLE, True, True, None)
    served(machine, "two")
    machine.cancel(0, "two", "steward", True, None)


def test_holds_of_several_runs_never_exceed_what_is_left(machine: LedgerMachine) -> None:
    """Four runs at once, over two processes: they hold, take turns, crash, are cancelled, and hold again."""
    opened(machine)
    half = Fraction(1, 2)
    for run in ("one", "two", "three"):
        machine.hold(0, run, half, None)
        machine.holds()
    machine.admit(0, "four", WHOLE, True, False, None)
    machine.charge(0, "two", 1, True, False, Trouble("charge: committed", is_crash=True))
    opened(machine, number=1)
    for number in (1, 2):
        for run in ("one", "two", "four"):
            machine.charge(1, run, number, True, False, None)
            machine.holds()
    machine.cancel(1, "three", "server", False, Trouble("cancel: booked", is_crash=True))
    opened(machine)
    machine.cancel(0, "three", "server", False, None)
    machine.store(0, "one", 1, False, None)
    machine.holds()
