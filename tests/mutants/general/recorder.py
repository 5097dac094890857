"""A pytest plugin inside a copy: writes down which tests run which line of rpdp, and how long each test takes."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import coverage
import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

FILE = "RPDP_MUTANTS_RECORD"

_coverage = coverage.Coverage(data_file=None, include=["*/src/rpdp/*"], config_file=False)
_seconds: dict[str, float] = defaultdict(float)
_failed: set[str] = set()


def pytest_configure() -> None:
    _coverage.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    _coverage.switch_context(item.nodeid)
    try:
        return (yield)
    finally:
        _coverage.switch_context("")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += report.duration
    if not report.passed:
        _failed.add(report.nodeid)


def pytest_sessionfinish() -> None:
    _coverage.stop()
    data = _coverage.get_data()
    tests = sorted(set(_seconds) - _failed)
    number = {test: index for index, test in enumerate(tests)}
    lines = {
        Path(file).as_posix().partition("/src/rpdp/")[2]: {
            str(line): sorted(number[test] for test in contexts if test in number)
            for line, contexts in data.contexts_by_lineno(file).items()
        }
        for file in data.measured_files()
    }
    facts = {"tests": tests, "seconds": [round(_seconds[test], 3) for test in tests], "lines": lines}
    Path(os.environ[FILE]).write_text(json.dumps(facts), encoding="utf-8")
