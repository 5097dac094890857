"""A pytest plugin inside a copy: collects tests once, then runs some of them for each change, in a fork.

Its first line out is the file of the rpdp that is tested. Then one line of JSON in: {"path", "before", "after",
"tests", "until_first_failure", "timeout"}; one line out: {"outcome", "error", "seen"}. The outcome is "done",
"timeout", "import" for a change that only a new process can show, or "broken" if the change could not be made. `seen`
lists what each test did: its name, phase, outcome and error.
"""

from __future__ import annotations

import json
import os
import signal
import time
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from tests.mutants.live_change import RunsOnImportError, change_functions

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

CHANNEL = "RPDP_MUTANTS_CHANNEL"
"""Two file descriptors: what is asked, and the answers."""

_POLL_SECONDS = 0.01
_seen: list[tuple[str, str, str, str | None]] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    error = None if call.excinfo is None or not report.failed else call.excinfo.typename
    _seen.append((item.nodeid, str(report.when), report.outcome, error))
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    asked, answers = (int(number) for number in os.environ[CHANNEL].split())
    items = {item.nodeid: item for item in session.items}
    with os.fdopen(asked) as lines, os.fdopen(answers, "w") as out:
        tested = find_spec("rpdp")
        out.write(f"{None if tested is None else tested.origin}\n")
        out.flush()
        for line in lines:
            out.write(json.dumps(_forked(items, json.loads(line))) + "\n")
            out.flush()
    return True


def _forked(items: Mapping[str, pytest.Item], asked: dict[str, Any]) -> dict[str, Any]:
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        os.setpgid(0, 0)
        try:
            with os.fdopen(write, "w") as answer:
                answer.write(json.dumps({**_tried(items, asked), "seen": _seen}))
        finally:
            os._exit(0)
    os.close(write)
    told = _read(read, process, time.monotonic() + asked["timeout"])
    if told is None:
        return {"outcome": "timeout", "error": f"no end after {asked['timeout']:g} s", "seen": []}
    # No test is known to have failed. A new process shows whether the change ends it, or something here does.
    return json.loads(told) if told else {"outcome": "import", "error": "the process ended", "seen": []}


def _read(channel: int, process: int, until: float) -> bytes | None:
    """What a fork answers; None if it does not end in time."""
    parts: list[bytes] = []
    os.set_blocking(channel, False)
    with os.fdopen(channel, "rb", buffering=0) as answer:
        while True:
            part = answer.read(1 << 16)
            if part:
                parts.append(part)
                continue
            if part == b"":
                os.waitpid(process, 0)
                return b"".join(parts)
            if time.monotonic() > until:
                os.killpg(process, signal.SIGKILL)
                os.waitpid(process, 0)
                return None
            time.sleep(_POLL_SECONDS)


def _tried(items: Mapping[str, pytest.Item], asked: dict[str, Any]) -> dict[str, Any]:
    try:
        change_functions(asked["path"], asked["before"], asked["after"])
    except RunsOnImportError as error:
        return {"outcome": "import", "error": str(error)}
    except Exception as error:  # whatever it is, no test has run
        return {"outcome": "broken", "error": repr(error)}
    chosen = [item for name in asked["tests"] for item in _named(items, name)]
    for item, after in pairwise([*chosen, None]):
        assert item is not None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        if asked["until_first_failure"] and any(outcome == "failed" for _, _, outcome, _ in _seen):
            break
    return {"outcome": "done", "error": ""}


def _named(items: Mapping[str, pytest.Item], name: str) -> list[pytest.Item]:
    """The test of that name, or all of its cases."""
    if name in items:
        return [items[name]]
    return [item for test, item in items.items() if test.startswith((f"{name}[", f"{name}::"))]
