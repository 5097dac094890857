"""Killed with SIGKILL at every labelled point and at any time: nothing is lost, nothing happens twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rpdp.ledger.store import crash_points
from tests.ledger import small

ROOT = Path(__file__).parents[2]


def killed(directory: Path, kills: int, *more: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.ledger.crash_tool", str(directory), "--kills", str(kills), *more]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert isinstance(result, dict)
    return result


def test_killed_at_every_point(memory: Path) -> None:
    result = killed(memory, 50, "--random", "0.2")
    assert result["problems"] == []
    assert result["kills"] >= 50
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


def test_every_point_is_passed_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is killed at a point that is never reached."""
    passed: list[str] = []
    monkeypatch.setattr(crash_points, "reached", passed.append)

    def points() -> list[str]:
        found = passed.copy()
        passed.clear()
        return found

    table = small.budgets()
    ledger = small.make(tmp_path, table)
    assert points() == ["create: built", "create: in place"]
    for run in ("run", "other"):
        ledger.reserve(run, small.by_hand(small.public(), table.ids, 0.1), None)
        assert points() == ["reserve: begun", "reserve: booked", "reserve: committed"]
    ledger.charge("run", 1, small.heads)
    charged = ["charge: begun", "charge: coin drawn", "charge: marked", "charge: committed", "charge: head noted"]
    assert points() == charged
    ledger.store("run", 1, b"update")
    assert points() == ["store: begun", "store: written", "store: committed"]
    ledger.cancel("other")
    assert points() == ["cancel: begun", "cancel: booked", "cancel: committed"]
    ledger.prune("run")
    assert points() == ["prune: begun", "prune: written", "prune: committed"]
    ledger.withdraw(["r0"])
    assert points() == ["inbox: begun", "inbox: in place"]
    ledger.left(table, small.LIFETIME_DELTA)
    assert points() == ["actions: booked"]
    ledger.close()
    assert points() == ["actions: removed"]
