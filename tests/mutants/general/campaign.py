"""Runs changes, each with the tests that run the changed line; what is known already is not run again."""

from __future__ import annotations

import json
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Self

from tests.mutants.copies import Copy, NotCollectedError, OutOfTimeError
from tests.mutants.general.equivalent import EQUIVALENT
from tests.mutants.mutant import ROOT
from tests.mutants.warm_copies import WarmCopy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.mutants.general.changes import Change

Verdict = Literal["killed", "timeout", "survived", "uncovered"]

TESTS = tuple(
    f"tests/{name}"
    for name in ("accounting", "planning", "ledger", "federation", "deployment/agent", "compatibility", "cli")
)
"""Where the tests are that may notice a change."""

FIRST_TESTS = 15
"""So many of the fastest tests go first. Most changes are noticed there, and few test files need to be loaded."""

MOST_SECONDS = 20.0
"""The tests of one change take at most so long on the untouched source; the slower ones are left out."""

_LONGEST_STATEMENT = 12
_RECORDING_TIMEOUT = 4 * 3600.0
_LEAST_TIMEOUT, _SLOWER, _CONTROL = 60.0, 10.0, 600.0


@dataclass(frozen=True)
class Result:
    """What became of a change.

    Attributes:
        name: Of the change.
        line: Where it is.
        verdict: "killed" by a failing test, "timeout" if tests did not end, "survived", or "uncovered" if no test runs
            the line.
        test: The first test that failed.
        error: How.
        tests: How many tests ran at most.
        left_out: How many more run the line, but are too slow.
        seconds: From start to end.
    """

    name: str
    line: int
    verdict: Verdict
    test: str
    error: str
    tests: int
    left_out: int
    seconds: float


@dataclass(frozen=True)
class Record:
    """Which tests run which line, and how long they take."""

    tests: list[str]
    seconds: list[float]
    lines: dict[str, dict[str, list[int]]]

    @classmethod
    def read(cls, path: Path) -> Self:
        """From the file that `recorder` writes."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))

    def tests_of(self, change: Change) -> tuple[list[str], int]:
        """The tests to run for a change, fastest first, and how many are left out.

        Code that runs on import, and what a fixture of several tests runs, is not attributed to every test that
        depends on it. So tests from the same files follow, and for the former all tests that run anything in the file.
        """
        file = self.lines.get(change.file, {})
        # Coverage knows a statement of several lines by its first; a line that never runs, by what runs before it.
        above = (file.get(str(change.line - up)) for up in range(_LONGEST_STATEMENT))
        own = set(next(filter(None, above), ()))
        if not own:
            own = {test for tests in file.values() for test in tests}
        homes = {self._home(test) for test in own}
        others = {test for test in range(len(self.tests)) if test not in own and self._home(test) in homes}
        area = change.file.partition("/")[0]
        ordered = [
            *sorted(own, key=lambda test: (f"/{area}/" not in self.tests[test], self.seconds[test])),
            *sorted(others, key=self.seconds.__getitem__),
        ]
        kept: list[int] = []
        total = 0.0
        for test in ordered:
            total += self.seconds[test]
            if total > MOST_SECONDS and kept:
                break
            kept.append(test)
        # Tests of a file share what is set up for them.
        kept = [*sorted(kept[:FIRST_TESTS], key=self._home), *sorted(kept[FIRST_TESTS:], key=self._home)]
        return [self.tests[test] for test in kept], len(ordered) - len(kept)

    def expected(self, tests: Sequence[str]) -> float:
        """How long these tests take on the untouched source."""
        wanted = set(tests)
        return sum(seconds for test, seconds in zip(self.tests, self.seconds, strict=True) if test in wanted)

    def _home(self, test: int) -> str:
        return self.tests[test].partition("::")[0]


def attempt(warm: WarmCopy, change: Change, record: Record) -> Result:
    """One change in a copy: the fastest tests first, then the others."""
    began = time.perf_counter()
    tests, left_out = record.tests_of(change)
    verdict = _tried(warm, change, tests, _LEAST_TIMEOUT + _SLOWER * record.expected(tests))
    seconds = round(time.perf_counter() - began, 2)
    return Result(change.name, change.line, *verdict, tests=len(tests), left_out=left_out, seconds=seconds)


def _tried(warm: WarmCopy, change: Change, tests: Sequence[str], timeout: float) -> tuple[Verdict, str, str]:
    if not tests:
        return "uncovered", "", ""
    try:
        seen = warm.run(change, tests, timeout)
    except OutOfTimeError as error:
        return "timeout", "", str(error)
    except NotCollectedError as error:  # the change is noticed on import
        return "killed", "", str(error).splitlines()[0][:120]
    for one in seen:
        if one.outcome == "failed":
            return "killed", one.test, f"{one.when}: {one.error}"
    return "survived", "", ""


def known(log: Path) -> dict[str, Result]:
    """The results of an earlier call, by the name of the change."""
    if not log.exists():
        return {}
    rows = [Result(**json.loads(row)) for row in log.read_text(encoding="utf-8").splitlines()]
    return {row.name: row for row in rows}


def run(
    changes: Sequence[Change],
    log: Path,
    *,
    tests: Sequence[str] = TESTS,
    jobs: int = 1,
    before: Mapping[str, Result] = MappingProxyType({}),
    again: bool = False,
    minutes: float | None = None,
    on_result: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """Results of all changes, or of those begun within so many minutes; each is appended to `log` when it is there.

    Those in `before` and `log` are not run again; with `again`, what survived and has no reason is.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    done = {**before, **known(log)}
    if again:
        done = {name: one for name, one in done.items() if one.verdict in ("killed", "timeout") or name in EQUIVALENT}
    waiting = [change for change in changes if change.name not in done]
    until = float("inf") if minutes is None else time.monotonic() + 60.0 * minutes
    if waiting and until > time.monotonic():
        with ExitStack() as stack, log.open("a", encoding="utf-8") as out:
            record, copies = _prepared(stack, log.with_suffix(".record.json"), tests, jobs)
            free: SimpleQueue[WarmCopy] = SimpleQueue()
            for copy in copies:
                free.put(stack.enter_context(WarmCopy(copy, tests)))

            def one(change: Change) -> None:
                if time.monotonic() > until:
                    return
                copy = free.get()
                try:
                    result = attempt(copy, change, record)
                finally:
                    free.put(copy)
                done[change.name] = result
                out.write(json.dumps(asdict(result)) + "\n")
                out.flush()
                on_result(result)

            with ThreadPoolExecutor(jobs) as pool:
                list(pool.map(one, waiting))
    return [done[change.name] for change in changes if change.name in done]


