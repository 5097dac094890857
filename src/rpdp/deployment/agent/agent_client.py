"""Client of a silo agent: one frame out and one frame back over the agent's Unix socket.

The Flower app loads this module anew for every message, so it imports the standard library and `rpdp.errors` only.
"""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from rpdp.errors import RpdpError
from rpdp.federation.frames import Frame

if TYPE_CHECKING:
    from pathlib import Path

_CHUNK_BYTES = 1 << 20
_RETRY_SECONDS = 0.01


class Unreachable(RpdpError):
    """The agent is not running, or it did not answer in time."""


def ask(path: str | Path, request: bytes, *, timeout: float) -> bytes:
    """Send one frame and receive bytes until the agent closes the connection."""
    if not timeout > 0.0:  # NaN as well
        raise Unreachable(f"{path}: a timeout of {timeout} s leaves no time for an answer")
    deadline = time.monotonic() + timeout
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            _connect(connection, path, deadline)
            # The agent may refuse, and close, before it has read everything: its answer is still there to read.
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(request)
                connection.shutdown(socket.SHUT_WR)
            return _receive_all(connection, deadline)
    except OSError as error:
        raise Unreachable(f"{path}: {error}") from None


def is_answering(path: str | Path, *, timeout: float = 5.0) -> bool:
    """Whether an agent answers on this socket."""
    try:
        return bool(ask(path, Frame({"kind": "hello"}).to_bytes(), timeout=timeout))
    except Unreachable:
        return False


def _connect(connection: socket.socket, path: str | Path, deadline: float) -> None:
    """Connect, and wait while the agent has more callers than it can take at once."""
    while True:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            return connection.connect(str(path))
        except BlockingIOError:  # a Unix socket with a timeout does not wait for room in the queue of the listener
            if time.monotonic() >= deadline:
                raise
            time.sleep(_RETRY_SECONDS)


def _receive_all(connection: socket.socket, deadline: float) -> bytes:
    chunks = []
    while True:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            chunk = connection.recv(_CHUNK_BYTES)
        except ConnectionResetError:  # the agent closed without reading the rest of the request
            chunk = b""
        if not chunk:
            break
        chunks.append(chunk)
    if not chunks:
        raise Unreachable("the agent closed the connection without an answer")
    return b"".join(chunks)
