"""The socket: who may ask, what a bad caller can do to others, and the app that carries frames to it."""

from __future__ import annotations

import grp
import os
import pwd
import socket
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from rpdp.deployment.agent import agent_client, connections
from rpdp.deployment.agent.agent_client import Unreachable, ask, is_answering
from rpdp.deployment.agent.opening import require_owner_only
from rpdp.deployment.agent.socket_service import Service, require_group
from rpdp.deployment.own_socket import require_own_directory
from rpdp.errors import InputError, PrivacyRefusal, Reason, RpdpError
from rpdp.federation.frames import HEADER_BYTES, UNREACHABLE, Frame, refused
from tests.deployment.agent.scene import (
    MOST,
    Live,
    Making,
    admission,
    announcement,
    in_memory,
    public_plan,
    reason,
    status,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rpdp.deployment.agent.agent import Agent

PUBLIC = public_plan()
HELLO = Frame({"kind": "hello"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory that only this user can write to, with a path short enough for a socket."""
    tmp_path.chmod(0o700)
    return tmp_path


@pytest.fixture
def agent() -> Agent:
    return in_memory(Making(PUBLIC, seed=1))


@pytest.fixture
def live(folder: Path, agent: Agent) -> Iterator[Live]:
    with Live(agent, folder / "s") as made:
        yield made


# Permissions


def test_only_this_user_may_ask(live: Live) -> None:
    found = live.path.lstat()
    assert stat.S_ISSOCK(found.st_mode)
    assert stat.S_IMODE(found.st_mode) == 0o600
    assert found.st_uid == os.geteuid()


def test_files_that_are_made_later_have_the_modes_that_they_had_before(folder: Path, agent: Agent) -> None:
    """Only the socket is made with another mask."""
    before = os.umask(0o022)
    try:
        with Live(agent, folder / "s"):
            (folder / "later").touch()
    finally:
        os.umask(before)
    assert stat.S_IMODE((folder / "later").stat().st_mode) == 0o644


def test_or_a_group_as_well(folder: Path, agent: Agent) -> None:
    group = grp.getgrgid(os.getegid())
    with Live(agent, folder / "s", group.gr_name) as live:
        found = live.path.lstat()
        assert stat.S_IMODE(found.st_mode) == 0o660
        assert (found.st_uid, found.st_gid) == (os.geteuid(), group.gr_gid)


def test_a_group_that_the_agent_is_not_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a member can give the socket to a group; root, as which tests may run, could."""
    other = next(one for one in grp.getgrall() if one.gr_gid not in {os.getegid(), *os.getgroups()})
    monkeypatch.setattr(os, "geteuid", lambda: pwd.getpwnam("nobody").pw_uid)
    with pytest.raises(InputError, match=rf"group='{other.gr_name}': user 'nobody'.*usermod --append --groups"):
        require_group(other.gr_name)
    require_group(grp.getgrgid(os.getegid()).gr_name)


def test_a_group_that_there_is_not(folder: Path, agent: Agent) -> None:
    with pytest.raises(InputError, match="there is no such group; make it with"):
        Service(agent, folder / "s", group="no such group").serve()
    assert not (folder / "s").exists()


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o720, 0o702, 0o1777])
def test_a_directory_where_others_can_put_a_socket_is_refused(folder: Path, agent: Agent, mode: int) -> None:
    folder.chmod(mode)
    with pytest.raises(PrivacyRefusal, match="could put a socket of theirs there"):
        Service(agent, folder / "s").serve()
    folder.chmod(0o755)  # the control: others may look
    require_own_directory(folder / "s")


def test_a_directory_of_somebody_else_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_own_directory(folder / "s")
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    with pytest.raises(PrivacyRefusal, match="let it belong to the agent's user"):
        require_own_directory(folder / "s")


def test_a_directory_that_is_not_there(folder: Path) -> None:
    with pytest.raises(InputError, match="there is no directory"):
        require_own_directory(folder / "nowhere" / "s")


def test_a_path_that_is_too_long(folder: Path) -> None:
    with pytest.raises(InputError, match="is longer than 100 bytes"):
        require_own_directory(folder / ("s" * 100))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o611])
def test_a_file_that_others_can_get_at(folder: Path, mode: int) -> None:
    path = folder / "ledger.db"
    path.touch(0o600)
    require_owner_only(path)
    path.chmod(mode)
    with pytest.raises(PrivacyRefusal, match="chmod go-rwx"):
        require_owner_only(path)


# What lies at the path