def failing_untouched(killers: Sequence[str], log: Path, tests: Sequence[str] = TESTS) -> list[str]:
    """The negative control: which of the tests that noticed a change fail on the untouched source, in a fork."""
    with ExitStack() as stack:
        _, copies = _prepared(stack, log.with_suffix(".record.json"), tests, 1)
        warm = stack.enter_context(WarmCopy(copies[0], tests))
        return [test for test in killers if any(one.outcome == "failed" for one in warm.run(None, [test], _CONTROL))]


def _prepared(stack: ExitStack, kept: Path, tests: Sequence[str], jobs: int) -> tuple[Record, list[Copy]]:
    """Copies with compiled tests, and the record, to which each of them adds its part unless there is one."""
    copies = []
    for _ in range(jobs):
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="rpdp-mutants-"))
        copies.append(stack.enter_context(Copy(Path(directory))))
    if not kept.exists():
        files = [name for place in tests for name in _test_files(place)]

        def record(job: int) -> Record:
            copy = copies[job]
            copy.run(files[job::jobs], until_first_failure=False, timeout=_RECORDING_TIMEOUT, recording=True)
            return Record.read(copy.record)

        with ThreadPoolExecutor(jobs) as pool:
            whole = merged(list(pool.map(record, range(min(jobs, len(files))))))
        kept.write_text(json.dumps(asdict(whole)), encoding="utf-8")
    return Record.read(kept), copies


def _test_files(place: str) -> list[str]:
    """The files of tests in a directory of the repository, or the file itself."""
    found = sorted((ROOT / place).rglob("test_*.py"))
    return [path.relative_to(ROOT).as_posix() for path in found] or [place]


def merged(records: Sequence[Record]) -> Record:
    """One record of all tests."""
    tests: list[str] = []
    seconds: list[float] = []
    lines: dict[str, dict[str, list[int]]] = {}
    for record in records:
        before = len(tests)
        tests += record.tests
        seconds += record.seconds
        for file, here in record.lines.items():
            for line, runs in here.items():
                lines.setdefault(file, {}).setdefault(line, []).extend(before + test for test in runs)
    return Record(tests, seconds, lines)
