"""The same work in this source tree and in another one, each in a process of its own: what a change has cost.

The code of a work calls `ready()` before each piece of it: what runs until the next call is what is timed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks._harness import Work

HERE = Path(__file__).parents[1]
_READY = """
import os, sys
_answers, _first = os.fdopen(os.dup(1), "w"), True
os.dup2(2, 1)
def ready():
    global _first
    if not _first:
        print("done", file=_answers, flush=True)
    _first = False
    if not sys.stdin.readline():
        os._exit(0)
"""


def work_in(tree: Path, code: str) -> Work:
    """Start a process that finds rpdp, its lab and its benchmarks in this source tree, and do a piece of work there."""
    places = [str(tree / part) for part in ("src", "lab/src", "benchmarks")]
    process = subprocess.Popen(
        [sys.executable, "-c", _READY + code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def work() -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        if not process.stdout.readline():
            raise RuntimeError(f"the work in {tree} has ended with code {process.wait()}")

    return work
