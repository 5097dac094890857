"""A silo's node: carries our frames, executes nothing, says nothing, and outlives whatever the server does."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from rpdp.deployment.files.certificates import (
    make_authority,
    make_server_certificate,
    make_silo_certificate,
    make_silo_key,
)
from rpdp.deployment.flower import silo_node
from rpdp.deployment.flower.fleet_link import FleetLink, NodeRefused, NodeUnknown, read_node_key, tls_context
from rpdp.deployment.flower.frame_record import FRAME, NOT_OURS, RECORD, request_record
from rpdp.deployment.flower.silo_node import SiloNode
from rpdp.federation.frames import UNREACHABLE, Frame
from tests.deployment.flower.fleet_server import DROP, NODE, FleetServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rpdp.deployment.files.certificates import Authority

HELLO = Frame({"kind": "hello"}).to_bytes()
PRIVATE = "patient 4711"


class Place:
    """Certificates and keys of a federation with one silo, and an agent that is a function."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.authority: Authority = make_authority(folder / "ca")
        self.certificate = make_server_certificate(self.authority, folder / "server", ["127.0.0.1"])
        self.key = make_silo_key(folder / "silo", "north")
        self.asked: list[bytes] = []
        self.answer: Callable[[bytes], bytes] = lambda frame: b"answer to " + frame[-5:]
        monkeypatch.setattr("rpdp.deployment.flower.frame_record.ask", self._ask)

    def _ask(self, _: object, frame: bytes, *, timeout: float) -> bytes:
        self.asked.append(frame)
        assert timeout > 0.0
        return self.answer(frame)

    def link(self, server: str, authority: Path | None = None, certificate: Path | None = None) -> FleetLink:
        context = tls_context(authority or self.authority.certificate, certificate, self.key.tls)
        return FleetLink(server, context, read_node_key(self.key.private))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, monkeypatch)


class Running:
    """A node in a thread."""

    def __init__(self, node: SiloNode) -> None:
        self.node, self.raised = node, list[BaseException]()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.node.run()
        except Exception as error:
            self.raised.append(error)

    def ended(self, seconds: float = 20.0) -> BaseException | None:
        self.thread.join(seconds)
        assert not self.thread.is_alive()
        return self.raised[0] if self.raised else None


@contextmanager
def running(place: Place, server: FleetServer, **more: Any) -> Iterator[Running]:
    found = Running(SiloNode("north", place.folder / "s", place.link(server.address, **more)))
    found.thread.start()
    try:
        yield found
    finally:
        found.node.stop()
        found.ended()


def frames(server: FleetServer, count: int) -> list[object]:
    return [reply.content.config_records[RECORD][FRAME] for reply in server.await_replies(count)]


