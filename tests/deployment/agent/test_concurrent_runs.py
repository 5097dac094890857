"""One agent carries several runs over one ledger: each has its own plan, coins and noise, and they take turns."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from rpdp.deployment.agent.release_timing import Timing
from rpdp.deployment.agent.request_decoding import decode_announcement
from rpdp.errors import PrivacyRefusal, Reason
from rpdp.federation.coordinator import Coordinator, RoundSettings
from rpdp.federation.heads import read_heads
from rpdp.ledger.store import crash_points
from rpdp.ledger.store.chain import PublicHead
from tests.deployment.agent.federations import PUBLIC, SEED, making, start
from tests.deployment.agent.links import Local
from tests.deployment.agent.scene import (
    LIFETIME_DELTA,
    Making,
    admission,
    admitted,
    announcement,
    cancellation,
    head_of,
    in_memory,
    opened,
    policy_of,
    public_plan,
    reason,
    status,
    told,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from rpdp import PublicPlan
    from rpdp.deployment.agent.agent import Agent
    from rpdp.federation.frames import Frame
    from rpdp.federation.run_result import RoundLog

FIRST = public_plan(6, participation=0.5)
SECOND = replace(FIRST, normaliser=FIRST.normaliser + 1.0)
RUNS = {"one": FIRST, "two": SECOND}
MAKING = Making(FIRST, policy=policy_of(FIRST, max_runs=6, max_share_per_run=0.25))


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """An agent that has admitted two runs of two servers."""
    with admitted(tmp_path, MAKING, RUNS) as made:
        yield made


def ask(agent: Agent, run: str, number: int, value: float = 0.0, public: PublicPlan | None = None) -> Frame:
    return told(agent, announcement(public or RUNS[run], number, value, run=run, head=head_of(agent)))


def left(agent: Agent) -> NDArray[np.float64]:
    return agent.silo.account.left(agent.silo.budgets, LIFETIME_DELTA).amount


def test_rounds_of_two_runs_take_turns(agent: Agent) -> None:
    answers = {(run, number): ask(agent, run, number) for number in range(1, 7) for run in RUNS}
    for run in RUNS:
        one = status(agent, run)
        assert one.announced == 6
        assert {number for number in range(1, 7) if answers[run, number].kind == "update"} == set(one.joined)
        assert one.released == one.joined
    for (run, number), first in answers.items():  # asked again: each run its own bytes
        again = ask(agent, run, number, 2.0)
        assert (again.kind, again.payload) == (first.kind, first.payload)
    both = [answers[run, number].payload for run, number in answers if answers[run, number].kind == "update"]
    assert len(set(both)) == len(both)  # fresh noise everywhere


def test_a_run_is_charged_for_its_own_rounds_alone(agent: Agent) -> None:
    for number in (1, 2, 3):
        ask(agent, "one", number)
    assert (status(agent, "one").announced, status(agent, "two").announced) == (3, 0)
    assert status(agent, "two").state == "held"
    assert told(agent, cancellation("two", head_of(agent))).kind == "cancelled"
    assert reason(ask(agent, "two", 1)) == "run"
    ask(agent, "one", 4)
    assert status(agent, "one").announced == 4


@pytest.mark.parametrize(("run", "other"), [("one", "two"), ("two", "one")])
def test_the_plan_of_another_run_is_refused(agent: Agent, run: str, other: str) -> None:
    for value in (0.0, 1.0):
        assert reason(ask(agent, run, 1, value, public=RUNS[other])) == "plan"
    assert reason(told(agent, admission(RUNS[other], run, head_of(agent)))) == "plan"
    assert {status(agent, name).announced for name in RUNS} == {0}


def test_what_a_held_run_takes_is_not_there_for_the_next(tmp_path: Path) -> None:
    """Four runs that ask for all they may have hold what there is; the fifth gets nothing."""
    with opened(tmp_path, replace(MAKING, max_concurrent_runs=6)) as agent:
        before = left(agent)
        shares = []
        for number in range(4):
            assert told(agent, admission(FIRST, f"run {number}")).kind == "admitted"
            shares.append(1.0 - left(agent) / before)
        assert (np.diff([*np.transpose(shares)[0]]) > 0.0).all()
        for number in range(4):
            ask(agent, f"run {number}", 1, public=FIRST)
        told(agent, admission(FIRST, "fifth", head_of(agent)))
        assert (left(agent) >= 0.0).all()
        ledger = agent.silo.account
        for record in ("r0", "r1", "r2"):
            assert ledger.explain(record).share_used <= 1.0  # type: ignore[attr-defined]
        assert ledger.verify().is_good  # type: ignore[attr-defined]


def test_no_more_runs_are_carried_than_the_silo_file_says(tmp_path: Path) -> None:
    with opened(tmp_path, replace(MAKING, max_concurrent_runs=2)) as agent:
        for run, public in RUNS.items():
            assert told(agent, admission(public, run)).kind == "admitted"
        assert reason(told(agent, admission(FIRST, "three"))) == "other-run"
        assert told(agent, admission(SECOND, "two", head_of(agent))).kind == "admitted"  # it has its place
        for number in range(1, 7):
            ask(agent, "one", number)
        assert told(agent, admission(FIRST, "three")).kind == "admitted"  # one has no rounds left
        assert reason(told(agent, admission(FIRST, "four"))) == "other-run"
        assert told(agent, cancellation("two", head_of(agent))).kind == "cancelled"
        assert told(agent, admission(FIRST, "four")).kind == "admitted"
        known = head_of(agent)
    with opened(tmp_path, replace(MAKING, max_concurrent_runs=1)) as agent:  # a lower limit ends no run
        for run in ("three", "four"):
            assert told(agent, admission(FIRST, run, known)).kind == "admitted"
        assert reason(told(agent, admission(FIRST, "five", known))) == "other-run"


def test_memory_holds_the_unfinished_runs_and_one_more_at_most(tmp_path: Path) -> None:
    short = public_plan(1)
    limits = policy_of(short, max_runs=20, max_share_per_run=0.05)
    with opened(tmp_path, Making(short, policy=limits, max_concurrent_runs=2)) as agent:
        for number in range(8):
            run = f"run {number}"
            assert told(agent, admission(short, run)).kind == "admitted"
            ask(agent, run, 1, public=short)
            assert agent.silo.runs == (run,)
        for number in range(4):  # a server that asks for finished runs again brings back one at a time
            run = f"run {number}"
            assert reason(ask(agent, run, 1, public=short)) == "run"
            assert told(agent, admission(short, run)).kind == "admitted"
            assert agent.silo.runs == (run,)
            assert ask(agent, run, 1, 3.0, public=short).kind == "update"  # the stored bytes
        assert set(agent._turns._last) <= {"", "run 3"}


def test_several_runs_go_on_after_a_restart(tmp_path: Path) -> None:
    with opened(tmp_path, MAKING) as agent:
        for run, public in RUNS.items():
            told(agent, admission(public, run))
        asked = [("one", 1), ("two", 1), ("one", 2), ("one", 3)]
        answers = {(run, number): ask(agent, run, number) for run, number in asked}
        known = head_of(agent)
    with opened(tmp_path, MAKING) as agent:
        assert reason(ask(agent, "one", 1)) == "run"
        assert reason(told(agent, admission(FIRST, "one"))) == "head"
        assert told(agent, admission(SECOND, "two", known)).kind == "admitted"
        # The process has admitted one of the two runs: the server of the other must still show what it knows.
        assert reason(told(agent, admission(FIRST, "one"))) == "head"
        assert reason(told(agent, admission(FIRST, "three"))) == "head"
        assert told(agent, admission(FIRST, "one", known)).kind == "admitted"
        for (run, number), first in answers.items():
            again = ask(agent, run, number, 1.0)
            assert (again.kind, again.payload) == (first.kind, first.payload)
        assert (status(agent, "one").announced, status(agent, "two").announced) == (3, 1)
        ask(agent, "one", 4)
        ask(agent, "two", 2)
        assert (status(agent, "one").announced, status(agent, "two").announced) == (4, 2)


def test_a_hold_that_expires_while_another_run_is_trained_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, MAKING) as agent:
        clock = [1e9]
        monkeypatch.setattr(agent.silo.account, "clock", lambda: clock[0])
        told(agent, admission(FIRST, "one", hold=100))
        told(agent, admission(SECOND, "two", hold=100))
        ask(agent, "one", 1)
        clock[0] += 100
        ask(agent, "one", 2)
        assert reason(ask(agent, "two", 1)) == "cancelled"
        assert status(agent, "two").state == "expired"
        assert status(agent, "one").announced == 2


def test_a_withdrawal_counts_in_every_run(tmp_path: Path) -> None:
    drawn = []
    with opened(tmp_path, MAKING) as agent:
        for run, public in RUNS.items():
            told(agent, admission(public, run))
        agent.silo.account.withdraw(["r1"], reason="asked to")  # type: ignore[attr-defined]
        for run in RUNS:
            ask(agent, run, 1)
            drawn.append(agent.silo.account.switched_off().tolist())
    assert drawn == [[1], [1]]


# In the silo


def test_an_update_of_one_run_is_not_stored_for_another() -> None:
    agent = in_memory(Making(public_plan(), seed=3, q=0.5))
    silo = agent.silo
    agent.close()
    silo.trainer = None
    plan = public_plan()
    for run in ("one", "two"):
        told(agent, admission(plan, run))
    sent = {}
    for run in ("one", "two"):
        frame = announcement(plan, 1, run=run)
        sent[run] = decode_announcement(frame.facts, frame.payload, silo.announced_like(run))
        assert silo.begin(sent[run]) is True
    trained = silo.train(sent["one"])
    with pytest.raises(PrivacyRefusal, match="is not one that this silo was training"):
        silo.finish(replace(trained, run="two"))
    with pytest.raises(PrivacyRefusal) as refused:
        silo.finish(replace(trained, run="three"))
    assert refused.value.reason is Reason.RUN
    assert silo.finish(trained) is trained.update
    assert (status(agent, "one").released, status(agent, "two").released) == ((1,), ())


# One server, several runs

STUDIES = 4


def server(folder: Path, link: Local, run: str) -> Coordinator:
    """A server's process for one run; all of them share the file of heads."""
    settings = RoundSettings(deadline=60.0, patience=60.0, seed=SEED)
    checkpoint = folder / f"{run} checkpoint"
    return Coordinator(run, PUBLIC, start(), ["a"], link, settings, checkpoint=checkpoint, heads=folder / "heads.json")


