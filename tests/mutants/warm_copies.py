"""A copy with a process that has collected its tests: a mutant costs little more than the tests that catch it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.mutants.copies import Copy, OutOfTimeError, Seen, WrongCopyError
from tests.mutants.warm import CHANNEL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.mutants.mutant import Applicable


class WarmCopy:
    """A copy, and a process in it that has collected tests; to be used in a `with` block."""

    def __init__(self, copy: Copy, tests: Sequence[str]) -> None:
        self.copy = copy
        self._log = copy.root / "warm.log"
        asked, self._ask = os.pipe()
        told, answers = os.pipe()
        options = ["-q", "-p", "no:cacheprovider", "-p", "tests.mutants.warm"]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pytest", *options, *tests],
                cwd=copy.root,
                env={**copy.environment(), CHANNEL: f"{asked} {answers}"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(asked, answers),
            )
        os.close(asked)
        os.close(answers)
        self._answers = os.fdopen(told)
        tested = self._answers.readline().strip()
        if not tested:
            raise WrongCopyError(f"tests could not be collected: {self._log.read_text()[-2000:]}")
        if not Path(tested).is_relative_to(copy.root):
            self.__exit__()
            raise WrongCopyError(f"tests would run against {tested}, not against the copy in {copy.root}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._ask)
        self._answers.close()
        self._process.wait()

    def run(self, mutant: Applicable | None, tests: Sequence[str], timeout: float) -> list[Seen]:
        """What tests do in a copy with a bug, until the first failure; without one, what all of them do.

        Subprocesses of tests see the changed file, loaded modules the changed functions. If neither shows the change,
        because it is in code that runs on import, the tests run in a new process.
        """
        if mutant is None:
            return self._seen("", "", "", tests, timeout) or []
        path = mutant.path(self.copy.root)
        original = path.read_text(encoding="utf-8")
        with self.copy.mutated(mutant):
            seen = self._seen(str(path), original, mutant.applied(original), tests, timeout)
            return self.copy.run(tests, until_first_failure=True, timeout=timeout) if seen is None else seen

    def _seen(self, path: str, before: str, after: str, tests: Sequence[str], timeout: float) -> list[Seen] | None:
        """Ask the process; None if only a new one can tell."""
        question = {
            "path": path,
            "before": before,
            "after": after,
            "tests": tests,
            "until_first_failure": bool(path),
            "timeout": timeout,
        }
        os.write(self._ask, json.dumps(question).encode() + b"\n")
        line = self._answers.readline()
        if not line:
            raise WrongCopyError(f"the process with the tests has ended with code {self._process.wait()}")
        told = json.loads(line)
        if told["outcome"] == "broken":
            raise WrongCopyError(f"the change could not be made: {told['error']}")
        if told["outcome"] == "timeout":
            raise OutOfTimeError(told["error"])
        return None if told["outcome"] == "import" else [Seen(*one) for one in told["seen"]]


@contextmanager
def warm_copy(tests: Sequence[str]) -> Iterator[WarmCopy]:
    """A copy in a directory that is gone afterwards, with these tests."""
    with (
        tempfile.TemporaryDirectory(prefix="rpdp-mutants-") as directory,
        Copy(Path(directory)) as copy,
        WarmCopy(copy, tests) as warm,
    ):
        yield warm
