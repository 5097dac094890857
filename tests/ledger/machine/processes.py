"""Processes that hold a ledger, as the tests see them: a command in, an outcome out, SIGKILL at any moment."""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
OK, REFUSED, INTERRUPTED, ERROR, KILLED = "ok", "refused", "interrupted", "error", "killed"


@dataclass(frozen=True)
class Trouble:
    """What happens to a command when it reaches a labelled point: the process is killed, or an exception is raised."""

    label: str
    is_crash: bool


@dataclass(frozen=True)
class Outcome:
    """How a command ended: `value` is its result, or the text of a refusal or an error."""

    kind: str
    value: Any = None

    @property
    def is_ok(self) -> bool:
        return self.kind == OK


class Forge:
    """The tests' end of the process that forks."""

    def __init__(self) -> None:
        self._door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "tests.ledger.machine.forge", str(theirs.fileno())]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # a fork has no threads
        self._process = subprocess.Popen(command, cwd=ROOT, env=environment, pass_fds=[theirs.fileno()])
        theirs.close()

    def process(self) -> tuple[int, Connection]:
        """Start a process; return its id and the connection to it."""
        ours, theirs = socket.socketpair()
        socket.send_fds(self._door, [b"serve"], [theirs.fileno()])
        theirs.close()
        return int(self._answer()), Connection(ours.detach())

    def end(self, child: int) -> None:
        """Kill a process; it is gone when this returns."""
        self._door.send(str(child).encode())
        self._answer()

    def close(self) -> None:
        self._door.close()
        self._process.wait()

    def _answer(self) -> str:
        text = self._door.recv(64).decode()
        assert text, "the forge ended"
        return text


@cache
def forge() -> Forge:
    """The forge of this test process."""
    made = Forge()
    atexit.register(made.close)
    return made


class Process:
    """A process that serves commands; forked when it is first needed, and again after it was killed."""

    def __init__(self) -> None:
        self._child: int | None = None
        self._connection: Connection | None = None

    def run(self, command: str, *arguments: Any, clock: float = 0.0, trouble: Trouble | None = None) -> Outcome:
        """Run one command with the clock this many seconds off, and with trouble on the way."""
        if self._connection is None:
            self._child, self._connection = forge().process()
        try:
            self._connection.send((command, arguments, clock, trouble))
            kind, value = self._connection.recv()
        except (EOFError, ConnectionResetError, BrokenPipeError):
            self.kill()
            return Outcome(KILLED)
        return Outcome(kind, value)

    def kill(self) -> None:
        """End the process with SIGKILL."""
        if self._connection is not None and self._child is not None:
            self._connection.close()
            forge().end(self._child)
        self._connection = self._child = None
