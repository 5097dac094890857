"""Child processes that end together with everything they started.

Flower's processes start others, some in their own session, and these outlive a killed parent for a while. So each
process gets a mark in its environment, which all its descendants inherit: stopping ends exactly the processes with this
mark, each by its id. (Without /proc the mark cannot be read; Flower's own watchdogs then end the rest.) If this process
itself is killed, `rpdp.deployment.process_guard` does the same.
"""

from __future__ import annotations

import atexit
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Self

from rpdp.errors import InputError, RpdpError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

POLL_SECONDS = 0.1
DEFAULT_GRACE = 10.0
_MARK = "RPDP_PROCESS"
_LOG_TAIL = 800  # characters of the log that an error repeats


class Process:
    """A running command that writes to a log file, readable by its owner only; it is stopped when the context ends."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        directory: str | Path,
        log: str | Path,
        name: str = "",
    ) -> None:
        self.name = name or Path(command[0]).name
        self.log = Path(log)
        self._mark = secrets.token_hex(16)
        self.log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as output:
            self._log_start = output.tell()
            _announce_to_guard(self._mark)
            self._popen = subprocess.Popen(  # noqa: S603 (the command is ours)
                command,
                env={**environment, _MARK: self._mark},
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The id of the process itself."""
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative if a signal ended it."""
        return self._popen.poll()

    def output(self) -> str:
        """What this process has written to its log, without earlier processes that used the same file."""
        with self.log.open("rb") as file:
            file.seek(self._log_start)
            return file.read().decode(errors="replace")

    def wait_until(self, ready: Callable[[], bool], *, timeout: float, what: str) -> None:
        """Wait until `ready()`; raise, with the end of the log, if the process ends first or time is up."""
        deadline = time.monotonic() + timeout
        while not ready():
            if (code := self.exit_code) is not None:
                raise RpdpError(f"{self.name} ended with exit code {code} before {what}{self._log_tail()}")
            if time.monotonic() > deadline:
                raise RpdpError(f"{self.name}: not {what} after {timeout:g} s{self._log_tail()}")
            time.sleep(POLL_SECONDS)

    def stop(self, grace: float = DEFAULT_GRACE) -> None:
        """Send SIGTERM to the process, then to what it left behind; after `grace` seconds SIGKILL to the rest."""
        deadline = time.monotonic() + grace
        if self.exit_code is None:
            self._popen.terminate()
            while self.exit_code is None and time.monotonic() < deadline:
                time.sleep(POLL_SECONDS)
        end_marked({self._mark}, deadline - time.monotonic())
        self.kill()

    def kill(self) -> None:
        """Send SIGKILL to the process and all its descendants."""
        if self.exit_code is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait()
        while left := self.descendants():  # one of them may have started another in between
            _signal(left, signal.SIGKILL)
            time.sleep(POLL_SECONDS / 10)

    def descendants(self) -> list[int]:
        """Ids of the running processes that it started, directly or not, even after its own end."""
        return [pid for pid in _marked({self._mark}) if pid != self.pid]

    def _log_tail(self) -> str:
        text = self.output().strip()
        return f"; its log is {self.log}" + (f" and ends with:\n{text[-_LOG_TAIL:]}" if text else " (empty)")


def end_marked(marks: set[str], grace: float) -> None:
    """Send SIGTERM to all processes that carry one of the marks, and SIGKILL after `grace` seconds."""
    deadline = time.monotonic() + grace
    number = signal.SIGTERM
    while left := _marked(marks):
        _signal(left, number)
        while _marked(marks) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        time.sleep(POLL_SECONDS / 10)
        number = signal.SIGKILL


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port that is not in use."""
    with _socket(host) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
    return port


def require_free_port(host: str, port: int) -> None:
    """Refuse a port that is in use: whoever connects would reach another server."""
    with _socket(host) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise InputError(f"port {port} of {host} cannot be used: {error.strerror}") from error


def _socket(host: str) -> socket.socket:
    return socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)


def _announce_to_guard(mark: str) -> None:
    """Give the guard a mark, before there is a process that carries it."""
    pipe = _guard().stdin
    assert pipe is not None
    with suppress(BrokenPipeError):  # the guard is gone; `stop` still works
        pipe.write(f"{mark}\n".encode())
        pipe.flush()


@cache
def _guard() -> subprocess.Popen[bytes]:
    guard = subprocess.Popen(
        [sys.executable, "-P", "-m", "rpdp.deployment.process_guard"],  # -P: no modules from the current directory
        env={name: value for name, value in os.environ.items() if name != _MARK},  # it must outlive our parent
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    atexit.register(guard.communicate)  # closes the pipe
    return guard


def _marked(marks: set[str]) -> list[int]:
    wanted = {f"{_MARK}={mark}".encode() for mark in marks}
    return [pid for pid in _running() if wanted.intersection(_environment(pid))]


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _running() -> list[int]:
    proc = Path("/proc")
    return [int(each.name) for each in proc.iterdir() if each.name.isdigit()] if proc.is_dir() else []


def _environment(pid: int) -> list[bytes]:
    try:  # empty for a zombie; unreadable for other users' processes
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
