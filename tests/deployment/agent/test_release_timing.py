"""When answers leave (privacy.md, rule 14): at a public time, and nobody who asks meanwhile learns anything from it."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

from rpdp import PrivacyCurve
from rpdp.deployment.agent.release_timing import Timing
from rpdp.errors import RpdpError
from rpdp.federation.frames import Frame
from rpdp.tasks.models.losses import binary_loss
from tests.deployment.agent.scene import (
    RECORDS,
    Making,
    admission,
    announcement,
    in_memory,
    public_plan,
    reason,
    status,
    told,
    wait_until,
)
from tests.deployment.agent.shared import SharedNumber, shared_event

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from rpdp.deployment.agent.agent import Agent

PUBLIC = public_plan()
AFTER = 1.0
HELLO = Frame({"kind": "hello"})


class FakeTime:
    """A clock that goes only when somebody sleeps, or says so, in this process or the one that trains."""

    def __init__(self) -> None:
        self._now = SharedNumber(100.0)
        self._per_step = SharedNumber()

    @property
    def now(self) -> float:
        return self._now.value

    @now.setter
    def now(self, value: float) -> None:
        self._now.value = value

    @property
    def per_step(self) -> float:
        return self._per_step.value

    @per_step.setter
    def per_step(self, value: float) -> None:
        self._per_step.value = value

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0.0
        self.now += seconds

    def loss(self, output: Tensor, targets: Tensor) -> Tensor:
        """Takes `per_step` of this time."""
        self.now += self.per_step
        return binary_loss(output, targets)

    @property
    def timing(self) -> Timing:
        return Timing(AFTER, self.clock, self.sleep)


def all_drawn(timing: Timing, loss: Callable[[Tensor, Tensor], Tensor] = binary_loss, **more: Any) -> Agent:
    """A seeded agent that has admitted the plan; every step draws every record, so that each takes its time."""
    agent = in_memory(Making(PUBLIC, seed=1, q=1.0, loss=loss, timing=timing, **more))
    assert told(agent, admission(PUBLIC)).kind == "admitted"
    return agent


def took(fake: FakeTime, agent: Agent, request: Frame) -> tuple[str, float]:
    """The kind of the answer, and when it left."""
    before = fake.now
    answer = told(agent, request)
    return answer.kind, round(fake.now - before, 9)


@pytest.mark.parametrize("per_step", [0.0, 0.01, 0.25, 0.29])
def test_updates_leave_at_the_public_time_however_long_training_takes(per_step: float) -> None:
    fake = FakeTime()
    agent = all_drawn(fake.timing, fake.loss)
    fake.per_step = per_step
    assert took(fake, agent, announcement(PUBLIC, 1)) == ("update", AFTER)
    assert took(fake, agent, announcement(PUBLIC, 1)) == ("update", AFTER)  # the stored one, too


@pytest.mark.parametrize("per_step", [0.46, 0.5])
def test_a_round_that_is_late_sits_out_for_ever_and_its_answer_is_not_late(per_step: float) -> None:
    """Before the third step, more than nine tenths are over."""
    fake = FakeTime()
    agent = all_drawn(fake.timing, fake.loss)
    fake.per_step = per_step
    assert took(fake, agent, announcement(PUBLIC, 1)) == ("sat-out", AFTER)
    fake.per_step = 0.0
    assert took(fake, agent, announcement(PUBLIC, 1)) == ("sat-out", AFTER)
    assert (status(agent).joined, status(agent).released) == ((1,), ())
    assert took(fake, agent, announcement(PUBLIC, 2)) == ("update", AFTER)


@pytest.mark.parametrize("after", [None, AFTER])
def test_with_a_public_time_planning_takes_equally_long_too(after: float | None) -> None:
    agent = in_memory(Making(PUBLIC, seed=1, timing=Timing(after)))
    assert agent.silo.is_timed == (after is not None)


def test_without_a_public_time_nothing_waits() -> None:
    """The control: then answers tell how long training took, and no round is late."""
    fake = FakeTime()
    agent = all_drawn(replace(fake.timing, release_after=None), fake.loss)
    for number, per_step in ((1, 0.0), (2, 0.25), (3, 100.0)):
        fake.per_step = per_step
        assert took(fake, agent, announcement(PUBLIC, number)) == ("update", 3 * per_step)


def test_rounds_sat_out_and_failed_leave_at_the_public_time(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeTime()
    agent = all_drawn(fake.timing, fake.loss)

    def fail(*_: object, **__: object) -> None:
        fake.now += 0.3
        raise RuntimeError("out of memory")

    with monkeypatch.context() as broken:
        broken.setattr(agent.silo, "compute", fail)
        assert took(fake, agent, announcement(PUBLIC, 2)) == ("sat-out", AFTER)
    assert took(fake, agent, announcement(PUBLIC, 1)) == ("sat-out", AFTER)  # it was missed
    assert took(fake, agent, admission(PUBLIC)) == ("admitted", AFTER)
    with monkeypatch.context() as broken:
        broken.setattr(agent.silo, "begin", fail)
        assert took(fake, agent, announcement(PUBLIC, 3)) == ("refused", AFTER)  # nobody knows why it failed


def test_what_is_later_than_its_time_leaves_at_a_multiple_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes long to store an update, say."""
    fake = FakeTime()
    agent = all_drawn(fake.timing, fake.loss)
    finish = agent.silo.finish

    def slow_disk(trained: Any) -> Any:
        fake.now += 1.3
        return finish(trained)

    monkeypatch.setattr(agent.silo, "finish", slow_disk)
    assert took(fake, agent, announcement(PUBLIC, 1)) == ("update", 2 * AFTER)


