"""A pytest plugin inside the copy: writes down what every test did, and which rpdp was tested."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

FILE = "RPDP_MUTANTS_WITNESS"

_seen: list[dict[str, Any]] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    error = None if call.excinfo is None or not report.failed else call.excinfo.typename
    _seen.append({"test": item.nodeid, "when": report.when, "outcome": report.outcome, "error": error})
    return report


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _seen.append({"test": report.nodeid, "when": "collect", "outcome": "failed", "error": "collection"})


def pytest_sessionfinish() -> None:
    tested = find_spec("rpdp")  # without importing it: a mutant may not let itself be imported
    told = {"rpdp": None if tested is None else tested.origin, "seen": _seen}
    Path(os.environ[FILE]).write_text(json.dumps(told), encoding="utf-8")
