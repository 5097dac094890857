"""The callers on an agent's socket: how many there may be, how long each may take, and who makes room for a new one.

The agent serves a fixed number of connections. A caller who sends nothing must not keep others out, so a connection has
a few seconds for the header of its request, and when all places are taken a new caller takes the place of the one that
has been silent for longest. Nothing of this depends on a record.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

from rpdp.federation.frames import HEADER_BYTES

MOST_CONNECTIONS = 16
HEADER_SECONDS = 5.0
"""Time to receive the header of a request."""

TRANSFER_SECONDS = 30.0
"""Time to receive a whole request, and again to send its answer."""

_CHUNK_BYTES = 1 << 20


class Caller:
    """One connection: reads a request within its time, and knows since when the caller has been silent."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._began = time.monotonic()
        self._received = 0
        self.silent_since: float | None = self._began
        """When the caller last sent or took something; None while the agent works on the request."""

        self.is_sent_away = False

    def take(self, count: int) -> bytes:
        """Read so many bytes, or fewer at the end.

        All reads share one deadline: a caller who sends slowly keeps its place no longer than others.
        """
        data = bytearray()
        while len(data) < count:
            self._connection.settimeout(max(self._deadline - time.monotonic(), 0.001))
            chunk = self._connection.recv(min(count - len(data), _CHUNK_BYTES))
            if not chunk:
                break
            data += chunk
            self._received += len(chunk)
            self.silent_since = time.monotonic()
        return bytes(data)

    def send(self, answer: bytes) -> None:
        """Send the answer."""
        self.silent_since = time.monotonic()
        self._connection.settimeout(TRANSFER_SECONDS)
        self._connection.sendall(answer)

    @property
    def _deadline(self) -> float:
        return self._began + (HEADER_SECONDS if self._received < HEADER_BYTES else TRANSFER_SECONDS)

    def send_away(self) -> None:
        """End the connection; its thread notices at once."""
        self.is_sent_away = True
        with suppress(OSError):  # the caller has gone already
            self._connection.shutdown(socket.SHUT_RDWR)


class Connections:
    """The places for callers. Safe to use from several threads."""

    def __init__(self) -> None:
        self._callers: set[Caller] = set()
        self._lock = threading.Lock()

    def enter(self, caller: Caller) -> bool:
        """Give the caller a place, if need be that of the longest silent one; False if nobody is silent."""
        with self._lock:
            if len(self._callers) >= MOST_CONNECTIONS and not self._make_room():
                return False
            self._callers.add(caller)
            return True

    def begin_work(self, caller: Caller) -> None:
        """From here on the caller waits for the agent and keeps its place, unless it has lost it already."""
        with self._lock:
            if caller.is_sent_away:
                raise ConnectionAbortedError("made room for another caller")
            caller.silent_since = None

    def leave(self, caller: Caller) -> None:
        """Give the place back."""
        with self._lock:
            self._callers.discard(caller)

    def _make_room(self) -> bool:
        silent = {one: one.silent_since for one in self._callers if one.silent_since is not None}
        if not silent:
            return False
        longest = min(silent, key=silent.__getitem__)
        longest.send_away()
        self._callers.remove(longest)
        return True
