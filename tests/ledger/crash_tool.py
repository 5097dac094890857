"""A test tool: silo sessions that are killed with SIGKILL, at labelled points or at any time, and what must hold after.

    python -m tests.ledger.crash_tool DIRECTORY --kills 1000 --seed 1

One process forks a child per session. A child opens the ledger, goes on with its runs where they stand, and is killed;
the next one takes over. What leaves the silo (answers and updates) is written to a log as it happens: the log is the
server's view. When all runs of a ledger are done it is verified against that log, and a new ledger begins. Prints one
JSON object.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from rpdp.ledger import Ledger
from rpdp.ledger.inspection import verification
from rpdp.ledger.store import crash_points
from tests.ledger import small

if TYPE_CHECKING:
    from collections.abc import Callable

    from rpdp import BudgetTable

RUNS = 3
ROUNDS = 4
RANDOM = "at a random time"
_SLOWEST = 0.06
"""Seconds: a session lasts about so long."""


def kill_at(label: str, count: int) -> Callable[[str], None]:
    """A hook that kills this process when a label is reached for the `count`th time."""
    left = [count]

    def reached(found: str) -> None:
        if found == label:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return reached


class Log:
    """What the server sees, on the disk as it happens."""

    def __init__(self, directory: Path) -> None:
        self._file = os.open(directory / "server.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, *words: object) -> None:
        os.write(self._file, (" ".join(str(word) for word in words) + "\n").encode())


def session(directory: Path) -> None:
    """One life of a silo: go on with everything that is not done."""
    table, log = small.budgets(4), Log(directory)
    path = directory / "ledger.db"
    ledger = Ledger.open(path) if path.exists() else small.make(directory, table)
    for run in range(RUNS):
        name = f"run-{run}"
        if name not in {status.run for status in ledger.status().runs}:
            left = ledger.left(table, small.LIFETIME_DELTA)
            cost = left.epsilon / (RUNS + 1 - run)
            ledger.reserve(name, small.by_hand(small.public(ROUNDS), table.ids, cost, (left.epsilon > 0) * 0.5), None)
        else:
            ledger.resume(name, table.ids)
        for number in range(1, ROUNDS + 1):
            answer(ledger, log, name, number)
        aside(ledger, table, f"aside-{run}")
        if run == 1:
            ledger.withdraw(["r0"])
            ledger.prune()
    ledger.close()


def aside(ledger: Ledger, table: BudgetTable, name: str) -> None:
    """A run that is held and cancelled, however far an earlier life has come with it."""
    if name not in {status.run for status in ledger.status().runs}:
        left = ledger.left(table, small.LIFETIME_DELTA)
        plan = small.by_hand(small.public(ROUNDS), table.ids, left.epsilon / 2, (left.epsilon > 0) * 0.5)
        ledger.reserve(name, plan, None)
    ledger.cancel(name)


CARELESS = False
"""The control: release first, store later."""


def answer(ledger: Ledger, log: Log, name: str, number: int) -> None:
    """A silo's answer to an announcement, as `Silo.answer` gives it; every time with fresh randomness."""
    charge = ledger.charge(name, number, lambda: os.urandom(1)[0] < 160)
    log.write("answer", name, number, int(charge.joined))
    payload = ledger.stored(name, number)
    if charge.is_new and charge.joined:
        payload = os.urandom(200)
        if CARELESS:
            log.write("update", name, number, hashlib.sha256(payload).hexdigest())
        ledger.store(name, number, payload)
    if payload is not None:
        log.write("update", name, number, hashlib.sha256(payload).hexdigest())


def problems(directory: Path) -> list[str]:
    """What is wrong with a finished ledger, held against what the server saw."""
    found: list[str] = []
    answers: dict[tuple[str, int], set[str]] = {}
    updates: dict[tuple[str, int], set[str]] = {}
    for line in (directory / "server.log").read_text().splitlines():
        kind, name, round_number, what = line.split()
        {"answer": answers, "update": updates}[kind].setdefault((name, int(round_number)), set()).add(what)
    with Ledger.read(directory / "ledger.db") as ledger:
        found += [f"{finding.check}: {finding.problem}" for finding in ledger.verify().findings]
        status = {run.run: run for run in ledger.status().runs}
        for (run, number), seen in answers.items():
            if seen != {str(int(number in status[run].joined))}:
                found.append(f"{run} {number}: the server saw {seen}")
        released = {(event.run, event.round): event.facts["sha256"] for event in ledger.chain.events("release")}
        for (run, number), hashes in updates.items():
            if hashes != {released.get((run, number))}:  # `verify` holds the hash against the bytes
                found.append(f"{run} {number}: released without a charge, or twice")
        if any(ledger.stored(run, number) is not None for run, number in released if run in ("run-0", "run-1")):
            found.append("an update that was removed is back")
        ends = [(run.state, run.announced) for name, run in sorted(status.items())]
        if ends != [("cancelled", 0)] * RUNS + [("committed", ROUNDS)] * RUNS:  # aside-0 …, run-0 …
            found.append(f"a run did not come to its end, or one that was cancelled is back: {ends}")
        if not ledger.explain("r0").withdrawn:
            found.append("a withdrawal was lost")
        charged = [(event.run, event.round) for event in ledger.chain.events("charge")]
        if len(set(charged)) != len(charged):
            found.append("a round was charged twice")
    return found


def one_session(directory: Path, label: str, count: int, delay: float) -> bool:
    """Whether the child was killed; anything else than an orderly end is an error."""
    child = os.fork()
    if child == 0:
        try:
            if label != RANDOM:
                setattr(crash_points, "reached", kill_at(label, count))  # noqa: B010
            session(directory)
        except BaseException as error:
            sys.stderr.write(f"{label} {count}: {type(error).__name__}: {error}\n")
            os._exit(1)
        os._exit(0)
    if label == RANDOM:
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    if os.WEXITSTATUS(status):
        raise SystemExit("a session failed")
    return False


def finish(directory: Path) -> list[str]:
    one_session(directory, "", 0, 0.0)
    return problems(directory)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--random", type=float, default=0.4, help="how many kills are at a random time")
    parser.add_argument("--points", nargs="*", default=crash_points.LABELS, help="where to kill")
    parser.add_argument("--careless", action="store_true", help="the control: release first, store later")
    options = parser.parse_args()
    global CARELESS
    CARELESS = options.careless
    setattr(verification, "reprice", lambda ledger, progress: iter(()))  # noqa: B010  # costs are made up here
    chance = random.Random(options.seed)  # noqa: S311
    labels, kills, ledgers, found = options.points, Counter[str](), 0, list[str]()
    while sum(kills.values()) < options.kills:
        directory = options.directory / f"{ledgers:04d}"
        directory.mkdir()
        for _ in range(chance.randint(2, 8)):
            # A creation is reached only where there is no ledger yet: take it there, and do not wait for it elsewhere.
            creates = {label: label.startswith("create") for label in labels}
            reachable = [label for label in labels if not (creates[label] and (directory / "ledger.db").exists())]
            rarest = min(reachable, key=lambda label: (kills[label], not creates[label], chance.random()))
            label = RANDOM if chance.random() < options.random else rarest
            count = chance.choice([1, 1, 1, 2, 3, 5])
            if one_session(directory, label, count, chance.uniform(0.0, _SLOWEST)):
                kills[label] += 1
        found += finish(directory)
        ledgers += 1
    result = {"kills": sum(kills.values()), "by_point": kills, "ledgers": ledgers, "runs": RUNS * ledgers}
    sys.stdout.write(json.dumps({**result, "problems": found}) + "\n")


if __name__ == "__main__":
    main()
