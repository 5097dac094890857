"""Admission in two phases over agents: all silos hold, or nobody pays; after a crash in any phase it goes on."""

from __future__ import annotations

import shutil
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch

from rpdp.errors import InputError, PrivacyRefusal, Reason, RpdpError
from rpdp.federation.checkpoint import Checkpoint
from rpdp.federation.coordinator import RoundSettings
from rpdp.federation.frames import Frame, refused
from rpdp.federation.heads import read_heads
from rpdp.ledger import Ledger
from tests.deployment.agent.federations import NAMES, PUBLIC, agents, coordinator, making, simulated
from tests.deployment.agent.links import Local
from tests.deployment.agent.scene import (
    RUN,
    Making,
    admission,
    announcement,
    cancellation,
    head_of,
    opened,
    policy_of,
    public_plan,
    reason,
    status,
    told,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rpdp.deployment.agent.agent import Agent

SHORT = public_plan(4)


# The agent


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    with opened(tmp_path, Making(SHORT, max_concurrent_runs=1)) as made:
        yield made


def left(agent: Agent) -> list[float]:
    found = agent.silo.account.left(agent.silo.budgets, agent.silo.policy.lifetime_delta).amount
    return [float(value) for value in found]


def test_a_server_cancels_before_the_first_round_as_often_as_it_likes(agent: Agent) -> None:
    before = left(agent)
    told(agent, admission(SHORT))
    assert (status(agent).state, left(agent) == before) == ("held", False)
    for _ in range(3):
        answer = told(agent, cancellation())
        assert answer.kind == "cancelled"
        assert answer.facts["head"]["count"] == 2  # admit, cancel
    assert left(agent) == before
    assert reason(told(agent, admission(SHORT))) == "cancelled"  # nor with a head
    assert reason(told(agent, admission(SHORT, head=head_of(agent)))) == "cancelled"
    assert reason(told(agent, announcement(SHORT, 1))) == "run"
    assert told(agent, admission(SHORT, "second")).kind == "admitted"


@pytest.mark.parametrize("joined", [True, False])
def test_a_cancellation_after_the_first_charge_is_refused(tmp_path: Path, joined: bool) -> None:
    public = public_plan(4, participation=1.0 if joined else 1e-9)
    with opened(tmp_path, Making(public)) as agent:
        told(agent, admission(public))
        told(agent, announcement(public, 1))
        before = left(agent)
        assert reason(told(agent, cancellation())) == "charged"
        assert (left(agent), status(agent).state) == (before, "committed")
        assert told(agent, announcement(public, 2)).kind == ("update" if joined else "sat-out")


def test_a_run_that_nobody_has_asked_for_is_not_cancelled(agent: Agent) -> None:
    assert reason(told(agent, cancellation("another"))) == "run"
    told(agent, admission(SHORT))
    assert reason(told(agent, cancellation("another", head_of(agent)))) == "run"
    assert status(agent).state == "held"


def test_a_hold_that_is_asked_for_again_is_not_prolonged(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1e9]
    monkeypatch.setattr(agent.silo.account, "clock", lambda: clock[0])
    told(agent, admission(SHORT, hold=100))
    first, booked = status(agent), left(agent)
    clock[0] += 99
    assert told(agent, admission(SHORT, hold=3000)).kind == "admitted"
    assert (status(agent), left(agent)) == (first, booked)
    clock[0] += 1
    assert reason(told(agent, announcement(SHORT, 1))) == "cancelled"
    assert status(agent).state == "expired"


@pytest.mark.parametrize(
    ("hold", "word"), [(86_401, "policy"), (10**30, "policy"), (0, "malformed"), (-5, "malformed")]
)
def test_a_hold_is_as_long_as_the_policy_allows(agent: Agent, hold: int, word: str) -> None:
    assert reason(told(agent, admission(SHORT, hold=hold))) == word
    assert agent.silo.account.status().runs == ()
    assert told(agent, admission(SHORT, hold=86_400)).kind == "admitted"


def test_an_expiry_counts_from_the_request_and_not_from_the_end_of_planning(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long planning takes depends on the records, and the expiry is visible."""
    clock = [1e9]
    monkeypatch.setattr(agent.silo.account, "clock", lambda: clock[0])
    plan = agent.silo.planner

    def slow(*arguments: object) -> object:
        clock[0] += 50
        return plan(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(agent.silo, "planner", slow)
    told(agent, admission(SHORT, hold=100))
    assert status(agent).expires == "2001-09-09T01:48:20+00:00"  # 10⁹ + 100 s


def test_an_expired_hold_makes_room_for_another_run(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1e9]
    monkeypatch.setattr(agent.silo.account, "clock", lambda: clock[0])
    before = left(agent)
    told(agent, admission(SHORT, hold=100))
    assert reason(told(agent, admission(SHORT, "second", head_of(agent)))) == "other-run"
    clock[0] += 100
    assert told(agent, admission(SHORT, "second", head_of(agent))).kind == "admitted"
    assert [one.state for one in agent.silo.account.status().runs] == ["expired", "held"]
    told(agent, cancellation("second"))
    assert left(agent) == before


def test_a_server_cannot_fill_the_ledger_with_cancelled_runs(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rpdp.federation.policy.CANCELLED_PER_RUN", 1)  # of three runs
    before = left(agent)
    for number in range(3):
        assert told(agent, admission(SHORT, f"run {number}")).kind == "admitted"
        assert told(agent, cancellation(f"run {number}")).kind == "cancelled"
    assert reason(told(agent, admission(SHORT, "run 3"))) == "policy"
    assert left(agent) == before


def test_cancelled_runs_do_not_count_as_runs(tmp_path: Path) -> None:
    with opened(tmp_path, Making(SHORT, policy=policy_of(SHORT, max_runs=1))) as agent:
        for number in range(2):
            told(agent, admission(SHORT, f"run {number}"))
            told(agent, cancellation(f"run {number}"))
        assert told(agent, admission(SHORT, "run 2")).kind == "admitted"


def test_a_rolled_back_ledger_does_not_cancel_what_was_charged(tmp_path: Path) -> None:
    """The old copy knows of no charge; the server's head does."""
    made = Making(SHORT)
    (tmp_path / "now").mkdir()
    with opened(tmp_path / "now", made) as agent:
        told(agent, admission(SHORT))
    shutil.copytree(tmp_path / "now", tmp_path / "then")
    with opened(tmp_path / "now", made) as agent:
        told(agent, admission(SHORT, head=head_of(agent)))
        told(agent, announcement(SHORT, 1))
        known = head_of(agent)
    with opened(tmp_path / "then", made) as agent:
        assert reason(told(agent, cancellation(head=known))) == "head"
        assert reason(told(agent, cancellation())) == "head"
        assert status(agent).state == "held"


def test_a_closed_run_can_still_be_cancelled(tmp_path: Path) -> None:
    with opened(tmp_path, Making(SHORT)) as agent:
        told(agent, admission(SHORT))
        known = head_of(agent)
    with opened(tmp_path, Making(SHORT, closed_runs=(RUN,))) as agent:
        assert reason(told(agent, admission(SHORT, head=known))) == "closed-run"
        assert told(agent, cancellation(head=known)).kind == "cancelled"


# The server


@contextmanager
def federation(folder: Path, **policies: object) -> Iterator[Local]:
    """Three silos with ledgers on disk; some with another policy."""
    with ExitStack() as stack:
        made = {}
        for name in NAMES:
            one = making(PUBLIC, name)
            one = replace(one, policy=policies[name]) if name in policies else one  # type: ignore[arg-type]
            made[f"at {name}"] = stack.enter_context(opened(folder, one))
        yield Local(made)


def all_left(link: Local) -> dict[str, list[float]]:
    return {address: left(agent) for address, agent in link.agents.items() if agent is not None}


def states(link: Local) -> dict[str, list[str]]:
    return {
        address: [one.state for one in agent.silo.account.status().runs]
        for address, agent in link.agents.items()
        if agent is not None
    }


def test_one_hospitals_refusal_costs_nobody_anything(tmp_path: Path) -> None:
    with federation(tmp_path, b=policy_of(PUBLIC, max_rounds=5)) as link:
        before = all_left(link)
        with pytest.raises(PrivacyRefusal, match=r"'run' was not admitted \(b: policy\)") as raised:
            coordinator(tmp_path, PUBLIC, link).go()
        assert all_left(link) == before
        assert states(link) == {"at a": ["cancelled"], "at b": [], "at c": ["cancelled"]}
        assert str(raised.value).endswith("cancelled at a, c. A cancelled run never returns: use a new run id")
        assert not (tmp_path / "checkpoint").exists()
        heads = read_heads(tmp_path / "heads.json")
        assert {name: head.count for name, head in heads.items()} == {"a": 2, "c": 2}
        with pytest.raises(PrivacyRefusal, match="a: cancelled; b: policy; c: cancelled"):
            coordinator(tmp_path, PUBLIC, link).go()
    for name in NAMES:
        with Ledger.read(tmp_path / f"{name}.db") as ledger:
            assert ledger.verify().is_good


@pytest.mark.parametrize("reserves_first", [True, False])
def test_one_hospitals_full_disk_costs_nobody_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reserves_first: bool
) -> None:
    """Before its hold is written, or after it: then it holds although it has refused, and is cancelled as well."""
    with federation(tmp_path) as link:
        before, full = all_left(link), link.agents["at b"]
        assert full is not None
        reserve = full.silo.account.reserve

        def no_space(*arguments: object) -> None:
            if reserves_first:
                reserve(*arguments)  # type: ignore[arg-type]
            raise PrivacyRefusal("the disk is full")

        monkeypatch.setattr(full.silo.account, "reserve", no_space)
        with pytest.raises(PrivacyRefusal, match=r"not admitted \(b: failed\).*nobody is charged"):
            coordinator(tmp_path, PUBLIC, link).go()
        assert all_left(link) == before
        assert states(link)["at b"] == (["cancelled"] if reserves_first else [])


class Failing(Local):
    """One silo's answers to some requests are lost, or are garbage; the request may have reached it."""

    def __init__(self, link: Local, kinds: tuple[str, ...], *, reached: bool, garbage: bytes | None = None) -> None:
        super().__init__(link.agents)
        self.kinds, self.reached, self.garbage = kinds, reached, garbage

    def _one(self, address: str, sent: bytes) -> bytes | None:
        if address != "at b" or Frame.from_bytes(sent, 1 << 30).kind not in self.kinds:
            return super()._one(address, sent)
        if self.reached:
            super()._one(address, sent)
        return self.garbage


@pytest.mark.parametrize("garbage", [None, b"nonsense"], ids=["no answer", "garbage"])
@pytest.mark.parametrize("reached", [True, False])
def test_a_silo_that_does_not_answer_costs_nobody_anything(
    tmp_path: Path, reached: bool, garbage: bytes | None
) -> None:
    with federation(tmp_path) as link:
        before = all_left(link)
        mute = Failing(link, ("admit",), reached=reached, garbage=garbage)
        with pytest.raises(RpdpError, match=r"2 of 3 silos are ready after 0.5 s, but 3 are needed; missing: b"):
            coordinator(tmp_path, PUBLIC, mute, patience=0.5).go()
        assert all_left(link) == before
        assert states(link) == {"at a": ["cancelled"], "at b": ["cancelled"] * reached, "at c": ["cancelled"]}


def test_a_hold_that_cannot_be_cancelled_ends_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rpdp.federation.coordinator._CANCEL_PAUSE", 0.0)
    with federation(tmp_path, c=policy_of(PUBLIC, max_rounds=5)) as link:
        before, gone = all_left(link), Failing(link, ("cancel",), reached=False)
        with pytest.raises(PrivacyRefusal, match="b did not answer: a hold there ends by itself within 3600 s"):
            coordinator(tmp_path, PUBLIC, gone).go()
        assert states(link) == {"at a": ["cancelled"], "at b": ["held"], "at c": []}
        stuck = link.agents["at b"]
        assert stuck is not None
        now = stuck.silo.account.clock()
        monkeypatch.setattr(stuck.silo.account, "clock", lambda: now + 3601)
        assert all_left(link) == before


def test_round_1_is_announced_when_all_silos_hold_and_not_before(tmp_path: Path) -> None:
    class Late(Local):
        def addresses(self) -> dict[str, str]:
            self.hidden = set() if len(self.asked) >= 4 else {"at 2"}  # two of them have said hello, and hold
            return super().addresses()

    late = Late(agents(PUBLIC))
    result = coordinator(tmp_path, PUBLIC, late).go()
    kinds = [kind for _, kind in late.asked]
    assert kinds.index("round") > max(place for place, kind in enumerate(kinds) if kind == "admit")
    assert torch.equal(result.values, simulated(PUBLIC).values)


def test_with_fewer_silos_needed_a_refusal_is_no_obstacle(tmp_path: Path) -> None:
    with federation(tmp_path, b=policy_of(PUBLIC, max_rounds=5)) as link:
        result = coordinator(tmp_path, PUBLIC, link, least_silos=2).go()
        assert len(result.rounds) == 6
        assert all("b" not in log.joined for log in result.rounds)
        assert states(link) == {"at a": ["committed"], "at b": [], "at c": ["committed"]}
    with pytest.raises(InputError, match="hold=30 must be at least 40"):
        RoundSettings(deadline=20.0, patience=20.0, hold=30)


class Stop(Exception):
    """As if the server had died."""


def dying(link: Local, at: Callable[[str, Frame], bool]) -> Local:
    class Dying(Local):
        def answered(self, address: str, request: Frame, answer: Callable[[], Frame]) -> Frame:
            given = answer()
            if at(address, request):
                raise Stop
            return given

    return Dying(link.agents)


def test_a_server_that_dies_while_silos_hold_goes_on(tmp_path: Path) -> None:
    with federation(tmp_path) as link:
        with pytest.raises(Stop):
            coordinator(tmp_path, PUBLIC, dying(link, lambda at, asked: asked.kind == "admit" and at == "at b")).go()
        assert set(map(tuple, states(link).values())) == {("held",), ()}
        result = coordinator(tmp_path, PUBLIC, link).go()
    assert torch.equal(result.values, simulated(PUBLIC).values)


def test_a_server_that_dies_after_the_first_charge_cancels_nothing(tmp_path: Path) -> None:
    """It had announced round 1 to one silo. Then another one refuses: the first has paid, and the third must stay."""
    with federation(tmp_path) as link:
        with pytest.raises(Stop):
            coordinator(tmp_path, PUBLIC, dying(link, lambda at, asked: asked.kind == "round")).go()
        kept = Checkpoint.read(tmp_path / "checkpoint")
        assert kept is not None
        assert kept.rounds == ()
        assert sorted(state for (state,) in states(link).values()) == ["committed", "held", "held"]

        class Refusing(Local):
            def answered(self, address: str, request: Frame, answer: Callable[[], Frame]) -> Frame:
                return refused(Reason.POLICY) if request.kind == "admit" and address == "at b" else answer()

        with pytest.raises(PrivacyRefusal, match="The run has begun; mend this and start it again"):
            coordinator(tmp_path, PUBLIC, Refusing(link.agents)).go()
        assert sorted(state for (state,) in states(link).values()) == ["committed", "held", "held"]
        result = coordinator(tmp_path, PUBLIC, link).go()
    assert torch.equal(result.values, simulated(PUBLIC).values)


def test_a_run_that_has_begun_goes_on_without_a_silo_whose_hold_has_expired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with federation(tmp_path) as link:
        with pytest.raises(Stop):
            coordinator(tmp_path, PUBLIC, dying(link, lambda at, asked: asked.kind == "round" and at == "at a")).go()
        late = link.agents["at c"]
        assert late is not None
        now = late.silo.account.clock()
        monkeypatch.setattr(late.silo.account, "clock", lambda: now + 3601)
        result = coordinator(tmp_path, PUBLIC, link).go()
        assert states(link) == {"at a": ["committed"], "at b": ["committed"], "at c": ["expired"]}
    assert len(result.rounds) == 6
    assert all("c" not in log.joined for log in result.rounds)


def test_a_report_can_say_what_a_steward_cancelled_without_a_reason(tmp_path: Path) -> None:
    with federation(tmp_path) as link:
        for name, why in (("a", ""), ("b", "the study was withdrawn")):
            agent = link.agents[f"at {name}"]
            assert agent is not None
            told(agent, admission(PUBLIC, "earlier"))
            agent.silo.account.cancel("earlier", by="steward", reason=why)
        server = coordinator(tmp_path, PUBLIC, link)
        server.go()
    (note,) = server.notes
    assert note.startswith("not covered: the steward of silo a cancelled run 'earlier'")
