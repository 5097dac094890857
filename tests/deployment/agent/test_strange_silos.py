"""Silos that are not what they say, or do not say what they should: a run goes on without them, and names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from rpdp.errors import InputError, PrivacyRefusal, Reason, RpdpError
from rpdp.federation.coordinator import RoundSettings
from rpdp.federation.frames import MAGIC, Frame, refused
from rpdp.federation.handshake import Greeting
from rpdp.version import __version__
from tests.deployment.agent.federations import PUBLIC, agents, coordinator, making, plan, simulated
from tests.deployment.agent.links import Local
from tests.deployment.agent.scene import in_memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rpdp.federation import RoundLog


def test_silos_and_runs_have_names(tmp_path: Path) -> None:
    link = Local({})
    with pytest.raises(InputError, match="different names"):
        coordinator(tmp_path, PUBLIC, link, ["a", "a"])
    with pytest.raises(InputError, match="different names"):
        coordinator(tmp_path, PUBLIC, link, [])
    with pytest.raises(InputError, match="deadline"):
        RoundSettings(deadline=0.0)


def test_a_second_silo_of_a_name_is_not_heard(tmp_path: Path) -> None:
    """Nor one that the run does not know. The first of a name is; where it matters, the engine knows who is where."""
    impostors = {"at 8": in_memory(making(PUBLIC, "a")), "at 9": in_memory(making(PUBLIC, "x"))}
    link = Local({**agents(PUBLIC), **impostors})
    result = coordinator(tmp_path, PUBLIC, link).go()
    assert torch.equal(result.values, simulated(PUBLIC).values)
    assert [kind for address, kind in link.asked if address in impostors] == ["hello", "hello"]


def test_an_impostor_under_a_registered_name_is_not_heard(tmp_path: Path) -> None:
    """The engine knows by its key that an address belongs to b; whoever is there says, before all others, it is a."""
    link = Local({"a first one": in_memory(making(PUBLIC, "a")), **agents(PUBLIC)})
    link.names = {"a first one": "b", "at 0": "a", "at 1": "b", "at 2": "c"}
    result = coordinator(tmp_path, PUBLIC, link).go()
    assert torch.equal(result.values, simulated(PUBLIC).values)
    assert [kind for address, kind in link.asked if address == "a first one"] == ["hello"]


def test_a_silo_that_moves_to_another_address_is_found_there(tmp_path: Path) -> None:
    """Both are there for a while, the old one dead; then only the new one."""
    link = Local(agents(PUBLIC))

    def move(log: RoundLog) -> None:
        if log.round == 1:
            link.agents["at 7"], link.agents["at 1"] = link.agents["at 1"], None
        if log.round == 2:
            del link.agents["at 1"]

    result = coordinator(tmp_path, PUBLIC, link).go(move)
    expected = {log.round: log.joined for log in simulated(PUBLIC).rounds}
    assert [log.joined for log in result.rounds if log.round > 2] == [expected[number] for number in range(3, 7)]


def test_a_real_silo_and_a_seeded_server_do_not_go_together(tmp_path: Path) -> None:
    link = Local(agents(PUBLIC))
    with pytest.raises(PrivacyRefusal, match="a simulation and a real run cannot be mixed"):
        coordinator(tmp_path, PUBLIC, link, seed=None).go()


@pytest.mark.parametrize("reason", [Reason.POLICY, Reason.MODEL, Reason.BUSY])
def test_a_silo_that_does_not_admit_the_run_is_named(tmp_path: Path, reason: Reason) -> None:
    class Refusing(Local):
        def answered(self, address: str, request: Frame, answer: Callable[[], Frame]) -> Frame:
            return refused(reason) if request.kind == "admit" and address == "at 1" else answer()

    with pytest.raises(
        PrivacyRefusal, match=rf"'run' was not admitted \(b: {reason}\); see the silos' logs for details"
    ):
        coordinator(tmp_path, PUBLIC, Refusing(agents(PUBLIC))).go()


NEST = b'{"kind":"sat-out","head":' + b"[" * 900 + b"]" * 900 + b"}"
MALFORMED = {
    "nonsense": b"nonsense",
    "half a frame": Frame({"kind": "update"}).to_bytes()[:-1],
    "no update": Frame({"kind": "update", "head": None}, b"short").to_bytes(),
    "another kind": Frame({"kind": "surprise"}).to_bytes(),
    "a head that is none": Frame({"kind": "sat-out", "head": {"count": "x"}}).to_bytes(),
    "a refusal without a word": Frame({"kind": "refused"}).to_bytes(),
    "a deep nest": MAGIC + len(NEST).to_bytes(4, "little") + bytes(8) + NEST,
}


@pytest.mark.parametrize("name", MALFORMED)
def test_an_answer_that_is_none_costs_its_round_and_the_silo_is_asked_again(tmp_path: Path, name: str) -> None:
    class Garbling(Local):
        def _one(self, address: str, sent: bytes) -> bytes | None:
            answer = super()._one(address, sent)
            wrong = address == "at 1" and (f'"round":{3}'.encode() in sent)
            return MALFORMED[name] if wrong else answer

    result = coordinator(tmp_path, PUBLIC, Garbling(agents(PUBLIC))).go()
    expected = {log.round: log.joined for log in simulated(PUBLIC).rounds}
    for log in result.rounds:
        assert log.joined == tuple(one for one in expected[log.round] if not (one == "b" and log.round == 3))
    faults = {log.round: dict(log.rejected) for log in result.rounds if log.rejected}
    assert faults == ({} if name == "another kind" else {3: {"b": "malformed response"}})


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda payload: payload[:8] + (9).to_bytes(8, "little") + payload[16:], "for round 9"),
        (lambda payload: payload[:-4], "shape"),
        (lambda payload: payload[:-4] + np.float32(np.nan).tobytes(), "largest number"),
        (lambda payload: payload[:-4] + np.float32(1e9).tobytes(), "largest number"),
    ],
    ids=["another round", "shape", "NaN", "absurd"],
)
def test_an_update_that_cannot_be_used_is_left_out_and_named(
    tmp_path: Path, change: Callable[[bytes], bytes], fault: str
) -> None:
    class Changing(Local):
        def answered(self, address: str, request: Frame, answer: Callable[[], Frame]) -> Frame:
            given = answer()
            wrong = given.kind == "update" and address == "at 1"
            return Frame(given.facts, change(given.payload)) if wrong else given

    result = coordinator(tmp_path, PUBLIC, Changing(agents(PUBLIC))).go()
    faults = [dict(log.rejected) for log in result.rounds if log.rejected]
    assert faults
    assert all(list(one) == ["b"] and fault in one["b"] for one in faults)
    assert all("b" not in log.joined for log in result.rounds)


def test_a_silo_that_is_never_satisfied_does_not_hold_up_a_round(tmp_path: Path) -> None:
    """It says that it does not know the run, admits it, and says so again: until the deadline, not for ever."""

    class Endless(Local):
        def answered(self, address: str, request: Frame, answer: Callable[[], Frame]) -> Frame:
            return refused(Reason.RUN) if request.kind == "round" and address == "at 1" else answer()

    public = plan(rounds=2)
    result = coordinator(tmp_path, public, Endless(agents(public)), deadline=0.3).go()
    assert all("b" not in log.joined for log in result.rounds)
    assert all(log.seconds < 5.0 for log in result.rounds)


def test_a_mute_silo_costs_nothing_but_its_updates(tmp_path: Path) -> None:
    class Mute(Local):
        def _one(self, address: str, sent: bytes) -> bytes | None:
            return None if address == "at 1" and b'"round"' in sent else super()._one(address, sent)

    result = coordinator(tmp_path, PUBLIC, Mute(agents(PUBLIC))).go()
    assert all("b" not in log.joined and not log.rejected for log in result.rounds)


# Messages name the cause


def test_missing_silos_are_named_with_what_is_known_of_them(tmp_path: Path) -> None:
    """One has no node, one no agent, one speaks another protocol; the words are the operator's."""
    link = Silent({**agents(PUBLIC), "at 1": None})
    link.names = {"at 1": "b", "at 2": "c"}
    link.hidden = {"at 0"}
    with pytest.raises(RpdpError) as refused_run:
        coordinator(tmp_path, PUBLIC, link, patience=0.5).go()
    said = str(refused_run.value)
    assert "a: its node is not connected" in said
    assert "b: its node is connected, but the agent does not answer there; start the agent" in said
    assert (
        f"c: the other side speaks protocol rpdp-sa1 (rpdp 0.1), this one rpdp-sa2 (rpdp {__version__}); install the "
        "same release at both sides" in said
    )


