"""The socket: who may ask, what a bad caller can do to others, and the app that carries frames to it."""

from __future__ import annotations

import grp
import os
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

from rpdp.deployment.agent import socket_service as service_module
from rpdp.deployment.agent.agent_client import Unreachable, ask, is_answering
from rpdp.deployment.agent.opening import require_owner_only
from rpdp.deployment.agent.socket_service import Service, require_own_directory
from rpdp.errors import InputError, PrivacyRefusal, RpdpError
from rpdp.federation.frames import HEADER_BYTES, UNREACHABLE, Frame
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


def test_or_a_group_as_well(folder: Path, agent: Agent) -> None:
    group = grp.getgrgid(os.getegid())
    with Live(agent, folder / "s", group.gr_name) as live:
        found = live.path.lstat()
        assert stat.S_IMODE(found.st_mode) == 0o660
        assert found.st_gid == group.gr_gid


def test_a_group_that_there_is_not(folder: Path, agent: Agent) -> None:
    with pytest.raises(InputError, match="name a group that this user is in"):
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
    with pytest.raises(InputError, match="another agent is listening there"):
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
        with pytest.raises(InputError, match="name a group"):
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
    monkeypatch.setattr(service_module, "_TRANSFER_SECONDS", 0.4)

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
    monkeypatch.setattr(service_module, "_TRANSFER_SECONDS", 0.2)
    with connected(live) as link:
        assert link.recv(100) == b""


def test_a_caller_who_goes_before_the_answer_changes_nothing(live: Live) -> None:
    live.ask(admission(PUBLIC))
    with connected(live) as link:
        link.sendall(announcement(PUBLIC, 1).to_bytes())
        link.shutdown(socket.SHUT_WR)
    wait_until(lambda: status(live.agent).released == (1,))
    assert live.ask(announcement(PUBLIC, 1, 1.0)).kind == "update"  # the bytes that were stored


def test_more_connections_than_are_taken_are_closed_and_room_comes_back(live: Live) -> None:
    held = [connected(live) for _ in range(service_module._MOST_CONNECTIONS)]
    time.sleep(0.2)
    with pytest.raises(Unreachable):
        live.ask(HELLO)
    for link in held:
        link.close()
    wait_until(lambda: live._listens())


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


# The client, and the Flower app


def test_a_client_that_waits_no_longer_says_so(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(folder / "s"))
        deaf.listen(1)
        began = time.monotonic()
        with pytest.raises(Unreachable, match="timed out"):
            ask(folder / "s", HELLO.to_bytes(), timeout=0.3)
        assert time.monotonic() - began < 3.0


def carried(frame: object, path: Path | None, timeout: object = 5.0) -> Frame:
    """What the app's answer holds, for a message that holds this."""
    from flwr.app import ConfigRecord, Message, RecordDict

    from rpdp.deployment.flower.client_app import FRAME, RECORD, TIMEOUT, carry

    given = {name: value for name, value in ((FRAME, frame), (TIMEOUT, timeout)) if value is not None}
    record = ConfigRecord(given)  # type: ignore[arg-type]
    message = Message(RecordDict({RECORD: record}), dst_node_id=1, message_type="train", ttl=5.0)
    context = SimpleNamespace(node_config={} if path is None else {"socket": str(path)})
    answer = carry(message, context).content.config_records[RECORD][FRAME]  # type: ignore[arg-type]
    assert isinstance(answer, bytes)
    return Frame.from_bytes(answer, MOST)


@pytest.mark.usefixtures("in_flower")
def test_the_app_carries_frames_and_answers(live: Live) -> None:
    assert carried(HELLO.to_bytes(), live.path).facts["silo"] == "a"
    assert carried(admission(PUBLIC).to_bytes(), live.path).kind == "admitted"
    assert carried(announcement(PUBLIC, 1).to_bytes(), live.path).kind == "update"
    assert reason(carried(b"nonsense", live.path)) == "malformed"


@pytest.mark.usefixtures("in_flower")
@pytest.mark.parametrize(
    ("frame", "timeout"),
    [
        (None, 5.0),
        ("text", 5.0),
        (7, 5.0),
        (HELLO.to_bytes(), None),
        (HELLO.to_bytes(), "5"),
        (HELLO.to_bytes(), float("nan")),
        (HELLO.to_bytes(), -1.0),
    ],
    ids=["no frame", "a text", "a number", "no timeout", "a text as timeout", "NaN as timeout", "a negative timeout"],
)
def test_the_app_says_nothing_of_what_goes_wrong(live: Live, frame: object, timeout: object) -> None:
    assert carried(frame, live.path, timeout) == UNREACHABLE


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