def test_a_socket_that_a_killed_agent_left_is_replaced(folder: Path, agent: Agent) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(folder / "s"))
    assert (folder / "s").exists()
    with Live(agent, folder / "s") as live:
        assert live.ask(HELLO).kind == "hello"


def test_a_living_agent_is_left_alone(live: Live) -> None:
    with pytest.raises(InputError, match="another process is listening there"):
        Service(in_memory(Making(PUBLIC, seed=2)), live.path).serve()
    assert live.ask(HELLO).kind == "hello"


@pytest.mark.parametrize("kind", ["file", "link", "directory"])
def test_anything_else_at_the_path_is_left_alone(folder: Path, agent: Agent, kind: str) -> None:
    path = folder / "s"
    if kind == "file":
        path.write_text("precious")
    elif kind == "link":
        path.symlink_to(folder / "elsewhere")
    else:
        path.mkdir()
    with pytest.raises(InputError, match="and is not a socket"):
        Service(agent, path).serve()
    assert os.path.lexists(path)


def test_a_stopped_agent_leaves_no_socket(folder: Path, agent: Agent) -> None:
    with Live(agent, folder / "s") as live:
        assert live.ask(HELLO).kind == "hello"
    assert not live.path.exists()
    with pytest.raises(Unreachable):
        ask(live.path, HELLO.to_bytes(), timeout=1.0)


def test_a_stopped_agent_trains_no_more_even_if_its_socket_is_gone(folder: Path, agent: Agent) -> None:
    with Live(agent, folder / "s") as live:
        live.path.unlink()
    assert agent._stopping.is_set()


def test_stopping_twice_and_before_the_start_is_harmless(folder: Path, agent: Agent) -> None:
    service = Service(agent, folder / "s")
    service.stop()
    service.stop()
    service.serve()
    assert not (folder / "s").exists()
    service.stop()  # and after the end, when its sockets are closed


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_served_agent_leaves_no_open_files(folder: Path, agent: Agent) -> None:
    with Live(agent, folder / "first"):  # whatever is opened once per process
        pass
    before = open_files()
    for turn in range(5):
        with Live(in_memory(Making(PUBLIC, seed=turn)), folder / "s") as live:
            assert live.ask(HELLO).kind == "hello"
            assert open_files() >= before + 3  # the control: the listener and a pair to wake it are seen
    wait_until(lambda: open_files() == before)


def test_an_agent_that_cannot_serve_leaves_no_open_files(folder: Path, agent: Agent) -> None:
    before = open_files()
    for _ in range(5):
        with pytest.raises(InputError, match="there is no such group"):
            Service(agent, folder / "s", group="no such group").serve()
    assert open_files() == before


def test_a_path_may_be_text(folder: Path, agent: Agent) -> None:
    path = str(folder / "s")
    assert not is_answering(path)
    service = Service(agent, path)
    thread = threading.Thread(target=service.serve)
    thread.start()
    wait_until(lambda: is_answering(path))
    service.stop()
    thread.join(20.0)
    assert not is_answering(path)
    require_own_directory(path)
    with pytest.raises(RpdpError, match="No such file"):  # one tree of exceptions
        ask(path, HELLO.to_bytes(), timeout=1.0)


# Callers


def connected(live: Live) -> socket.socket:
    link = socket.socket(socket.AF_UNIX)
    link.settimeout(10.0)
    link.connect(str(live.path))
    return link


def test_silent_and_slow_callers_do_not_keep_others_from_asking(live: Live) -> None:
    silent = [connected(live) for _ in range(5)]
    slow = connected(live)
    slow.sendall(HELLO.to_bytes()[:-1])
    began = time.monotonic()
    assert live.ask(HELLO).kind == "hello"
    assert live.ask(admission(PUBLIC)).kind == "admitted"
    assert time.monotonic() - began < 5.0
    slow.sendall(HELLO.to_bytes()[-1:])
    slow.shutdown(socket.SHUT_WR)
    assert b"hello" in slow.recv(1000)
    for link in [*silent, slow]:
        link.close()


def test_a_caller_who_trickles_bytes_gets_no_more_time_than_others(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.4)

    def trickle(link: socket.socket) -> None:
        for _ in range(100):
            link.sendall(b"r")
            time.sleep(0.05)

    with connected(live) as link:
        began = time.monotonic()
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            trickle(link)
        assert 0.2 < time.monotonic() - began < 3.0


def test_a_caller_who_says_nothing_is_left(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.2)
    with connected(live) as link:
        assert link.recv(100) == b""