def test_refusals_and_hello_do_not_wait() -> None:
    """They depend on public things alone."""
    fake = FakeTime()
    agent = all_drawn(fake.timing, fake.loss)
    assert took(fake, agent, HELLO) == ("hello", 0.0)
    for bad in (announcement(PUBLIC, 7), announcement(PUBLIC, 1, run="other"), announcement(PUBLIC, 1, float("nan"))):
        assert took(fake, agent, bad) == ("refused", 0.0)


def test_a_refused_admission_leaves_at_the_public_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Budgets and steward actions may have been read before it is refused, and that takes longer the more there are."""
    fake = FakeTime()
    agent = all_drawn(fake.timing, fake.loss)
    changed = admission(replace(PUBLIC, normaliser=PUBLIC.normaliser + 1.0))
    resume = agent.silo.account.resume

    def slow(*arguments: Any) -> Any:
        fake.now += 0.3
        return resume(*arguments)

    monkeypatch.setattr(agent.silo.account, "resume", slow)
    assert took(fake, agent, changed) == ("refused", AFTER)
    assert reason(told(agent, changed)) == "plan"
    other_model = admission(replace(PUBLIC, model_fingerprint="0" * 64))
    monkeypatch.setattr(agent, "_most_runs", 1)
    for public_reason in (other_model, admission(PUBLIC, "another run")):
        assert took(fake, agent, public_reason) == ("refused", 0.0)


# Who asks meanwhile


class Blocking:
    """A loss, or a sleep, that waits until it may go on."""

    def __init__(self) -> None:
        self.entered = shared_event()
        self.go = shared_event()
        self.on = shared_event()

    def wait(self, *_: object) -> None:
        if self.on.is_set():
            self.entered.set()
            assert self.go.wait(20.0)

    def loss(self, output: Tensor, targets: Tensor) -> Tensor:
        self.wait()
        return binary_loss(output, targets)


class Asked(threading.Thread):
    """A request in a thread of its own."""

    def __init__(self, agent: Agent, request: Frame) -> None:
        super().__init__()
        self._agent, self._request = agent, request
        self.answer: Frame | None = None
        self.start()

    def run(self) -> None:
        self.answer = told(self._agent, self._request)

    def result(self) -> Frame:
        self.join(20.0)
        assert self.answer is not None
        return self.answer


def test_hello_is_answered_while_a_round_is_trained_and_tells_nothing_of_it() -> None:
    block = Blocking()
    agent = all_drawn(Timing(None), block.loss)
    before = told(agent, HELLO)
    block.on.set()
    training = Asked(agent, announcement(PUBLIC, 1))
    assert block.entered.wait(20.0)
    assert told(agent, HELLO) == before
    block.go.set()
    assert training.result().kind == "update"
    assert told(agent, HELLO) == before


def test_while_a_round_is_trained_others_wait_their_turn_and_are_then_refused_as_busy() -> None:
    block = Blocking()
    agent = all_drawn(Timing(None), block.loss, patience=0.1)
    block.on.set()
    training = Asked(agent, announcement(PUBLIC, 1))
    assert block.entered.wait(20.0)
    for request in (announcement(PUBLIC, 1), announcement(PUBLIC, 2), admission(PUBLIC)):
        assert reason(told(agent, request)) == "busy"
    assert reason(told(agent, Frame({"kind": "nonsense"}))) == "malformed"  # needs no turn
    block.go.set()
    assert training.result().kind == "update"
    assert status(agent).announced == 1
    assert told(agent, announcement(PUBLIC, 2)).kind == "update"


def test_the_turn_ends_when_the_answer_leaves_not_when_training_is_over() -> None:
    """Else a second request, answered between, would tell how long the first one was trained."""
    block = Blocking()
    agent = all_drawn(Timing(AFTER, time.monotonic, lambda seconds: block.wait()), patience=0.1)
    block.on.set()
    held = Asked(agent, announcement(PUBLIC, 1))
    assert block.entered.wait(20.0)
    wait_until(lambda: status(agent).released == (1,))  # it is trained and stored, and its answer is held
    assert reason(told(agent, announcement(PUBLIC, 2))) == "busy"
    block.on.clear()
    block.go.set()
    assert held.result().kind == "update"
    assert told(agent, announcement(PUBLIC, 2)).kind == "update"


def test_a_step_that_never_ends_holds_neither_its_answer_nor_the_next_one() -> None:
    """In real time. What trains is ended, and what trains the next round is there at once."""
    after = 2.0
    endless = SharedNumber()

    def loss(output: Tensor, targets: Tensor) -> Tensor:
        until = time.monotonic() + 15.0  # long enough to be endless here, and short enough for a test that fails
        while endless.value and time.monotonic() < until:
            pass
        return binary_loss(output, targets)

    agent = all_drawn(Timing(after), loss)
    for number in (1, 3):
        endless.value = 1.0
        began = time.monotonic()
        assert told(agent, announcement(PUBLIC, number)).kind == "sat-out"
        answered = time.monotonic() - began
        assert reason(told(agent, announcement(PUBLIC, 9))) == "round"  # which needs a turn, and then no time
        turn = time.monotonic() - began
        assert after <= answered <= turn < 2 * after
        endless.value = 0.0
        assert told(agent, announcement(PUBLIC, number + 1)).kind == "update"
        assert time.monotonic() - began < 4 * after
    assert (status(agent).joined, status(agent).released) == ((1, 2, 3, 4), (2, 4))


def test_a_training_that_takes_long_to_die_does_not_delay_the_next_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that dumps its core, or frees much memory. If a record is the cause, the next answer must not show it."""
    after, dying, wait = 2.0, SharedNumber(), os.waitpid

    def slow_death(process: int, options: int) -> tuple[int, int]:
        if not options & os.WNOHANG:
            time.sleep(2 * after)
            return wait(process, options)
        return 0, 0

    def loss(output: Tensor, targets: Tensor) -> Tensor:
        if dying.value:
            os.kill(os.getpid(), signal.SIGKILL)
        return binary_loss(output, targets)

    with monkeypatch.context() as patched:  # the process that makes the training processes inherits it
        patched.setattr(os, "waitpid", slow_death)
        agent = all_drawn(Timing(after), loss)
    for number, kind in ((1, "sat-out"), (2, "update")):
        dying.value = float(kind == "sat-out")
        began = time.monotonic()
        assert told(agent, announcement(PUBLIC, number)).kind == kind
        assert after <= time.monotonic() - began < 2 * after


