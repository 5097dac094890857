"""Asks a silo agent over its Unix socket. Imports no third-party package."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from rpdp.errors import RpdpError

if TYPE_CHECKING:
    from pathlib import Path

_PIECE = 1 << 20


class Unreachable(RpdpError):
    """The agent is not there, or did not answer in time."""


def ask(path: str | Path, request: bytes, *, timeout: float) -> bytes:
    """Send one frame, and receive one until the agent closes the connection."""
    until = time.monotonic() + timeout
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(timeout)
            link.connect(str(path))
            with suppress(BrokenPipeError, ConnectionResetError):  # a refusal may come before everything is sent
                link.sendall(request)
                link.shutdown(socket.SHUT_WR)
            return _all(link, until)
    except OSError as error:
        raise Unreachable(f"{path}: {error}") from None


def _all(link: socket.socket, until: float) -> bytes:
    pieces = []
    while True:
        link.settimeout(max(until - time.monotonic(), 0.001))
        try:
            piece = link.recv(_PIECE)
        except ConnectionResetError:  # the agent had heard enough, and closed
            piece = b""
        if not piece:
            break
        pieces.append(piece)
    if not pieces:
        raise Unreachable("the agent closed the connection without an answer")
    return b"".join(pieces)
