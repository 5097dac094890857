"""Runs tests in forked processes that have torch and other large libraries loaded already.

Loading them takes longer than most tests that catch a mutant. rpdp is not loaded here, so every fork imports it anew,
from the copy. Its arguments are the libraries to load. One line of JSON in, {"options": [...], "log": file, "timeout":
seconds, "compiling": whether compiled files are kept}; one line out, pytest's exit code or `OUT_OF_TIME`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from importlib import import_module

import pytest

OUT_OF_TIME = -1
LARGE = (
    "apsw", "cryptography.hazmat.primitives.ciphers", "dp_accounting.pld", "mpmath", "pyarrow.compute",
    "pyarrow.parquet", "scipy.optimize", "scipy.stats", "torch", "torch._dynamo", "torch.func",
)  # fmt: skip
_POLL_SECONDS = 0.02


def main() -> None:
    """Serve until the input ends."""
    for name in sys.argv[1:]:
        import_module(name)
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        asked = json.loads(line)
        sys.dont_write_bytecode = not asked["compiling"]
        answers.write(f"{_forked(asked['options'], asked['log'], asked['timeout'])}\n")
        answers.flush()


def _forked(options: list[str], log: str, timeout: float) -> int:
    process = os.fork()
    if process == 0:
        os._exit(_tested(options, log))
    until = time.monotonic() + timeout
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
            return OUT_OF_TIME
        time.sleep(_POLL_SECONDS)


def _tested(options: list[str], log: str) -> int:
    """In the fork: a group of its own, so that it can be ended with all that it started."""
    os.setpgid(0, 0)
    for place, target in (
        (0, os.open(os.devnull, os.O_RDONLY)),
        (1, os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)),
    ):
        os.dup2(target, place)
    os.dup2(1, 2)
    try:
        return int(pytest.main(options))
    finally:
        sys.stdout.flush()


if __name__ == "__main__":
    main()
