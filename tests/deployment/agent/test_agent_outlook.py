"""An agent's own log says what a run finds in the ledger; what a server is answered never depends on it (rule 16)."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rpdp.deployment.agent import agent as agents
from rpdp.deployment.agent.release_timing import Timing
from rpdp.errors import PrivacyRefusal
from rpdp.federation.frames import Frame
from rpdp.federation.silo_outlook import silo_outlook
from rpdp.ledger import Ledger
from rpdp.planning import Allowance, assign_allowed
from tests.deployment.agent.scene import (
    LIFETIME_DELTA,
    RUN,
    Making,
    admission,
    announcement,
    head_of,
    in_memory,
    opened,
    policy_of,
    public_plan,
    told,
)

if TYPE_CHECKING:
    from pathlib import Path

    from rpdp import PublicPlan

PUBLIC = public_plan(rounds=2, local_steps=2)
EARLIER = public_plan(rounds=3, local_steps=2)
RELEASE_AFTER = 10.0


class Clock:
    """A clock that moves when somebody sleeps or works; it notes the sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    @property
    def timing(self) -> Timing:
        return Timing(RELEASE_AFTER, clock=self, sleep=self.sleep)


def making_of(clock: Clock | None = None) -> Making:
    limits = policy_of(PUBLIC, max_rounds=3, max_share_per_run=0.5)
    made = Making(PUBLIC, policy=limits)
    return made if clock is None else replace(made, timing=clock.timing)


def use(folder: Path, making: Making, share: float) -> None:
    """Book a share of everybody's budget, in a run that was over long ago."""
    with Ledger.create(folder / "a.db", making.budgets, kind="production", lifetime_delta=LIFETIME_DELTA) as ledger:
        allowance = Allowance(share=share)
        left = ledger.left(making.budgets, LIFETIME_DELTA, allowance)
        ledger.reserve("earlier", assign_allowed(EARLIER, making.budgets.ids, left), None, allowance)
        ledger.charge("earlier", 3, lambda: False)


def conversation(folder: Path, share: float, clock: Clock | None = None) -> list[tuple[float, bytes]]:
    """Admission, both rounds, and a refused admission: when each answer leaves, and its bytes without random parts."""
    clock = clock or Clock()
    folder.mkdir(mode=0o700)
    making = making_of(clock)
    use(folder, making, share)
    seen = []
    with opened(folder, making) as agent:
        head = head_of(agent)
        for request in (
            admission(PUBLIC, head=head),
            announcement(PUBLIC, 1, head=head),
            announcement(PUBLIC, 2, head=head),
            admission(public_plan(rounds=50), "other", head),
        ):
            answer = told(agent, request)
            facts = {name: value for name, value in answer.facts.items() if name != "head"}
            seen.append((clock.now, Frame(facts, bytes(len(answer.payload))).to_bytes()))
    return seen


@pytest.mark.filterwarnings("ignore::rpdp.training.SlowKernelWarning")
def test_a_server_is_answered_alike_by_a_fresh_and_a_used_up_ledger(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The same kinds, sizes and times; only heads (random hashes) and the noise itself are left out."""
    caplog.set_level(logging.INFO, logger="rpdp.silo")
    fresh = conversation(tmp_path / "fresh", 1e-9)
    in_full = [line for line in caplog.messages if "can take part" in line]
    caplog.clear()
    used = conversation(tmp_path / "used", 1.0)
    left = [line for line in caplog.messages if "can take part" in line]
    assert fresh == used
    assert [when for when, _ in fresh[:3]] == [RELEASE_AFTER, 2.0 * RELEASE_AFTER, 3.0 * RELEASE_AFTER]
    assert b'"admitted"' in fresh[0][1]
    assert len(in_full) == len(left) == 1
    assert in_full[0].startswith(f"run '{RUN}': silo a: ")
    assert "used up by earlier runs" in left[0]


def test_the_log_says_it_before_anything_is_held_and_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="rpdp.silo")
    tmp_path.chmod(0o700)
    with opened(tmp_path, making_of()) as agent:
        expected = silo_outlook(agent.silo, PUBLIC)
        assert expected is not None
        for _ in range(2):  # asked again, it is not new
            assert told(agent, admission(PUBLIC)).kind == "admitted"
    said = [line for line in caplog.messages if line.startswith(f"run '{RUN}': silo a")]
    assert said == [f"run '{RUN}': {line}" for line in expected.lines()]
    assert expected.in_full == expected.records  # its own hold is not in it
    admitted = next(line for line in caplog.messages if line.startswith("admitted"))
    assert caplog.messages.index(said[-1]) < caplog.messages.index(admitted)


@pytest.mark.parametrize("outcome", ["slow", "fails", "refuses"])
def test_the_answer_does_not_wait_for_the_outlook_nor_depend_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    plain = conversation(tmp_path / "plain", 0.5)
    clock = Clock()

    def other(*_: object) -> None:
        if outcome == "fails":
            raise MemoryError
        if outcome == "refuses":
            raise PrivacyRefusal("no")
        clock.now += 0.6 * RELEASE_AFTER

    monkeypatch.setattr(agents, "silo_outlook", other)
    assert conversation(tmp_path / "other", 0.5, clock) == plain


def test_an_agent_without_a_ledger_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="rpdp.silo")
    agent = in_memory(Making(PUBLIC, seed=1))
    try:
        assert told(agent, admission(PUBLIC)).kind == "admitted"
    finally:
        agent.close()
    assert not any("can take part" in line for line in caplog.messages)


def test_a_plan_beyond_the_policy_has_no_outlook(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is refused before anything is computed for it."""
    caplog.set_level(logging.INFO, logger="rpdp.silo")
    beyond: PublicPlan = public_plan(rounds=50)
    tmp_path.chmod(0o700)
    with opened(tmp_path, making_of()) as agent:
        assert told(agent, admission(beyond)).kind == "refused"
    assert not any("can take part" in line for line in caplog.messages)