def test_a_header_has_a_few_seconds_and_the_rest_of_a_request_more(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    assert connections.HEADER_SECONDS <= 5.0 < connections.TRANSFER_SECONDS
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.2)
    monkeypatch.setattr(connections, "TRANSFER_SECONDS", 0.8)
    data = HELLO.to_bytes()
    with connected(live) as patient, connected(live) as stalled:
        for link in (patient, stalled):
            link.sendall(data[:-1])
        began = time.monotonic()
        time.sleep(0.4)  # longer than a header may take
        patient.sendall(data[-1:])
        patient.shutdown(socket.SHUT_WR)
        assert b"hello" in patient.recv(1000)
        assert stalled.recv(100) == b""  # it is left at the end of its time
        assert 0.4 < time.monotonic() - began < 5.0


def test_a_caller_who_goes_before_the_answer_changes_nothing(live: Live) -> None:
    live.ask(admission(PUBLIC))
    with connected(live) as link:
        link.sendall(announcement(PUBLIC, 1).to_bytes())
        link.shutdown(socket.SHUT_WR)
    wait_until(lambda: status(live.agent).released == (1,))
    assert live.ask(announcement(PUBLIC, 1, 1.0)).kind == "update"  # the bytes that were stored


def is_closed(link: socket.socket) -> bool:
    """Whether the agent has ended the connection."""
    link.settimeout(0.05)
    try:
        return link.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("sent", [0, 5, HEADER_BYTES, HEADER_BYTES + 3])
def test_silent_callers_make_room_for_others_the_longest_silent_first(live: Live, sent: int) -> None:
    """However much of a request they sent before they fell silent. Nobody has to wait for their time to run out."""
    held = []
    for _ in range(connections.MOST_CONNECTIONS):
        held.append(connected(live))
        held[-1].sendall(HELLO.to_bytes()[:sent])
        time.sleep(0.01)
    began = time.monotonic()
    for _ in range(3):
        assert live.ask(HELLO).kind == "hello"
        time.sleep(0.05)  # its place is free again
    assert live.ask(admission(PUBLIC)).kind == "admitted"
    assert time.monotonic() - began < 3.0
    assert [is_closed(link) for link in held] == [True] + [False] * (len(held) - 1)
    for link in held:
        link.close()


def test_who_still_sends_is_not_the_one_that_makes_room(live: Live) -> None:
    """The longest silent one, not the longest connected one: that may be an honest caller with a large model."""
    data = HELLO.to_bytes()
    with connected(live) as first:
        first.sendall(data[:3])
        silent = [connected(live) for _ in range(connections.MOST_CONNECTIONS - 1)]
        time.sleep(0.1)
        first.sendall(data[3:5])
        time.sleep(0.1)
        more = [connected(live) for _ in range(5)]
        wait_until(lambda: sum(map(is_closed, silent)) == len(more))
        first.sendall(data[5:])
        first.shutdown(socket.SHUT_WR)
        first.settimeout(10.0)
        assert b"hello" in first.recv(1000)
    for link in [*silent, *more]:
        link.close()