def test_a_server_shows_the_newest_head_that_any_of_its_runs_has_seen(tmp_path: Path) -> None:
    """A ledger put back to what this run has seen, but another run of the server has seen more, is refused."""
    made, home, backup = making(PUBLIC, "a"), tmp_path / "home", tmp_path / "backup"
    home.mkdir()
    kept = ExitStack()
    with kept:
        link = Local({"at a": kept.enter_context(opened(home, made))})

        def put_back(log: RoundLog) -> None:
            if log.round == 2:
                kept.close()
                shutil.copytree(home, backup)
                link.agents["at a"] = kept.enter_context(opened(home, made))
                server(tmp_path, link, "two").go()
                kept.close()
                link.agents["at a"] = kept.enter_context(opened(backup, made))

        result = server(tmp_path, link, "one").go(put_back)
    assert [log.rejected.get("a") for log in result.rounds] == [None] * 2 + ["refused: head"] * 4


def test_four_studies_through_one_agent_at_the_same_time(tmp_path: Path) -> None:
    """Each ends as it would have alone: the agents and noise are seeded, and runs do not disturb each other."""
    made = replace(making(PUBLIC, "a"), policy=policy_of(PUBLIC, max_runs=STUDIES, max_share_per_run=0.2))
    with opened(tmp_path, made) as agent, ThreadPoolExecutor(STUDIES) as pool:
        link = Local({"at a": agent})
        runs = [f"study {number}" for number in range(STUDIES)]
        results = list(pool.map(lambda run: server(tmp_path, link, run).go(), runs))
        for run, result in zip(runs, results, strict=True):
            assert [log.rejected for log in result.rounds] == [{}] * 6
            assert status(agent, run).announced == 6
            assert torch.equal(result.values, results[0].values)
        ledger = agent.silo.account
        assert read_heads(tmp_path / "heads.json") == {"a": ledger.public_head()}
        # What the policy allows each, and no more: the plans are made by hand here, so prices are not checked.
        assert {finding.check for finding in ledger.verify().findings} <= {"prices"}  # type: ignore[attr-defined]


