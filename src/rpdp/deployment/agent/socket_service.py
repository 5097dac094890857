"""The socket of a silo agent: its permissions say who may ask; one frame in and one frame out per connection.

Anyone who can write to the socket's directory could put another socket in its place, so that is checked before anything
is served.
"""

from __future__ import annotations

import grp
import os
import pwd
import select
import socket
import struct
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rpdp.deployment.agent.agent import LOG
from rpdp.deployment.agent.connections import MOST_CONNECTIONS, Caller, Connections
from rpdp.deployment.own_socket import remove_stale, require_own_directory
from rpdp.errors import InputError, PrivacyRefusal, Reason
from rpdp.federation.frames import Frame, refused

if TYPE_CHECKING:
    from rpdp.deployment.agent.agent import Agent

_MOST_WAITING = 128
"""Callers that the kernel holds until they are accepted, which takes microseconds: only a flood fills this queue."""


class Service:
    """Serves an agent on a socket until `stop` is called.

    Args:
        agent: Answers the requests.
        path: Path of the socket.
        group: Group whose members may ask, such as the node's; without it only this user may.
    """

    def __init__(self, agent: Agent, path: str | Path, *, group: str | None = None) -> None:
        self._agent = agent
        self._path = Path(path)
        self._group = group
        self._stop = threading.Event()
        self._connections = Connections()
        self._wake: socket.socket | None = None

    def stop(self) -> None:
        """Take no more requests; may be called from a signal handler or another thread."""
        self._stop.set()
        # `serve` sets `_wake` before it first looks at `_stop`: without one, it will see that it was stopped.
        if self._wake is not None:
            with suppress(OSError):  # `serve` has ended, and closed it
                self._wake.send(b".")

    def serve(self) -> None:
        """Listen and answer until `stop` is called, then remove the socket."""
        require_own_directory(self._path)
        require_group(self._group)
        remove_stale(self._path)
        woken, self._wake = socket.socketpair()
        with woken, self._wake, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            self._bind(listener)
            LOG.info("silo %s listens on %s", self._agent.silo.name, self._path)
            try:
                while not self._stop.is_set():
                    ready, _, _ = select.select([listener, woken], [], [])
                    if listener in ready:
                        self._accept(listener)
            finally:
                self._path.unlink(missing_ok=True)
        self._agent.close()

    def _bind(self, listener: socket.socket) -> None:
        before = os.umask(0o177)
        try:
            listener.bind(str(self._path))
        finally:
            os.umask(before)
        if self._group is not None:
            os.chown(self._path, -1, grp.getgrnam(self._group).gr_gid)
            self._path.chmod(0o660)
        listener.listen(_MOST_WAITING)

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError as error:  # the caller has gone, or no more files can be opened: no reason to stop
            LOG.warning("cannot accept a connection: %s", error)
            self._stop.wait(0.1)
            return
        caller = Caller(connection)
        if not self._connections.enter(caller):
            LOG.warning("%d requests are being answered; closed another connection", MOST_CONNECTIONS)
            connection.close()
            return
        threading.Thread(target=self._answer, args=(connection, caller), daemon=True).start()

    def _answer(self, connection: socket.socket, caller: Caller) -> None:
        try:
            with connection:
                LOG.debug("request from user %d", _peer(connection))
                try:
                    request = Frame.read(caller.take, self._agent.most_payload)
                    if caller.take(1):
                        raise PrivacyRefusal("more than one frame in a request", Reason.MALFORMED)
                    self._connections.begin_work(caller)
                    answer = self._agent.answer(request)
                except PrivacyRefusal as refusal:
                    LOG.warning("refused (%s): %s", refusal.reason, refusal)
                    answer = refused(refusal.reason)
                caller.send(answer.to_bytes())
        except OSError as error:
            LOG.warning("lost a connection: %s", error)
        finally:
            self._connections.leave(caller)


def require_group(name: str | None) -> None:
    """Refuse a group to which this user cannot give the socket: it must be in that group itself."""
    if name is None:
        return
    try:
        wanted = grp.getgrnam(name).gr_gid
    except KeyError:
        raise InputError(f"group={name!r}: there is no such group; make it with `groupadd --system {name}`") from None
    if os.geteuid() != 0 and wanted not in {os.getegid(), *os.getgroups()}:
        user = pwd.getpwuid(os.geteuid()).pw_name
        raise InputError(
            f"group={name!r}: user {user!r}, who runs the agent, is not in it, so the silo's node could not reach the "
            f"agent; run `usermod --append --groups {name} {user}` and log in again, or restart the service"
        )


def _peer(connection: socket.socket) -> int:
    """The user id at the other end, as the kernel reports it."""
    credentials = struct.Struct("3i")
    _, user, _ = credentials.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size))
    return int(user)
