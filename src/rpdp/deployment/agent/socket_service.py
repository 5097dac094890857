"""The agent's ear: a Unix socket whose permissions say who may ask, one frame in and one frame out per connection.

Who can write to the socket's directory could put another socket in its place, and who can read the ledger needs no
agent; so both are checked before anything is served.
"""

from __future__ import annotations

import grp
import os
import select
import socket
import stat
import struct
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from rpdp.deployment.agent.agent import LOG
from rpdp.errors import InputError, PrivacyRefusal, Reason
from rpdp.federation.frames import Frame, refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rpdp.deployment.agent.agent import Agent

_MOST_CONNECTIONS = 16
_TALK_SECONDS = 30.0
"""For a whole request to come in, and for its answer to go out."""

_PIECE = 1 << 20
_LONGEST_PATH = 100
"""A Unix socket's path has room for 107 bytes."""


class Service:
    """Serves an agent on a socket until it is told to stop.

    Args:
        agent: Who answers.
        path: Of the socket.
        group: Whose members may ask, such as the SuperNode's; without it only this user.
    """

    def __init__(self, agent: Agent, path: Path, *, group: str | None = None) -> None:
        self._agent = agent
        self._path = path
        self._group = group
        self._stop = threading.Event()
        self._slots = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._wake, self._woken = os.pipe()

    def stop(self) -> None:
        """Take no more requests; may be called from a signal handler or another thread."""
        self._stop.set()
        os.write(self._woken, b".")

    def serve(self) -> None:
        """Listen, answer, and go when told to; the socket is gone afterwards."""
        require_own_directory(self._path)
        _remove_stale(self._path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            self._bind(listener)
            LOG.info("silo %s listens on %s", self._agent.silo.name, self._path)
            try:
                while not self._stop.is_set():
                    ready, _, _ = select.select([listener.fileno(), self._wake], [], [])
                    if listener.fileno() in ready:
                        self._accept(listener)
            finally:
                with suppress(FileNotFoundError):
                    self._path.unlink()
        self._agent.close()

    def _bind(self, listener: socket.socket) -> None:
        before = os.umask(0o177)
        try:
            listener.bind(str(self._path))
        finally:
            os.umask(before)
        if self._group is not None:
            try:
                os.chown(self._path, -1, grp.getgrnam(self._group).gr_gid)
            except (KeyError, PermissionError) as error:
                self._path.unlink()
                raise InputError(f"group={self._group!r}: {error}; name a group that this user is in") from None
            self._path.chmod(0o660)
        listener.listen(_MOST_CONNECTIONS)

    def _accept(self, listener: socket.socket) -> None:
        try:
            link, _ = listener.accept()
        except OSError as error:  # the caller has gone, or no more files can be opened: no reason to stop
            LOG.warning("a connection could not be taken: %s", error)
            self._stop.wait(0.1)
            return
        if not self._slots.acquire(blocking=False):
            LOG.warning("more than %d connections at once; one was closed unanswered", _MOST_CONNECTIONS)
            link.close()
            return
        threading.Thread(target=self._converse, args=(link,), daemon=True).start()

    def _converse(self, link: socket.socket) -> None:
        try:
            with link:
                LOG.debug("asked by user %d", _peer(link))
                answer = self._reply(link).to_bytes()
                link.settimeout(_TALK_SECONDS)
                link.sendall(answer)
        except OSError as error:
            LOG.warning("a connection broke: %s", error)
        finally:
            self._slots.release()

    def _reply(self, link: socket.socket) -> Frame:
        take = _reader(link)
        try:
            request = Frame.read(take, self._agent.most_payload)
            if take(1):
                raise PrivacyRefusal("more than one frame in a request", Reason.MALFORMED)
        except PrivacyRefusal as refusal:
            LOG.warning("refused (%s): %s", refusal.reason, refusal)
            return refused(refusal.reason)
        return self._agent.answer(request)


def _reader(link: socket.socket) -> Callable[[int], bytes]:
    """Gives so many bytes, or fewer at the end; a caller who trickles them gets no more time than others."""
    until = time.monotonic() + _TALK_SECONDS

    def take(count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            link.settimeout(max(until - time.monotonic(), 0.001))
            piece = link.recv(min(count - len(data), _PIECE))
            if not piece:
                break
            data += piece
        return bytes(data)

    return take


def require_own_directory(path: Path) -> None:
    """Refuse a socket in a directory where others could put theirs in its place."""
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise InputError(f"socket={str(path)!r} is longer than {_LONGEST_PATH} bytes; choose a shorter path")
    directory = path.parent
    if not directory.is_dir():
        raise InputError(f"socket={str(path)!r}: there is no directory {directory}")
    found = directory.stat()
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PrivacyRefusal(
            f"socket={str(path)!r}: others can write to {directory}, and could put a socket of theirs there; let it "
            "belong to the agent's user, with `chmod go-w`"
        )


def require_private(path: Path) -> None:
    """Refuse a file of the silo that others can read or write."""
    if path.stat().st_mode & 0o077:
        raise PrivacyRefusal(f"{path}: others can get at it; `chmod go-rwx {path}`")


def _remove_stale(path: Path) -> None:
    """What a killed agent left behind; a living one is left alone."""
    if not path.exists() and not path.is_symlink():
        return
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise InputError(f"socket={str(path)!r} is there already, and is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink()
            return
    raise InputError(f"socket={str(path)!r}: another agent is listening there")


def _peer(link: socket.socket) -> int:
    """The user at the other end, as the system knows it."""
    _, user, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return int(user)