# Turns and time

AFTER = 0.5


def test_a_round_of_another_run_is_answered_one_public_time_later(tmp_path: Path) -> None:
    """Four runs announce a round at the same moment: the answers leave at multiples of the public time."""
    plan = public_plan(4, 1)
    limits = policy_of(plan, max_runs=4, max_share_per_run=0.2)
    with opened(tmp_path, Making(plan, policy=limits, timing=Timing(AFTER))) as agent:
        runs = [f"run {number}" for number in range(4)]
        for run in runs:
            assert told(agent, admission(plan, run)).kind == "admitted"
        began = time.monotonic()

        def answered(run: str) -> tuple[str, float]:
            return ask(agent, run, 1, public=plan).kind, time.monotonic() - began

        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(answered, runs))
        assert {kind for kind, _ in found} <= {"update", "sat-out"}
        for turn, seconds in enumerate(sorted(seconds for _, seconds in found), 1):
            assert seconds >= turn * AFTER  # never early, whatever the load: each has a whole turn of its own
        assert {status(agent, run).announced for run in runs} == {1}


def test_patience_covers_the_turns_of_all_runs() -> None:
    slow = in_memory(replace(Making(FIRST, seed=1), timing=Timing(20.0), max_concurrent_runs=4, patience=None))
    assert slow._patience == 160.0
    fast = in_memory(replace(Making(FIRST, seed=1), timing=Timing(0.5), patience=None))
    assert fast._patience == 60.0


