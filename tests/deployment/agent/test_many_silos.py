"""Many silos over many rounds, with failures in every one of them: ledgers that do not drift, memory that stays.

Agents and server are in this process; what travels between them are the real frames, and every silo has a production
ledger on disk.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from rpdp.federation.coordinator import Coordinator, RoundSettings
from rpdp.federation.frames import Frame
from rpdp.ledger import Ledger
from tests.deployment.agent.links import Local
from tests.deployment.agent.scene import LIFETIME_DELTA, SIZE, Making, opened, public_plan
from tests.federation.world import make_records

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rpdp import PublicPlan
    from rpdp.federation import RoundLog, RunResult

FAILURES = ("raises", "unreachable", "killed")


class Killed(BaseException):
    """The agent's process died while it was training."""


class Failing(Local):
    """Silos on their ledgers; in every round, each fails with some probability, in one of three ways."""

    def __init__(self, folder: Path, making: Mapping[str, Making], chance: float) -> None:
        super().__init__({})
        self._action_book, self._making, self._chance = folder, making, chance
        self._random = random.Random(5)  # noqa: S311  # which silos fail in the test
        self._opened: dict[str, ExitStack] = {}
        self.failed: Counter[str] = Counter()
        self.announced: dict[str, set[int]] = {name: set() for name in making}
        self.received: dict[str, set[int]] = {name: set() for name in making}
        for name in making:
            self.start(name)

    def start(self, name: str) -> None:
        self._opened[name] = ExitStack()
        self.agents[name] = self._opened[name].enter_context(opened(self._action_book, self._making[name]))

    def close(self) -> None:
        for stack in self._opened.values():
            stack.close()

    def answered(self, address: str, request: Frame, answer: Callable[[], Frame]) -> Frame:
        if request.kind != "round":
            return answer()
        fails = self._random.random() < self._chance
        how = self._random.choice(FAILURES) if fails else ""
        self.failed[how] += 1
        if how == "unreachable":
            return Frame({"kind": "unreachable"})
        given = self._broken(address, how, answer) if how else answer()
        if given.kind != "refused":  # also by an agent that was killed, after the charge
            self.announced[address].add(request.facts["round"])
        if given.kind == "update":
            self.received[address].add(request.facts["round"])
        return given

    def _broken(self, address: str, how: str, answer: Callable[[], Frame]) -> Frame:
        """The answer of an agent whose training fails, if it comes to that; a killed one is started again."""
        agent = self.agents[address]
        assert agent is not None

        def fail(*_: object, **__: object) -> None:
            raise Killed if how == "killed" else RuntimeError("out of memory")

        agent.silo.compute = fail  # type: ignore[method-assign, assignment]
        try:
            return answer()
        except Killed:
            self._opened[address].close()
            self.start(address)
            return Frame({"kind": "unreachable"})
        finally:
            vars(agent.silo).pop("compute")


@dataclass
class Watch:
    """Memory and time over the rounds."""

    seconds: list[float] = field(default_factory=list)
    resident: list[float] = field(default_factory=list)

    def __call__(self, log: RoundLog) -> None:
        self.seconds.append(log.seconds)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        self.resident.append(pages * 4096 / 2**20)


def federation(folder: Path, count: int, public: PublicPlan, chance: float) -> tuple[Failing, RunResult, Watch]:
    names = [f"silo{index:02d}" for index in range(count)]
    making = {name: Making(public, name, records=make_records(20, index)) for index, name in enumerate(names)}
    link, watch = Failing(folder, making, chance), Watch()
    try:
        settings = RoundSettings(deadline=600.0, patience=600.0)
        runner = Coordinator(
            "run", public, torch.zeros(SIZE), names, link, settings,
            checkpoint=folder / "checkpoint", heads=folder / "heads.json",
        )  # fmt: skip
        result = runner.go(watch)
    finally:
        link.close()
    return link, result, watch


def check_ledgers(folder: Path, link: Failing, result: RunResult) -> None:
    """Every ledger says exactly what happened, and no record is over its budget."""
    averaged = {name: {log.round for log in result.rounds if name in log.joined} for name in link.announced}
    for name, making in link._making.items():
        with Ledger.read(folder / f"{name}.db") as ledger:
            assert ledger.verify().findings == ()
            (status,) = ledger.status().runs
            charged = [event.round for event in ledger.chain.events("charge", run="run")]
            assert charged == sorted(link.announced[name])  # each round that reached it, once
            assert set(status.released) == link.received[name] == averaged[name]
            assert set(status.released) <= set(status.joined)
            assert len(status.joined) <= (result.public.schedule.participations or status.rounds)
            left = ledger.left(making.budgets, LIFETIME_DELTA)
            assert (left.amount >= 0.0).all()
            for record in ("r0", "r1", "r19"):
                story = ledger.explain(record)
                assert story.share_used <= 1.0 + 1e-9


def figures(link: Failing, result: RunResult, watch: Watch) -> str:
    middle = sorted(watch.seconds)[len(watch.seconds) // 2]
    updates = sum(len(log.joined) for log in result.rounds)
    failed = ", ".join(f"{link.failed[how]} {how}" for how in FAILURES)
    after = min(20, len(watch.resident) - 1)
    return (
        f"\n{len(link.announced)} silos × {len(result.rounds)} rounds: {updates:,} updates; {failed}; a round takes "
        f"{middle:.3f} s in the middle, {max(watch.seconds):.3f} s at most; memory {watch.resident[0]:.0f} MB after "
        f"the first round, {watch.resident[after]:.0f} MB after round {after + 1}, {watch.resident[-1]:.0f} MB after "
        "the last\n"
    )


def test_a_few_silos_with_many_failures(tmp_path: Path) -> None:
    public = public_plan(15, 2, participations=10, noise_multiplier=2.0)
    began = time.monotonic()
    link, result, watch = federation(tmp_path, 6, public, 0.2)
    check_ledgers(tmp_path, link, result)
    assert all(link.failed[how] for how in FAILURES)  # all of them happened
    assert len(result.rounds) == 15
    assert time.monotonic() - began < 120.0
    sys.stdout.write(figures(link, result, watch))


def test_the_ledgers_check_would_see_drift(tmp_path: Path) -> None:
    """The control: a charge that the server never asked for, or an update that it got and the ledger does not know."""
    public = public_plan(4, 2, participation=1.0, noise_multiplier=2.0)
    link, result, _ = federation(tmp_path, 2, public, 0.0)
    check_ledgers(tmp_path, link, result)
    link.received["silo01"].discard(2)
    with pytest.raises(AssertionError):
        check_ledgers(tmp_path, link, result)
    link.received["silo01"].add(2)
    link.announced["silo00"].add(5)
    with pytest.raises(AssertionError):
        check_ledgers(tmp_path, link, result)


@pytest.mark.slow
def test_fifty_silos_over_two_hundred_rounds(tmp_path: Path) -> None:
    public = public_plan(200, 2, participations=100, noise_multiplier=4.0)
    link, result, watch = federation(tmp_path, 50, public, 0.05)
    sys.stdout.write(figures(link, result, watch))
    check_ledgers(tmp_path, link, result)
    assert len(result.rounds) == 200
    assert bool(result.values.isfinite().all())
    grown = watch.resident[-1] - watch.resident[20]
    assert grown < 50.0, f"{grown:.0f} MB in 180 rounds"
    early, late = np.median(watch.seconds[20:60]), np.median(watch.seconds[-40:])
    assert late < 3.0 * early  # rounds do not become slower as ledgers grow