def test_a_training_that_dies_sits_out_and_the_next_round_is_trained() -> None:
    dying = SharedNumber()

    def loss(output: Tensor, targets: Tensor) -> Tensor:
        if dying.value:
            os.kill(os.getpid(), signal.SIGKILL)
        return binary_loss(output, targets)

    agent = all_drawn(Timing(None), loss)
    dying.value = 1.0
    assert told(agent, announcement(PUBLIC, 1)).kind == "sat-out"
    dying.value = 0.0
    assert told(agent, announcement(PUBLIC, 2)).kind == "update"


def test_a_round_has_its_whole_time_from_its_turn_on() -> None:
    """A request that waited for another one is not late because of that."""
    fake = FakeTime()
    agent = all_drawn(fake.timing, fake.loss)
    with agent._turns.one("another", 1.0):
        waiting = Asked(agent, announcement(PUBLIC, 1))
        time.sleep(0.05)
        fake.now += 10 * AFTER
    assert waiting.result().kind == "update"


def test_joined_and_sat_out_rounds_take_the_same_real_time() -> None:
    """Over a real clock, with training that takes very different times; the differences are the machine's."""
    after, agents = 0.3, []
    for per_step in (0.0, 0.05):

        def loss(output: Tensor, targets: Tensor, per_step: float = per_step) -> Tensor:
            time.sleep(per_step)
            return binary_loss(output, targets)

        agents.append(all_drawn(Timing(after), loss))
    times = []
    for agent in agents:
        for number in (2, 1, 2):  # trained, missed, stored
            began = time.monotonic()
            told(agent, announcement(PUBLIC, number))
            times.append(time.monotonic() - began)
    assert min(times) >= after
    assert max(times) < 2 * after


