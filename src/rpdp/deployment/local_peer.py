"""Who is at the other end of a TCP connection on this machine: the user, as the kernel knows it.

A port on loopback is open to every user of the machine. A server that wants to be reached by its own user alone asks
the kernel whose the other end is. Only an open connection has an owner: of one that was closed, or that comes from
another network namespace, nothing is known, and it counts as a stranger's.
"""

from __future__ import annotations

import socket
import struct
from pathlib import Path

_TABLE = Path("/proc/self/net/tcp")  # of IPv4; one line for each connection of this network namespace
_ESTABLISHED = "01"


def peer_user(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """The user whose process has connected from `client` to `server`; None if there is no such open connection.

    | the other end | what is returned |
    |---|---|
    | a process of this machine, connection open | its user |
    | a process that has closed its end already | None |
    | another machine or network namespace | None |
    """
    ends = [_address(*client), _address(*server)]
    try:
        lines = _TABLE.read_text(encoding="ascii").splitlines()[1:]
    except OSError:  # not Linux
        return None
    for line in lines:
        _, local, remote, state, _, _, _, user, *_ = line.split()
        if [local, remote] == ends and state == _ESTABLISHED:
            return int(user)
    return None


def _address(host: str, port: int) -> str:
    """An address as the kernel's table shows it: the bytes of the host as one number of this machine's byte order."""
    (number,) = struct.unpack("=I", socket.inet_aton(host))
    return f"{number:08X}:{port:04X}"
