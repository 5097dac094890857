"""Eight processes wait for one ledger, cancel and crash: whatever the order, no sum exceeds a lifetime budget."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from rpdp.ledger import Ledger
from rpdp.ledger.store import crash_points
from tests.ledger import small
from tests.ledger.small import DELTA, LIFETIME_DELTA

ROOT = Path(__file__).parents[2]
PROCESSES, SESSIONS, RECORDS = 8, 3, 4
WISH = 0.15
"""The part of ε that every session asks for; all together ask for more than three times what there is."""

PATIENCE = 300.0
LABELS = [label for label in crash_points.LABELS if label.split(":")[0] in ("reserve", "charge", "cancel", "store")]


def session(path: Path, run: str, dice: random.Random) -> None:
    """Wait for the ledger; hold what one gets; then begin, cancel, leave it, or let it expire. Many die on the way."""
    table = small.budgets(RECORDS, epsilon=1.0)
    crash = dice.choice(LABELS) if dice.random() < 0.4 else None
    crash_points.reached = lambda label: os.kill(os.getpid(), signal.SIGKILL) if label == crash else None
    with Ledger.open(path, wait=PATIENCE) as ledger:
        if run in {one.run for one in ledger.status().runs}:
            return  # it died after this
        left = ledger.left(table, LIFETIME_DELTA)
        assert left.delta is not None
        cost = np.minimum(left.epsilon, WISH)
        drawn = (cost > 0.0) & (left.delta >= DELTA)
        made = small.by_hand(small.public(), table.ids, np.where(drawn, cost, 0.0), drawn * 0.5)
        end = dice.choice(["begin", "begin", "cancel", "leave", "expire"])
        ledger.reserve(run, made, time.time() + (0.05 if end == "expire" else 3600.0))
        if end == "cancel":
            ledger.cancel(run)
        if end == "begin":
            for number in (1, 2):
                if ledger.charge(run, number, lambda: dice.random() < 0.5).joined:
                    ledger.store(run, number, b"update")


def compete(path: Path, number: int) -> int:
    """The sessions of one process, each in a fork that may die; returns how many did."""
    died = 0
    for count in range(SESSIONS):
        child = os.fork()
        if child == 0:
            try:
                session(path, f"p{number}-{count}", random.Random(f"{number} {count}"))  # noqa: S311 a test
            except BaseException as error:
                sys.stderr.write(f"{type(error).__name__}: {error}\n")
                os._exit(1)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, -signal.SIGKILL), f"session {count} of process {number} failed"
        died += code != 0
    return died


def compete_all(path: Path) -> None:
    """Eight processes at once, and a look at every account meanwhile; prints what happened."""
    logging.basicConfig(format="waited: %(message)s")
    children = []
    for number in range(PROCESSES):
        child = os.fork()
        if child == 0:
            os._exit(100 + compete(path, number))
        children.append(child)
    looks, codes = 0, list[int]()
    while children:
        look(path)
        looks += 1
        done = {child: os.waitpid(child, os.WNOHANG) for child in children}
        codes += [os.waitstatus_to_exitcode(status) for found, status in done.values() if found]
        children = [child for child, (found, _) in done.items() if not found]
        time.sleep(0.25)
    assert all(code >= 100 for code in codes)
    sys.stdout.write(json.dumps({"died": sum(codes) - 100 * PROCESSES, "looks": looks}))


def look(path: Path) -> dict[str, dict[str, float]]:
    """What every record has booked or held, by run; never more than it allows, whenever somebody looks."""
    found = {}
    with Ledger.read(path) as ledger, ledger.reading():
        for number in range(RECORDS):
            explained = ledger.explain(f"r{number}")
            counted = {
                one.run: one.epsilon for one in explained.runs if one.q > 0.0 and one.state in ("held", "committed")
            }
            assert sum(counted.values()) <= explained.epsilon * (1.0 + 1e-12)
            assert explained.spent_epsilon <= explained.epsilon
            assert explained.left_epsilon == pytest.approx(explained.epsilon - sum(counted.values()), abs=1e-9)
            found[f"r{number}"] = counted
    return found


def test_eight_processes_that_cancel_and_crash_never_spend_more_than_there_is(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    small.make(tmp_path, small.budgets(RECORDS, epsilon=1.0)).close()
    code = "import sys; from pathlib import Path; from tests.ledger.test_processes import compete_all; "
    command = [sys.executable, "-c", f"{code} compete_all(Path(sys.argv[1]))", str(path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["died"] > 3
    assert told["looks"] > 3
    assert "waited: " in done.stderr  # they did get into each other's way
    assert "is being written by process" in done.stderr
    Ledger.open(path).close()  # books what has expired
    with Ledger.read(path) as ledger:
        findings = ledger.verify().findings
        assert {finding.check for finding in findings} <= {"prices"}  # which are made up here
        states = {one.run: one.state for one in ledger.status().runs}
    assert {"held", "committed", "cancelled", "expired"} == set(states.values())
    for counted in look(path).values():
        assert set(counted) <= {run for run, state in states.items() if state in ("held", "committed")}
