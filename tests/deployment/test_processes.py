"""Processes of ours end with all that they started, whatever they do, and their errors name the log."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
import tomllib
from pathlib import Path

import pytest

from rpdp.deployment.files.certificates import (
    make_authority,
    make_loopback_certificate,
    make_server_certificate,
    make_silo_key,
)
from rpdp.deployment.flower.control import Control, Value, one_line
from rpdp.deployment.flower.environment import flower_environment
from rpdp.deployment.flower.flower_processes import SuperLink, SuperNode
from rpdp.deployment.processes import Process, free_port
from rpdp.errors import InputError, RpdpError

# A process that starts another one in a session of its own; both ignore SIGTERM if asked to.
FAMILY = """
import signal, subprocess, sys, time
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "child" not in sys.argv:
    subprocess.Popen([sys.executable, __file__, "child", *sys.argv[1:]], start_new_session=True)
    print("started", flush=True)
time.sleep(600)
"""


def python(tmp_path: Path, code: str, *arguments: str) -> Process:
    script = tmp_path / "script.py"
    script.write_text(code)
    command = [sys.executable, str(script), *arguments]
    return Process(command, environment={}, directory=tmp_path, log=tmp_path / "logs" / "it.log")


def gone_now(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def gone(pid: int, seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if gone_now(pid):
            return True
        time.sleep(0.05)
    return False


def family(tmp_path: Path, *arguments: str) -> tuple[Process, int]:
    process = python(tmp_path, FAMILY, *arguments)
    process.wait_until(lambda: len(process.descendants()) == 1, timeout=20, what="started")
    process.wait_until(lambda: "started" in process.output(), timeout=20, what="ready")
    time.sleep(0.3)  # the child sets its signal handler
    return process, process.descendants()[0]


def test_a_polite_family(tmp_path: Path) -> None:
    process, child = family(tmp_path)
    with process:
        assert os.getsid(child) != os.getsid(process.pid)
    assert process.exit_code == -signal.SIGTERM
    assert gone(child)


def test_a_deaf_family(tmp_path: Path) -> None:
    process, child = family(tmp_path, "deaf")
    began = time.monotonic()
    process.stop(grace=0.5)
    assert time.monotonic() - began < 3
    assert process.exit_code == -signal.SIGKILL
    assert gone(child)


def test_orphans(tmp_path: Path) -> None:
    process, child = family(tmp_path)
    bystander = python(tmp_path, FAMILY)
    with bystander:
        os.kill(process.pid, signal.SIGKILL)
        process.stop()
        assert gone(child)
        assert bystander.exit_code is None


# Starts the script that is named, as `rpdp deploy up` starts its processes, and lives on.
STARTER = """
import sys, time
from pathlib import Path
from rpdp.deployment.processes import Process
here = Path(sys.argv[1])
process = Process([sys.executable, *sys.argv[2:]], environment={}, directory=here, log=here / "inner.log")
process.wait_until(lambda: len(process.descendants()) == 1, timeout=20, what="started")
print(process.pid, *process.descendants(), flush=True)
time.sleep(600)
"""


def test_a_killed_starter(tmp_path: Path) -> None:
    """Nobody is left to stop what it started, but the guard; what others started goes on."""
    inner = tmp_path / "family.py"
    inner.write_text(FAMILY)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    bystander, child = family(elsewhere)
    with bystander, python(tmp_path, STARTER, str(tmp_path), str(inner)) as starter:
        started = len(starter.output())
        starter.wait_until(lambda: "\n" in starter.output()[started:], timeout=30, what="started")
        pids = [int(word) for word in starter.output()[started:].split()]
        assert len(pids) == 2
        assert not any(map(gone_now, pids))
        os.kill(starter.pid, signal.SIGKILL)
        left = [pid for pid in pids if not gone(pid, 60.0)]
        for pid in left:  # even where the guard fails, the test leaves nobody behind
            os.kill(pid, signal.SIGKILL)
        assert left == []
        assert bystander.exit_code is None
        assert not gone_now(child)


def test_a_process_that_dies_names_its_log(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "it.log"
    for words in ("one", "two"):
        with python(tmp_path, f"import sys; sys.exit('too bad: {words}')") as process:
            with pytest.raises(RpdpError) as told:
                process.wait_until(lambda: False, timeout=20, what="ready")
            assert "ended with exit code 1 before ready" in str(told.value)
            assert str(log) in str(told.value)
            assert str(told.value).endswith(f":\ntoo bad: {words}")
    assert log.read_text() == "too bad: one\ntoo bad: two\n"
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_process_that_is_never_ready(tmp_path: Path) -> None:
    with (
        python(tmp_path, "import time; time.sleep(600)") as process,
        pytest.raises(RpdpError, match=r"not ready after 0\.3 s; its log is .*it\.log \(empty\)"),
    ):
        process.wait_until(lambda: False, timeout=0.3, what="ready")
    assert gone(process.pid)


def test_nothing_calls_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "1")
    monkeypatch.setenv("HTTPS_PROXY", "http://elsewhere")
    environment = flower_environment(tmp_path / "home")
    assert environment["FLWR_TELEMETRY_ENABLED"] == "0"
    assert environment["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert environment["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"
    assert environment["FLWR_HOME"] == str(tmp_path / "home")
    assert environment["PATH"].startswith(f"{Path(sys.executable).parent}{os.pathsep}")
    assert "HTTPS_PROXY" not in environment


def test_settings_arrive_as_they_are() -> None:
    line = one_line(
        {"socket": "/run/a b=c.sock", "name": "Münster 😀", "size": 3, "share": 1e-05, "fast": True, "a.b": -1}
    )
    assert line == 'socket="/run/a b=c.sock" name="Münster 😀" size=3 share=1e-05 fast=true a.b=-1'
    impossible: list[dict[str, Value]] = [{"x": 'a"b'}, {"x": "a\nb"}, {"x": "a\\b"}, {"x y": 1}, {"x": float("nan")}]
    for wrong in impossible:
        with pytest.raises(InputError, match="must"):
            one_line(wrong)


def test_connection_file(tmp_path: Path) -> None:
    authority = tmp_path / 'quo"te' / "ca.crt"
    Control(tmp_path / "control", "127.0.0.1:8443", authority)
    told = tomllib.loads((tmp_path / "control" / "config.toml").read_text())
    assert told["superlink"] == {
        "default": "tls",
        "tls": {"address": "127.0.0.1:8443", "root-certificates": str(authority)},
    }


def test_wrong_arguments(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    public = make_server_certificate(authority, tmp_path / "public", ["fl.example", "10.0.0.7"])
    with pytest.raises(InputError, match=r"valid for fl\.example, 10\.0\.0\.7, not for 127\.0\.0\.1"):
        SuperLink(tmp_path / "server", public)
    certificate = make_loopback_certificate(tmp_path / "loopback")
    with pytest.raises(InputError, match=r"none\.key: no such file"):
        SuperNode(tmp_path / "a", "127.0.0.1:1", authority.certificate, tmp_path / "none.key")
    with pytest.raises(InputError, match="must be HOST:PORT"):
        SuperNode(tmp_path / "a", "https://fl.example:1", authority.certificate, authority.key)
    link = SuperLink(tmp_path / "server", certificate)
    with pytest.raises(InputError, match="not a Flower app"):
        link.control.submit(tmp_path)
    with pytest.raises(RpdpError, match="is not running"):
        _ = link.process


def test_paths_may_be_text(tmp_path: Path) -> None:
    authority = make_authority(str(tmp_path))
    certificate = make_server_certificate(authority, str(tmp_path), ["127.0.0.1"])
    key = make_silo_key(str(tmp_path), "a")
    link = SuperLink(str(tmp_path / "server"), certificate, database=str(tmp_path / "db"), log=str(tmp_path / "log"))
    assert (link.database, link.log) == (tmp_path / "db", tmp_path / "log")
    node = SuperNode(str(tmp_path / "a"), link.address, str(authority.certificate), str(key.private))
    assert (node.home, node.key) == (tmp_path / "a", key.private)
    log = str(tmp_path / "it.log")
    with Process([sys.executable, "-c", ""], environment={}, directory=str(tmp_path), log=log) as process:
        assert process.output() == ""


def test_a_taken_port(tmp_path: Path) -> None:
    certificate = make_server_certificate(make_authority(tmp_path), tmp_path, ["127.0.0.1"])
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert free_port() != port
        with pytest.raises(InputError, match=f"port {port} of 127.0.0.1 cannot be used: Address already in use"):
            SuperLink(tmp_path / "server", certificate, port=port).start()
