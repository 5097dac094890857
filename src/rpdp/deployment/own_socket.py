"""Unix sockets in directories of one's own: the agent's, and the console's."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

from rpdp.errors import InputError, PrivacyRefusal

_LONGEST_PATH = 100
"""The path of a Unix socket can be at most 107 bytes long."""


def require_own_directory(path: str | Path) -> None:
    """Refuse a socket in a directory where others could put theirs in its place."""
    path = Path(path)
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


def remove_stale(path: Path) -> None:
    """Remove the socket that a killed agent left behind; refuse to replace a live one."""
    if not path.exists() and not path.is_symlink():
        return
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise InputError(f"socket={str(path)!r} exists already and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink()
            return
    raise InputError(f"socket={str(path)!r}: another process is listening there")