# Stopping


def test_closing_ends_a_training_in_the_middle_of_a_step() -> None:
    block = Blocking()
    agent = all_drawn(Timing(None), block.loss)
    block.on.set()
    training = Asked(agent, announcement(PUBLIC, 1))
    assert block.entered.wait(20.0)
    closing = threading.Thread(target=agent.close)
    closing.start()
    closing.join(5.0)
    assert not closing.is_alive()
    assert training.result().kind == "sat-out"
    assert (status(agent).joined, status(agent).released) == ((1,), ())


def test_after_closing_a_round_is_charged_and_sits_out() -> None:
    agent = all_drawn(Timing(None))
    agent.close()
    assert told(agent, announcement(PUBLIC, 1)).kind == "sat-out"


def test_one_thread_of_torch_by_default() -> None:
    seen = SharedNumber()

    def loss(output: Tensor, targets: Tensor) -> Tensor:
        seen.value = torch.get_num_threads()
        return binary_loss(output, targets)

    agent = all_drawn(Timing(None), loss)
    seen.value = 0.0
    told(agent, announcement(PUBLIC, 1))
    assert seen.value == 1.0


def test_an_error_of_ours_in_training_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = all_drawn(Timing(None))

    def diverge(*_: object, **__: object) -> None:
        raise RpdpError("the model became NaN")

    monkeypatch.setattr(agent.silo, "compute", diverge)
    assert told(agent, announcement(PUBLIC, 1)).kind == "sat-out"


@pytest.mark.parametrize(("after", "is_same"), [(0.05, True), (None, False)])
def test_an_admission_takes_as_much_work_whatever_budgets_there_are(
    after: float | None, is_same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: a plan with which one record of another budget turned 5 s into 30. Without a public time it still may."""
    priced: list[int] = []
    price = PrivacyCurve._price

    def counted(curve: PrivacyCurve, q: np.ndarray) -> np.ndarray:
        priced.append(q.size)
        return price(curve, q)

    monkeypatch.setattr(PrivacyCurve, "_price", counted)
    work = []
    for rare in (1.0, 0.02):
        priced.clear()
        agent = in_memory(Making(PUBLIC, epsilon=[*[1.0] * (RECORDS - 1), rare], timing=Timing(after), seed=1))
        try:
            assert agent.answer(admission(PUBLIC)).kind == "admitted"
        finally:
            agent.close()
        work.append(sum(priced))
    assert (work[0] == work[1]) is is_same