class Silent(Local):
    """A link to an agent of release 0.1 among others: it refuses our protocol in its own."""

    def _one(self, address: str, sent: bytes) -> bytes | None:
        if address == "at 2":
            return refused(Reason.VERSION).to_bytes().replace(MAGIC, b"rpdp-sa1")
        return super()._one(address, sent)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"clock": 3600}, "the clock of silo a is 1.0 h ahead of the one here"),
        ({"clock": -3600}, "the clock of silo a is 1.0 h behind the one here"),
        ({"clock": -2 * 86400}, "the clock of silo a is 2.0 days behind the one here"),
        ({"clock": 30}, ""),
        ({"clock": 1 << 4000}, ""),
        ({"clock": "now"}, ""),
        ({}, ""),
        ({"version": "9.9"}, f"silo a runs rpdp 9.9; here is rpdp {__version__}"),
        ({"version": __version__}, ""),
        ({"version": "\n"}, ""),
    ],
)
def test_a_silo_with_another_clock_or_release_is_named(facts: dict[str, object], said: str) -> None:
    given = {name: value + 1000 if isinstance(value, int) else value for name, value in facts.items()}
    remarks = Greeting.of(given, now=1000.0).remarks("silo a")
    assert [text[: len(said)] for text in remarks] == ([said] if said else [])


def test_remarks_on_a_silo_stop_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Later(Local):
        def answered(self, address: str, request: Frame, answer: Callable[[], Frame]) -> Frame:
            given = answer()
            if given.kind == "hello":
                given.facts["clock"] -= 3600
            return given

    link = Later(agents(PUBLIC))
    assert torch.equal(coordinator(tmp_path, PUBLIC, link).go().values, simulated(PUBLIC).values)
    assert sum("is 1.0 h behind the one here" in line for line in caplog.messages) == 3
