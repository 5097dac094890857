"""Runs mutants: every one in its turn in a copy, with the tests that must catch it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Literal

from tests.mutants.copies import OutOfTimeError, WrongCopyError
from tests.mutants.mutant import ROOT
from tests.mutants.warm_copies import warm_copy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.mutants.copies import Seen
    from tests.mutants.mutant import Mutant
    from tests.mutants.warm_copies import WarmCopy

Verdict = Literal["caught", "survived", "broken", "timeout"]

BROKEN = ("ImportError", "ModuleNotFoundError", "SyntaxError", "IndentationError", "NameError", "UnboundLocalError",
          "AttributeError")  # fmt: skip
"""What tells that a mutant is no program any more; that is found by anybody, and shows nothing about the tests."""

TIMEOUT = 300.0
_CONTROL_TIMEOUT = 1800.0


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant.

    Attributes:
        verdict: "caught" by a failed test; "survived"; "broken" if it cannot be imported or fails outside of a test;
            "timeout" if the tests did not end.
        test: The first test that failed.
        error: The type of exception by which it failed, or what else went wrong.
        seconds: From start to end of the tests; torch and other large libraries are loaded before.
    """

    mutant: Mutant
    verdict: Verdict
    test: str
    error: str
    seconds: float


class ControlError(Exception):
    """The tests do not pass on the untouched copy, so that their failing on a mutant says nothing."""


def judge(mutant: Mutant, seen: Sequence[Seen], seconds: float) -> Outcome:
    """What the tests' doings say about a mutant."""
    for one in seen:
        if one.outcome != "failed":
            continue
        good = one.when == "call" and one.error not in BROKEN and any(one.is_of(name) for name in mutant.tests)
        return Outcome(mutant, "caught" if good else "broken", one.test, f"{one.when}: {one.error}", seconds)
    return Outcome(mutant, "survived", "", "", seconds)


def require_control(seen: Sequence[Seen], tests: Sequence[str]) -> None:
    """Refuse tests that fail, or do not run, on an untouched copy."""
    failed = [f"{one.test} ({one.when}: {one.error})" for one in seen if one.outcome == "failed"]
    if failed:
        raise ControlError(f"the untouched source fails {len(failed)} tests: {'; '.join(failed[:5])}")
    passed = [one for one in seen if one.when == "call" and one.outcome == "passed"]
    absent = [name for name in tests if not any(one.is_of(name) for one in passed)]
    if absent:
        raise ControlError(f"{len(absent)} named tests did not run, or are skipped: {'; '.join(absent[:5])}")


def tests_of(mutants: Sequence[Mutant]) -> list[str]:
    """All tests that these mutants name."""
    return sorted({test for mutant in mutants for test in mutant.tests})


def attempt(copy: WarmCopy, mutant: Mutant) -> Outcome:
    """One mutant in a copy."""
    began = time.perf_counter()
    try:
        seen = copy.run(mutant, mutant.tests, TIMEOUT)
    except OutOfTimeError as error:
        return Outcome(mutant, "timeout", "", str(error), time.perf_counter() - began)
    except WrongCopyError as error:
        return Outcome(mutant, "broken", "", str(error), time.perf_counter() - began)
    return judge(mutant, seen, time.perf_counter() - began)


def run_mutants(
    mutants: Sequence[Mutant], *, jobs: int = 1, on_outcome: Callable[[Outcome], None] = lambda outcome: None
) -> list[Outcome]:
    """The control first, then every mutant; outcomes in the order of the mutants."""
    for mutant in mutants:
        mutant.applied(mutant.path(ROOT).read_text(encoding="utf-8"))  # a stale one is refused before any work
    with ExitStack() as stack:
        copies = [stack.enter_context(warm_copy(files_of(mutants))) for _ in range(jobs)]
        control(copies[0], mutants)
        free: SimpleQueue[WarmCopy] = SimpleQueue()
        for copy in copies:
            free.put(copy)

        def one(mutant: Mutant) -> Outcome:
            copy = free.get()
            try:
                outcome = attempt(copy, mutant)
            finally:
                free.put(copy)
            on_outcome(outcome)
            return outcome

        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(one, mutants))


def files_of(mutants: Sequence[Mutant]) -> list[str]:
    """The files of all tests that these mutants name."""
    return sorted({test.partition("::")[0] for test in tests_of(mutants)})


def control(copy: WarmCopy, mutants: Sequence[Mutant]) -> float:
    """The negative control: without a mutant all named tests pass. The seconds it took."""
    began = time.perf_counter()
    tests = tests_of(mutants)
    require_control(copy.run(None, tests, _CONTROL_TIMEOUT), tests)
    return time.perf_counter() - began