def test_a_request_that_is_being_answered_keeps_its_place(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """When all places are taken by such requests a new caller is closed, and room comes back."""
    go = threading.Event()
    answer = live.agent.answer

    def slowly(request: Frame) -> Frame:
        assert go.wait(20.0)
        return answer(request)

    monkeypatch.setattr(live.agent, "answer", slowly)
    held = [connected(live) for _ in range(connections.MOST_CONNECTIONS)]
    for link in held:
        link.sendall(HELLO.to_bytes())
        link.shutdown(socket.SHUT_WR)
    time.sleep(0.3)
    with pytest.raises(Unreachable):
        Frame.from_bytes(ask(live.path, HELLO.to_bytes(), timeout=5.0) or _nothing(), MOST)
    go.set()
    for link in held:
        assert b"hello" in link.recv(1000)
        link.close()
    wait_until(lambda: live._listens())


def _nothing() -> bytes:
    raise Unreachable("closed without an answer")


def test_a_caller_that_lost_its_place_is_not_answered() -> None:
    """Its last byte may come at the same moment: then it is too late, and the agent does nothing for it."""
    here, there = socket.socketpair()
    with here, there:
        places, late = connections.Connections(), connections.Caller(here)
        assert places.enter(late)
        for _ in range(connections.MOST_CONNECTIONS - 1):
            assert places.enter(connections.Caller(here))
        time.sleep(0.01)
        assert places.enter(connections.Caller(here))
        with pytest.raises(ConnectionAbortedError, match="made room"):
            places.begin_work(late)
        places.leave(late)  # giving back twice is harmless


def test_many_callers_at_once_all_get_the_same_answer(live: Live) -> None:
    live.ask(admission(PUBLIC))

    def ask_again(_: int) -> bytes:
        for _ in range(200):
            try:
                return live.ask(announcement(PUBLIC, 1)).payload
            except Unreachable:  # too many at once
                time.sleep(0.01)
        raise AssertionError

    with ThreadPoolExecutor(24) as pool:
        payloads = set(pool.map(ask_again, range(72)))
    assert len(payloads) == 1
    assert status(live.agent).announced == 1


def test_two_frames_in_a_request_are_refused(live: Live) -> None:
    assert reason(live.ask(HELLO.to_bytes() * 2)) == "malformed"
    assert reason(live.ask(HELLO.to_bytes() + b"\0")) == "malformed"


def test_a_frame_that_is_too_large_is_refused_before_it_is_all_there(live: Live) -> None:
    """Also when the caller goes on sending megabytes that nobody reads."""
    huge = Frame({"kind": "round"}, bytes(5_000_000)).to_bytes()
    assert reason(live.ask(huge)) == "too-large"
    assert reason(live.ask(huge[:HEADER_BYTES])) == "too-large"


def test_an_agent_that_fails_answers_one_word(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    live.ask(admission(PUBLIC))

    def fail(*_: object) -> None:
        raise LookupError("a secret path")

    monkeypatch.setattr(live.agent.silo, "begin", fail)
    assert live.ask(announcement(PUBLIC, 1)).facts == {"kind": "refused", "reason": "failed"}


def test_a_connection_that_cannot_be_taken_is_no_reason_to_stop(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with no file handles left, for a moment."""
    accept, failed = socket.socket.accept, threading.Event()

    def fail_once(self: socket.socket) -> Any:
        if not failed.is_set():
            failed.set()
            raise OSError(24, "Too many open files")
        return accept(self)

    monkeypatch.setattr(socket.socket, "accept", fail_once)
    assert live.ask(HELLO).kind == "hello"
    assert failed.is_set()


def test_there_are_never_more_callers_than_places() -> None:
    here, there = socket.socketpair()
    with here, there:
        places = connections.Connections()
        for _ in range(3 * connections.MOST_CONNECTIONS):
            assert places.enter(connections.Caller(here))
            assert len(places._callers) <= connections.MOST_CONNECTIONS


def test_the_whole_header_has_to_come_in_its_time() -> None:
    here, there = socket.socketpair()
    with here, there:
        there.sendall(bytes(HEADER_BYTES))
        caller = connections.Caller(here)
        caller.take(HEADER_BYTES - 1)
        assert caller._deadline == caller._began + connections.HEADER_SECONDS
        caller.take(1)
        assert caller._deadline == caller._began + connections.TRANSFER_SECONDS
        caller._began -= connections.TRANSFER_SECONDS + 1.0
        with pytest.raises(TimeoutError):
            caller.take(1)


# The client, and the Flower app


class Timed:
    """A connection that notes how long it is told to wait, and has nothing to say."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def settimeout(self, seconds: float) -> None:
        self.waits.append(seconds)

    def connect(self, path: str) -> None:
        pass

    def recv(self, count: int) -> bytes:
        return b"" if len(self.waits) > 1 else b"answer"


@pytest.mark.parametrize(("left", "wait"), [(7.0, 7.0), (0.3, 0.3), (-1.0, 0.001)])
def test_a_client_waits_until_its_deadline(folder: Path, left: float, wait: float) -> None:
    for step in (lambda one, end: agent_client._connect(one, folder, end), agent_client._receive_all):
        connection: Any = Timed()
        step(connection, time.monotonic() + left)
        assert all(wait - 0.2 < one <= wait for one in connection.waits)


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("nan")])
def test_a_client_without_time_does_not_ask(folder: Path, timeout: float) -> None:
    with pytest.raises(Unreachable, match="leaves no time for an answer"):
        ask(folder / "s", HELLO.to_bytes(), timeout=timeout)


def test_a_client_that_waits_no_longer_says_so(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(folder / "s"))
        deaf.listen(1)
        began = time.monotonic()
        with pytest.raises(Unreachable, match="timed out"):
            ask(folder / "s", HELLO.to_bytes(), timeout=0.3)
        assert time.monotonic() - began < 3.0


def test_a_client_waits_for_room_in_the_queue_of_the_listener(folder: Path) -> None:
    """With a timeout, connecting to a full queue fails at once; but the agent is only busy accepting others."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "s"))
        listener.listen(0)

        def is_full() -> bool:
            with socket.socket(socket.AF_UNIX) as other:  # it stays in the queue when it is closed
                other.setblocking(False)
                return other.connect_ex(str(folder / "s")) != 0

        def accept_all() -> None:
            time.sleep(0.2)
            while True:
                with listener.accept()[0] as connection:
                    if connection.recv(1) == b"x":
                        return connection.sendall(b"answer")

        wait_until(is_full)
        with pytest.raises(Unreachable, match="temporarily unavailable"):
            ask(folder / "s", b"x", timeout=0.1)  # and not for ever
        with ThreadPoolExecutor(1) as pool:
            accepted = pool.submit(accept_all)
            assert ask(folder / "s", b"x", timeout=10.0) == b"answer"
            accepted.result(10.0)


def carried(frame: object, path: Path | None, timeout: object = 5.0) -> Frame:
    """What the app's answer holds, for a message that holds this."""
    from flwr.app import ConfigRecord, Message, RecordDict

    from rpdp.deployment.flower.client_app import answer
    from rpdp.deployment.flower.frame_record import FRAME, RECORD, TIMEOUT

    given = {name: value for name, value in ((FRAME, frame), (TIMEOUT, timeout)) if value is not None}
    record = ConfigRecord(given)  # type: ignore[arg-type]
    message = Message(RecordDict({RECORD: record}), dst_node_id=1, message_type="train", ttl=5.0)
    context = SimpleNamespace(node_config={} if path is None else {"socket": str(path)})
    found = answer(message, context).content.config_records[RECORD][FRAME]  # type: ignore[arg-type]
    assert isinstance(found, bytes)
    return Frame.from_bytes(found, MOST)


@pytest.mark.usefixtures("in_flower")
def test_the_app_carries_frames_and_answers(live: Live) -> None:
    assert carried(HELLO.to_bytes(), live.path).facts["silo"] == "a"
    assert carried(admission(PUBLIC).to_bytes(), live.path).kind == "admitted"
    assert carried(announcement(PUBLIC, 1).to_bytes(), live.path).kind == "update"
    assert reason(carried(b"nonsense", live.path)) == "malformed"


@pytest.mark.usefixtures("in_flower")
@pytest.mark.parametrize(
    ("frame", "timeout", "word"),
    [
        (None, 5.0, "malformed"),
        ("text", 5.0, "malformed"),
        (7, 5.0, "malformed"),
        (HELLO.to_bytes(), None, "malformed"),
        (HELLO.to_bytes(), "5", "malformed"),
        (HELLO.to_bytes(), float("nan"), ""),
        (HELLO.to_bytes(), -1.0, ""),
    ],
    ids=["no frame", "a text", "a number", "no timeout", "a text as timeout", "NaN as timeout", "a negative timeout"],
)
def test_the_app_says_nothing_of_what_goes_wrong(live: Live, frame: object, timeout: object, word: str) -> None:
    expected = refused(Reason(word)) if word else UNREACHABLE
    assert carried(frame, live.path, timeout) == expected


@pytest.mark.usefixtures("in_flower")
def test_the_app_without_an_agent_says_unreachable(folder: Path) -> None:
    assert carried(HELLO.to_bytes(), folder / "nobody") == UNREACHABLE
    assert carried(HELLO.to_bytes(), None) == UNREACHABLE


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("rpdp.deployment.flower.client_app", ("torch", "scipy", "pyarrow", "rpdp.planning", "rpdp.ledger")),
        ("rpdp.deployment.agent.agent_client", ("torch", "numpy", "flwr", "rpdp.planning", "rpdp.ledger")),
        ("rpdp.federation.frames", ("torch", "numpy", "flwr", "rpdp.planning", "rpdp.ledger")),
    ],
)
def test_what_runs_at_every_message_loads_little(module: str, unwanted: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print(*sorted(set({unwanted!r}) & set(sys.modules)))"
    environment = {**os.environ, "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == []


def test_the_agent_loads_what_the_app_must_not() -> None:
    """The control: the names above are those that would be found."""
    assert {"torch", "numpy", "scipy", "pyarrow", "rpdp.planning", "rpdp.ledger"} <= set(sys.modules)
