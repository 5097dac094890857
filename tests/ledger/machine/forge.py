"""Forks processes on demand, warm: everything is imported once, so that a new process costs milliseconds.

    python -m tests.ledger.machine.forge FILE_DESCRIPTOR

A message with a descriptor asks for a process that serves on it, and is answered with its id; the text of an id asks to
kill that process and to wait until it is gone, with its locks. The forge ends when the other side closes, and takes its
processes along.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import tempfile
from multiprocessing.connection import Connection

from rpdp.ledger.inspection import verification
from tests.ledger.machine.session import Clock, Session


def warm_up(clock: Clock) -> None:
    """Do everything once, so that what libraries load on first use is loaded before processes are forked."""
    with tempfile.TemporaryDirectory() as directory:
        session, path = Session(clock), f"{directory}/ledger.db"
        session.do_create(directory, {"a": 1.0}, {})
        session.do_open(path, None)
        session.do_left(["a"])
        session.do_reserve("run", {"a": 0.5})
        session.do_charge("run", ["a"], 1, True)
        session.do_store("run", 1, b"update")
        session.do_act(path, "raise", "a", 2.0)
        session.do_close()
        session.do_inspect(path, ["a"])
        session.do_events(path)
    clock.cover()


def serve(descriptor: int, clock: Clock) -> None:
    """Run one process: commands in, outcomes out, until the other side closes."""
    connection = Connection(descriptor)
    session = Session(clock)
    try:
        while True:
            connection.send(session.run(*connection.recv()))
    except EOFError:
        os._exit(0)


def main() -> None:
    door = socket.socket(fileno=int(sys.argv[1]))
    children: set[int] = set()
    clock = Clock()
    setattr(verification, "reprice", lambda ledger, progress: iter(()))  # noqa: B010  # costs are made up here
    warm_up(clock)
    gc.collect()
    gc.freeze()  # forked processes share these objects as long as nobody touches them
    while True:
        text, descriptors, _, _ = socket.recv_fds(door, 64, 1)
        if not text:
            break
        if descriptors:
            child = os.fork()
            if child == 0:
                door.close()
                serve(descriptors[0], clock)
            os.close(descriptors[0])
            children.add(child)
            door.send(str(child).encode())
            continue
        end(int(text))
        children.discard(int(text))
        door.send(b"gone")
    for child in children:
        end(child)


def end(child: int) -> None:
    """Kill one child, which is not reaped yet, and wait for its end."""
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


if __name__ == "__main__":
    main()
