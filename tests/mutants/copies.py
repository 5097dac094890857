"""A copy of the source and its tests, in which one mutant at a time lives and tests run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.mutants.host import LARGE, OUT_OF_TIME
from tests.mutants.mutant import ROOT, Applicable
from tests.mutants.witness import FILE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

_COPIED = ("src", "lab", "tests", "docs", "examples", "README.md", "pyproject.toml")
_ENDED = (0, 1)
"""Exit codes of a pytest that ran its tests: all passed, some failed."""

_HOUR = 3600 * 10**9
RECORD = "RPDP_MUTANTS_RECORD"
"""Where `general.recorder` writes."""


class WrongCopyError(Exception):
    """Tests ran against another rpdp than the one in the copy, or could not run at all."""


class NotCollectedError(WrongCopyError):
    """Pytest could not even collect the tests."""


class OutOfTimeError(Exception):
    """Tests did not end in time."""


@dataclass(frozen=True)
class Seen:
    """What one test did in one phase."""

    test: str
    when: str
    outcome: str
    error: str | None

    def is_of(self, name: str) -> bool:
        """Whether it is the test of that name, or one of its cases."""
        return self.test == name or self.test.startswith((f"{name}[", f"{name}::"))


class Copy:
    """A directory with everything that tests need, and a process that runs them; to be used in a `with` block.

    Compiled files come along, and none are written: each fits its source by time and size, so a mutated file gets
    another time, and its old one back with its old text.
    """

    def __init__(self, directory: Path, source: Path = ROOT, loaded: Sequence[str] = LARGE) -> None:
        self.root = directory.resolve()
        self._witness, self._log = self.root / "witness.json", self.root / "pytest.log"
        self.record = self.root / "record.json"
        for name in _COPIED:
            place = source / name
            if place.is_dir():
                shutil.copytree(place, self.root / name, ignore=shutil.ignore_patterns("*.egg-info", "*-pytest-*.pyc"))
            elif place.exists():
                shutil.copy2(place, self.root / name)
        self._host = subprocess.Popen(
            [sys.executable, "-m", "tests.mutants.host", *loaded],
            cwd=self.root,
            env=self.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._host.stdin is not None
        assert self._host.stdout is not None
        self._host.stdin.close()
        self._host.stdout.close()
        self._host.wait()

    @contextmanager
    def mutated(self, mutant: Applicable) -> Iterator[None]:
        """Inside the block the copy has this bug."""
        path = mutant.path(self.root)
        original, time = path.read_text(encoding="utf-8"), path.stat().st_mtime_ns
        path.write_text(mutant.applied(original), encoding="utf-8")
        os.utime(path, ns=(time, time + _HOUR))
        try:
            yield
        finally:
            path.write_text(original, encoding="utf-8")
            os.utime(path, ns=(time, time))

    def run(
        self, tests: Sequence[str], *, until_first_failure: bool, timeout: float, recording: bool = False
    ) -> list[Seen]:
        """Run tests here, in a process of their own.

        When `recording`, without a mutant, the copy keeps what was compiled and a record of which test runs which line.
        """
        self._witness.unlink(missing_ok=True)
        options = [
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "tests.mutants.witness",
            *(["-x"] if until_first_failure else []),
            *(["-p", "tests.mutants.general.recorder"] if recording else []),
        ]
        question = {"options": [*options, *tests], "log": str(self._log), "timeout": timeout, "compiling": recording}
        code = self._ask(question)
        if code == OUT_OF_TIME:
            raise OutOfTimeError(f"no end after {timeout:g} s")
        if not self._witness.exists():
            raise NotCollectedError(f"pytest ended with code {code}: {self._said()}")
        told = json.loads(self._witness.read_text(encoding="utf-8"))
        if not Path(told["rpdp"] or "/").is_relative_to(self.root):
            raise WrongCopyError(f"tests ran against {told['rpdp']}, not against the copy in {self.root}")
        seen = [Seen(**one) for one in told["seen"]]
        if code not in _ENDED and not any(one.outcome == "failed" for one in seen):
            raise NotCollectedError(f"pytest ended with code {code}: {self._said()}")
        return seen

    def _ask(self, question: dict[str, object]) -> int:
        assert self._host.stdin is not None
        assert self._host.stdout is not None
        self._host.stdin.write(json.dumps(question) + "\n")
        self._host.stdin.flush()
        answer = self._host.stdout.readline()
        if not answer:
            raise WrongCopyError(f"the process that runs tests has ended with code {self._host.wait()}")
        return int(answer)

    def _said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-2000:] if self._log.exists() else ""

    def environment(self) -> dict[str, str]:
        """Without traces of a pytest around it."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
        return {
            **kept,
            "PYTHONPATH": os.pathsep.join([str(self.root / "src"), str(self.root / "lab/src"), str(self.root)]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
            FILE: str(self._witness),
            RECORD: str(self.record),
        }
