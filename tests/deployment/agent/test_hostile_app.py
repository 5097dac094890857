"""Whoever submits an app to the federation runs code on the silo's machine, as the SuperNode's user: it gets nowhere.

The app is a process of another user, in the group that may use the agent's socket. It needs root to be played.
"""

from __future__ import annotations

import grp
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rpdp.federation.frames import Frame
from tests.deployment.agent.scene import Live, Making, admission, announcement, opened, public_plan, status

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can play another user")

PUBLIC = public_plan()
NOBODY = 65534
STRANGER = 65533
"""Of no group that matters."""

APP = """
import json, os, signal, socket, sys, tempfile
group, silo, data, place, agent, frame = json.loads(sys.argv[1])
os.setgroups([]); os.setgid(group); os.setuid(65534)

def listed(path): return os.listdir(path)
def read(path): return open(path, "rb").read()
def changed(path): return open(path, "r+b").write(b"x")
def made(path): return open(path, "wb").write(b"x")
def replaced(path):
    own = tempfile.mkstemp()[1]
    try: os.replace(own, path)
    finally: os.unlink(own)
def bound(path):
    with socket.socket(socket.AF_UNIX) as link: link.bind(path)
def asked(path):
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(path); link.sendall(bytes.fromhex(frame)); link.shutdown(socket.SHUT_WR)
        return link.recv(100000).hex()

attempts = {
    "list the data": (listed, data),
    "read a data file": (read, data + "/records.csv"),
    "read the budgets": (read, silo + "/budgets.csv"),
    "read the ledger": (read, silo + "/a.db"),
    "read its log": (read, silo + "/a.db-wal"),
    "read its shared memory": (read, silo + "/a.db-shm"),
    "read the key of the record hashes": (read, silo + "/a.db.key"),
    "read the newest head": (read, silo + "/a.db.head"),
    "list the withdrawals": (listed, silo + "/a.db.inbox"),
    "put a withdrawal of its own": (made, silo + "/a.db.inbox/x.action"),
    "change the ledger": (changed, silo + "/a.db"),
    "change the newest head": (changed, silo + "/a.db.head"),
    "take the lock": (changed, silo + "/a.db.lock"),
    "delete the ledger": (os.unlink, silo + "/a.db"),
    "put a ledger in its place": (replaced, silo + "/a.db"),
    "make a file beside it": (made, silo + "/new"),
    "read the agent's memory": (read, f"/proc/{agent}/mem"),
    "read the agent's environment": (read, f"/proc/{agent}/environ"),
    "list the agent's open files": (listed, f"/proc/{agent}/fd"),
    "stop the agent": (lambda _: os.kill(agent, signal.SIGTERM), ""),
    "bind the agent's socket": (bound, place + "/s"),
    "delete the agent's socket": (os.unlink, place + "/s"),
    "move it away": (lambda path: os.rename(path, path + ".old"), place + "/s"),
    "bind a socket beside it": (bound, place + "/t"),
    "open the directory to all": (lambda path: os.chmod(path, 0o777), place),
    "ask the agent": (asked, place + "/s"),
}
outcomes = {}
for name, (attempt, path) in attempts.items():
    try:
        outcomes[name] = ["done", str(attempt(path))]
    except OSError as error:
        outcomes[name] = ["denied", type(error).__name__]
print(json.dumps(outcomes))
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """Directories that every user can walk through, as on a hospital's machine."""
    made = Path(tempfile.mkdtemp(prefix="rpdp-silo-"))
    for path, mode in ((made, 0o755), (made / "silo", 0o755), (made / "silo" / "data", 0o700), (made / "run", 0o755)):
        path.mkdir(exist_ok=True)
        path.chmod(mode)
    (made / "silo" / "data" / "records.csv").write_text("a secret")
    budgets = made / "silo" / "budgets.csv"
    budgets.touch(0o600)
    yield made
    shutil.rmtree(made)


def played(home: Path, group: int, request: Frame) -> dict[str, list[str]]:
    given = [group, str(home / "silo"), str(home / "silo" / "data"), str(home / "run"), os.getpid()]
    command = [sys.executable, "-I", "-c", APP, json.dumps([*given, request.to_bytes().hex()])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


def test_an_app_of_the_supernodes_user_gets_answers_and_nothing_else(home: Path) -> None:
    group = grp.getgrgid(NOBODY).gr_name
    with opened(home / "silo", Making(PUBLIC)) as agent, Live(agent, home / "run" / "s", group) as live:
        live.ask(admission(PUBLIC))
        live.ask(announcement(PUBLIC, 1))
        outcomes = played(home, NOBODY, announcement(PUBLIC, 2))
        word, answer = outcomes.pop("ask the agent")
        assert word == "done"
        assert Frame.from_bytes(bytes.fromhex(answer), 1000).kind == "update"
        assert status(agent).announced == 2  # charged like any other
        assert {name: word for name, (word, _) in outcomes.items() if word != "denied"} == {}
        assert live.ask(announcement(PUBLIC, 3)).kind == "update"
    lines = [f"{name:36s} {word} ({error})\n" for name, (word, error) in outcomes.items()]
    sys.stdout.write("".join(["\n", *lines]))


def test_a_user_outside_the_group_cannot_even_ask(home: Path) -> None:
    group = grp.getgrgid(NOBODY).gr_name
    with opened(home / "silo", Making(PUBLIC)) as agent, Live(agent, home / "run" / "s", group):
        outcomes = played(home, STRANGER, Frame({"kind": "hello"}))
        assert {name: word for name, (word, _) in outcomes.items() if word != "denied"} == {}


def test_an_app_of_the_agents_own_user_would_get_at_everything(home: Path) -> None:
    """The control, and the reason for two users: the same attempts work where nothing forbids them."""
    (home / "silo" / "data").chmod(0o755)
    (home / "silo" / "budgets.csv").chmod(0o644)
    with opened(home / "silo", Making(PUBLIC)) as agent, Live(agent, home / "run" / "s", "nogroup"):
        (home / "silo" / "a.db").chmod(0o644)
        outcomes = played(home, NOBODY, Frame({"kind": "hello"}))
    done = {name for name, (word, _) in outcomes.items() if word == "done"}
    assert done == {"list the data", "read a data file", "read the budgets", "read the ledger", "ask the agent"}