def until(found: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_it_carries_frames_and_asks_for_nothing_else(place: Place) -> None:
    with FleetServer(place.certificate) as server:
        with running(place, server) as found:
            number = server.send(request_record(b"first", 5.0))
            assert frames(server, 1) == [b"answer to first"]
            server.send(request_record(b"second", 5.0))
            assert frames(server, 2)[1] == b"answer to econd"
            assert server.replies[0].metadata.reply_to_message_id == number
            assert server.replies[0].metadata.src_node_id == NODE
        assert found.ended() is None
        asked = Counter(server.names())
        assert set(asked) == {  # no get-run, no get-fab: it never fetches what a server submits
            "activate-node", "deactivate-node", "pull-messages", "pull-object",
            "confirm-message-received", "push-messages", "push-object",
        }  # fmt: skip
        assert (asked["activate-node"], asked["deactivate-node"]) == (1, 1)


FRAME_ALONE = ConfigRecord({FRAME: HELLO})
STRANGE = {
    "another type of message": (request_record(HELLO, 5.0), "evaluate"),
    "a query": (request_record(HELLO, 5.0), "query"),
    "a function by its name": (request_record(HELLO, 5.0), "train.steal"),
    "no record": (RecordDict(), "train"),
    "a record of another name": (RecordDict({"other": FRAME_ALONE}), "train"),
    "two records": (RecordDict({RECORD: ConfigRecord({FRAME: HELLO}), "other": ConfigRecord({"x": 1})}), "train"),
    "an array": (RecordDict({RECORD: ArrayRecord([np.zeros(3)])}), "train"),
    "a frame without a timeout": (RecordDict({RECORD: FRAME_ALONE}), "train"),
    "a text as frame": (RecordDict({RECORD: ConfigRecord({FRAME: "text", "timeout": 5.0})}), "train"),
}


@pytest.mark.parametrize(("content", "kind"), STRANGE.values(), ids=STRANGE)
def test_what_is_none_of_ours_gets_one_fixed_answer(place: Place, content: RecordDict, kind: str) -> None:
    with FleetServer(place.certificate) as server, running(place, server):
        server.send(content, kind)
        assert frames(server, 1) == [NOT_OURS]
        assert place.asked == []  # the agent never hears of it
        server.send(request_record(b"after", 5.0))  # and the node goes on
        assert frames(server, 2)[1] == b"answer to after"


def test_a_message_that_is_none_of_ours_is_not_even_fetched(place: Place) -> None:
    with FleetServer(place.certificate) as server, running(place, server):
        server.send(STRANGE["a query"][0], "query")
        server.send(STRANGE["an array"][0])
        frames(server, 2)
        assert "pull-object" not in server.names()


def test_content_that_cannot_be_read_gets_the_fixed_answer(place: Place) -> None:
    with FleetServer(place.certificate) as server, running(place, server):
        number = server.send(request_record(HELLO, 5.0))
        server._objects[number] = b"Message" + bytes(40)
        assert frames(server, 1) == [NOT_OURS]


def test_a_message_without_sense_is_dropped(place: Place) -> None:
    """Flower cannot even read it, so there is nobody to answer."""
    with FleetServer(place.certificate) as server, running(place, server):
        server.send(request_record(HELLO, 5.0))
        message = server._waiting[-1]
        message.metadata.__dict__["_message_type"] = "no type"
        server.send(request_record(b"after", 5.0))
        assert frames(server, 1) == [b"answer to after"]


def test_no_text_of_an_exception_leaves(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    def failing(_: bytes) -> bytes:
        raise ValueError(PRIVATE)

    place.answer = failing
    with FleetServer(place.certificate) as server, running(place, server), caplog.at_level(logging.INFO):
        server.send(request_record(HELLO, 5.0))
        assert frames(server, 1) == [UNREACHABLE.to_bytes()]
        assert not any(PRIVATE.encode() in one.body for one in server.requests)
        assert PRIVATE in caplog.text  # the silo's own log says what was wrong


@pytest.mark.parametrize("status", [DROP, 500, 502, 503, 504, 429])
def test_a_server_that_is_away_is_asked_again(place: Place, status: int, caplog: pytest.LogCaptureFixture) -> None:
    """Every kind of request fails twice; in the end every message has its answer, and the agent was asked once."""
    left: Counter[str] = Counter()

    def fails(name: str) -> int | None:
        left[name] += 1
        return status if left[name] in (2, 3) else None

    with FleetServer(place.certificate, fails=fails) as server, running(place, server):
        with caplog.at_level(logging.INFO):
            server.send(request_record(b"first", 5.0))
            server.send(request_record(b"secon", 5.0))
            assert set(frames(server, 2)) == {b"answer to first", b"answer to secon"}
        assert sorted(place.asked) == [b"first", b"secon"]
        assert "trying again until it answers" in caplog.text
        assert "answers again" in caplog.text


def test_a_server_that_forgot_the_node_gets_it_again(place: Place) -> None:
    forgotten = threading.Event()

    def fails(name: str) -> int | None:
        if name == "activate-node":
            forgotten.clear()
        return 401 if forgotten.is_set() else None

    with FleetServer(place.certificate, fails=fails) as server, running(place, server):
        until(lambda: "pull-messages" in server.names())
        forgotten.set()
        until(lambda: server.names().count("activate-node") == 2)
        server.send(request_record(b"after", 5.0))
        assert frames(server, 1) == [b"answer to after"]


def test_a_key_that_is_never_accepted_ends_the_node(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silo_node, "ACTIVATION_PATIENCE", 1.5)
    with FleetServer(place.certificate, fails=lambda _: 412) as server, running(place, server) as found:
        error = found.ended()
        assert isinstance(error, NodeUnknown)
        assert "Is silo north registered there" in str(error)
        assert server.names().count("activate-node") >= 2  # an earlier process may be taken for alive
        assert set(server.names()) == {"activate-node"}


def test_a_stopped_run_costs_its_message_only(place: Place) -> None:
    stopped = threading.Event()
    with FleetServer(place.certificate) as server, running(place, server):
        server.fails = lambda name: 403 if stopped.is_set() and name == "push-messages" else None
        server.words = b'{"code": 2007, "detail": "The current run status does not allow this"}'
        stopped.set()
        server.send(request_record(b"first", 5.0))
        until(lambda: "push-messages" in server.names())
        stopped.clear()
        server.send(request_record(b"secon", 5.0))
        assert frames(server, 1) == [b"answer to secon"]


def test_it_does_not_follow_the_server_into_the_silos_network(place: Place) -> None:
    """A redirect would let a server send requests to machines that only the silo can reach."""
    with FleetServer(place.certificate) as inner, FleetServer(place.certificate, fails=lambda _: 307) as server:
        server.location = f"{inner.address}/v1/fleet/activate-node"
        with running(place, server) as found:
            assert isinstance(found.ended(), NodeRefused)
        assert inner.requests == []


def test_a_foreign_server_is_refused(place: Place) -> None:
    foreign = make_authority(place.folder / "foreign")
    with FleetServer(place.certificate) as server:
        with running(place, server, authority=foreign.certificate) as found:
            error = found.ended()
        assert isinstance(error, NodeRefused)
        assert "the server's certificate is not accepted" in str(error)
        assert server.requests == []


def test_mutual_tls(place: Place) -> None:
    certificate = make_silo_certificate(place.authority, place.folder / "silo", "north", place.key.public)
    with FleetServer(place.certificate, clients=place.authority.certificate) as server:
        with running(place, server, certificate=certificate):
            server.send(request_record(b"first", 5.0))
            assert frames(server, 1) == [b"answer to first"]
        with running(place, server) as found:  # the control
            error = found.ended()
        assert isinstance(error, NodeRefused)
        assert "does not accept this silo's certificate" in str(error)


@pytest.mark.parametrize(("status", "words"), [(400, "refuses this silo's certificate"), (404, "no server of this")])
def test_a_refusal_is_said_in_words(place: Place, status: int, words: str) -> None:
    with FleetServer(place.certificate, fails=lambda _: status) as server, running(place, server) as found:
        assert words in str(found.ended())


def test_messages_are_carried_side_by_side(place: Place) -> None:
    """A round that takes long, or an agent that hangs, does not keep others waiting."""
    go_on = threading.Event()
    place.answer = lambda frame: ((go_on.wait(20.0) if frame == b"slowly" else True) and b"x") or b"y"
    with FleetServer(place.certificate) as server, running(place, server):
        server.send(request_record(b"slowly", 5.0))
        server.send(request_record(b"second", 5.0))
        assert frames(server, 1) == [b"x"]
        assert sorted(place.asked) == [b"second", b"slowly"]
        go_on.set()
        server.await_replies(2)


def test_it_stops_while_the_server_is_away(place: Place) -> None:
    away = FleetServer(place.certificate, fails=lambda name: None if name == "activate-node" else DROP)
    with away as server, running(place, server) as found:
        until(lambda: "pull-messages" in server.names())
        found.node.stop()
        assert found.ended(10.0) is None


def test_an_answer_that_comes_too_late_is_dropped(place: Place) -> None:
    away = FleetServer(place.certificate, fails=lambda name: DROP if name == "push-object" else None)
    with away as server, running(place, server):
        server.send(request_record(b"first", 5.0), ttl=1.0)
        until(lambda: "push-object" in server.names())
        time.sleep(1.5)
        server.fails = lambda _: None
        server.send(request_record(b"secon", 5.0))
        assert frames(server, 1) == [b"answer to secon"]