# Any order, with cancellations and crashes


class Crashed(BaseException):
    """As if the process had died."""


class Studies:
    """Four studies of one server, whose requests come in any order, and an agent that dies again and again."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self.dice = folder, np.random.default_rng(11)
        self.ended = Counter[str]()
        self._runs: dict[int, str] = {}
        self._made = 0
        self._head: PublicHead | None = None
        self._stack = stack
        self.start()

    def start(self) -> None:
        """A new agent over what the ledger holds."""
        self._stack.close()
        limits = policy_of(FIRST, max_runs=60, max_share_per_run=0.3)
        self.agent = self._stack.enter_context(opened(self.folder, replace(MAKING, policy=limits)))

    def step(self) -> None:
        """One request of one of the studies."""
        study = int(self.dice.integers(STUDIES))
        run = self._runs.get(study)
        if run is None:
            self._made += 1
            run = self._runs[study] = f"run {self._made}"
            self._ask(admission(FIRST, run, self._head))
            return
        found = [one for one in self.agent.silo.account.status().runs if one.run == run]
        announced = found[0].announced if found else 0
        if announced == 0 and self.dice.random() < 0.3:
            self._ask(cancellation(run, self._head))
            del self._runs[study]
            return
        number = min(announced + int(self.dice.integers(1, 3)), 6)  # a round is left out now and then
        answer = self._ask(announcement(FIRST, number, run=run, head=self._head))
        if answer is not None and answer.facts.get("reason") == "run":
            self._ask(admission(FIRST, run, self._head))
        if number == 6 and answer is not None and answer.kind != "refused":
            del self._runs[study]

    def _ask(self, request: Frame) -> Frame | None:
        """The answer; None if the agent died meanwhile."""
        try:
            answer = told(self.agent, request)
        except Crashed:
            self.ended["crash"] += 1
            self.start()
            return None
        self.ended[str(answer.facts.get("reason", answer.kind))] += 1
        if answer.facts.get("head"):
            self._head = PublicHead(**answer.facts["head"])
        return answer

    def check(self) -> None:
        """What all runs together hold or have booked is within every budget; and it is the sum of what each has."""
        for record in ("r0", "r1", "r2"):
            explained = self.agent.silo.account.explain(record)  # type: ignore[attr-defined]
            live = [one.share for one in explained.runs if one.state in ("held", "committed")]
            assert explained.share_used <= 1.0
            assert explained.share_used == pytest.approx(sum(live), abs=1e-9)


@pytest.mark.parametrize("steps", [40, pytest.param(400, marks=pytest.mark.slow)])
def test_four_studies_in_any_order_with_cancellations_and_crashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """After every request, crashes at any durable step included, Σ booked and held ≤ budget for every record."""
    with ExitStack() as stack:
        studies = Studies(tmp_path, stack)

        def perhaps_die(label: str) -> None:
            if label.split(":")[0] in ("reserve", "charge", "store", "cancel") and studies.dice.random() < 0.03:
                raise Crashed(label)

        studies.step()  # before the first crash: a server that knows no head must wait until the hold has expired
        monkeypatch.setattr(crash_points, "reached", perhaps_die)
        for _ in range(steps):
            studies.step()
            studies.check()
        ledger = studies.agent.silo.account
        assert ledger.verify().is_good  # type: ignore[attr-defined]
        charged = [one.run for one in ledger.status().runs if one.announced]
    assert len(charged) >= 3
    assert studies.ended["crash"] >= 1
    assert min(studies.ended[kind] for kind in ("admitted", "cancelled", "update", "sat-out")) >= 1, studies.ended
