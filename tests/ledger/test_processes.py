"""Eight processes against one lifetime budget: whatever the order, the sum stays within it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from rpdp.ledger import Ledger, LedgerInUseError
from tests.ledger import small

ROOT = Path(__file__).parents[2]
PROCESSES = 8
WISH = 0.09
"""The part of ε that every session asks for; all together ask for three times what there is."""

SESSIONS = 4


def compete(path: Path, name: str) -> None:
    """One process: open, retrying while another holds it; reserve what it gets, charge, close; again."""
    table = small.budgets(5, epsilon=1.0)
    waited = 0
    for session in range(SESSIONS):
        while True:
            try:
                ledger = Ledger.open(path)
                break
            except LedgerInUseError:
                waited += 1
                time.sleep(0.005)
        with ledger:
            left = ledger.left(table, small.LIFETIME_DELTA)
            assert left.delta is not None
            cost = np.minimum(left.epsilon, WISH)
            drawn = (cost > 0.0) & (left.delta >= 1e-5)
            made = small.by_hand(small.public(delta=1e-5), table.ids, np.where(drawn, cost, 0.0), drawn * 0.5)
            run = f"{name}-{session}"
            ledger.reserve(run, made, None)
            for number in (1, 2):
                assert ledger.charge(run, number, lambda: os.urandom(1)[0] < 128).is_new
    sys.stdout.write(f"{waited}\n")
    sys.stdout.flush()


def compete_all(path: Path) -> None:
    """Eight forked processes; ends with 1 if any of them failed."""
    children = []
    for number in range(PROCESSES):
        child = os.fork()
        if child == 0:
            try:
                compete(path, f"p{number}")
            except BaseException as error:
                sys.stderr.write(f"{type(error).__name__}: {error}\n")
                os._exit(1)
            os._exit(0)
        children.append(child)
    raise SystemExit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))


def test_eight_processes_never_spend_more_than_there_is(tmp_path: Path) -> None:
    small.make(tmp_path, small.budgets(5, epsilon=1.0)).close()
    code = "import sys; from pathlib import Path; from tests.ledger.test_processes import compete_all; "
    command = [sys.executable, "-c", f"{code} compete_all(Path(sys.argv[1]))", str(tmp_path / "ledger.db")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sum(int(line) for line in done.stdout.split()) > 0  # they did get into each other's way
    with Ledger.read(tmp_path / "ledger.db") as ledger:
        result = ledger.verify()
        assert {finding.check for finding in result.findings} <= {"prices"}  # which are made up here
        assert len(ledger.status().runs) == PROCESSES * SESSIONS
        for number in range(5):
            explained = ledger.explain(f"r{number}")
            booked = [run.epsilon for run in explained.runs if run.q > 0.0]
            assert sum(booked) == pytest.approx(min(explained.epsilon, PROCESSES * SESSIONS * WISH), rel=1e-9)
            assert explained.spent_epsilon <= explained.epsilon
        assert explained.left_epsilon == 0.0
