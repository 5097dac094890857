"""Killed with SIGKILL at every labelled point and at any time: nothing is lost, nothing happens twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rpdp.ledger.store import crash_points

ROOT = Path(__file__).parents[2]


def killed(directory: Path, kills: int, *more: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.ledger.crash_tool", str(directory), "--kills", str(kills), *more]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert isinstance(result, dict)
    return result


def test_killed_at_every_point(memory: Path) -> None:
    result = killed(memory, 34, "--random", "0.2")
    assert result["problems"] == []
    assert result["kills"] >= 34
    assert set(crash_points.LABELS) <= set(result["by_point"])


def test_a_silo_that_releases_before_it_stores_is_caught(memory: Path) -> None:
    """The control: with the same kills, the order of store and release is what keeps the promise."""
    result = killed(memory, 3, "--careless", "--random", "0", "--points", "store: begun")
    assert any("released without a charge, or twice" in problem for problem in result["problems"])


@pytest.mark.slow
def test_killed_a_thousand_times(memory: Path) -> None:
    result = killed(memory, 1200, "--seed", "2")
    assert result["problems"] == []
    assert result["kills"] >= 1200
    assert result["runs"] >= 300
    assert min(result["by_point"][label] for label in crash_points.LABELS) >= 20
