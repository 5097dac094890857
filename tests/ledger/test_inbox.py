"""The inbox: its cost does not grow with what waits in it, nothing in it blocks, and the agent can read all of it."""

from __future__ import annotations

import codecs
import errno
import fcntl
import os
import stat
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from rpdp.errors import InputError, PrivacyRefusal
from rpdp.ledger import Action, Ledger
from tests.ledger import small
from tests.ledger.small import LIFETIME_DELTA, heads

if TYPE_CHECKING:
    from collections.abc import Callable

AGENT = 65534
"""Another user than root."""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as two users")


def fill(ledger: Ledger, count: int) -> None:
    """Actions as a steward submits them, without waiting for the disk each time."""
    record = ledger.key.record("r0").reshape(1, 2)
    inbox = ledger.files.inbox
    for number in range(1, count + 1):
        action = Action("lower", ledger.id, record, np.array([1.9 - number * 1e-6]), np.array([np.nan]))
        (inbox / f"{number:020d}-{action.name}.action").write_bytes(action.to_bytes())
    long_ago = time.time_ns() - 10 * 10**9
    os.utime(inbox, ns=(long_ago, long_ago))  # as after some seconds


def seconds_per_step(ledger: Ledger, steps: int = 200) -> float:
    ledger.switched_off()
    taken = []
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(steps):
            ledger.switched_off()
        taken.append((time.perf_counter() - began) / steps)
    return min(taken)


def test_a_step_costs_the_same_however_many_actions_wait(tmp_path: Path) -> None:
    """Release 0.1 took 36 ms at 100 and 1.8 s at 10,000. A factor of 5 is beyond noise, and far below those."""
    cost = {}
    for count in (0, 100, 2000):
        directory = tmp_path / str(count)
        directory.mkdir()
        with small.admitted(directory) as ledger:
            fill(ledger, count)
            assert len(ledger.pending()) == count
            cost[count] = seconds_per_step(ledger)
    assert cost[2000] < 5 * cost[0] + 2e-5
    assert cost[100] < 5 * cost[0] + 2e-5


def test_every_arrival_is_heard_at_the_next_step(tmp_path: Path) -> None:
    """Also within one tick of the clock of the file system, and from somebody who bypasses rpdp."""
    with small.admitted(tmp_path, small.budgets(40)) as ledger:
        aside = tmp_path / "aside"
        aside.mkdir()
        for number in range(40):
            record = ledger.key.record(f"r{number}").reshape(1, 2)
            unchanged = np.array([np.nan])
            action = Action("withdraw", ledger.id, record, unchanged, unchanged)
            if number % 2:
                ledger.submit(action)
            else:
                (aside / "new").write_bytes(action.to_bytes())
                (aside / "new").rename(tmp_path / "ledger.db.inbox" / f"{number + 1:020d}-{action.name}.action")
            assert ledger.switched_off().tolist() == list(range(number + 1))


def test_a_clock_that_steps_back_hides_nothing(tmp_path: Path) -> None:
    """The directory has a time in the future, or one that comes again: the next action is seen all the same."""
    with small.admitted(tmp_path) as ledger:
        inbox = tmp_path / "ledger.db.inbox"
        for number, ahead in enumerate((10**13, 0, -(10**13))):
            then = time.time_ns() + ahead
            os.utime(inbox, ns=(then, then))
            before = ledger.switched_off().size
            ledger.withdraw([f"r{number}"])
            assert inbox.stat().st_mtime_ns > then
            assert ledger.switched_off().size == before + 1


def named(inbox: Path) -> Path:
    return inbox / f"{5:020d}-abc.action"


@pytest.mark.parametrize(
    "place",
    [
        lambda inbox: os.mkfifo(named(inbox)),
        lambda inbox: named(inbox).mkdir(),
        lambda inbox: named(inbox).symlink_to("/dev/zero"),
        lambda inbox: named(inbox).symlink_to(inbox / "nothing"),
    ],
    ids=["a pipe", "a directory", "a link to a device", "a link to nothing"],
)
@pytest.mark.timeout(60)
def test_only_regular_files_are_opened(tmp_path: Path, place: Callable[[Path], None]) -> None:
    """Refused at once: it may stand for a withdrawal. Nothing waits for a pipe."""
    inbox = tmp_path / "ledger.db.inbox"
    with small.admitted(tmp_path) as ledger:
        place(inbox)
        for ask in (ledger.switched_off, lambda: ledger.charge("run", 1, heads)):
            with pytest.raises(PrivacyRefusal, match="this steward action cannot be read"):
                ask()
        named(inbox).rmdir() if named(inbox).is_dir() else named(inbox).unlink()
        assert ledger.charge("run", 1, heads).is_new


@pytest.mark.parametrize(
    ("number", "error", "way_out"),
    [
        (errno.ENOSPC, PrivacyRefusal, "free some space"),
        (errno.EDQUOT, PrivacyRefusal, "free some space"),
        (errno.EIO, PrivacyRefusal, "check the disk"),
        (errno.EROFS, InputError, "run this as the user"),
        (errno.EACCES, InputError, "run this as the user"),
    ],
)
def test_a_disk_that_fails_is_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, error: type[Exception], way_out: str
) -> None:
    with small.admitted(tmp_path) as ledger:

        def fail(*arguments: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(error, match=rf"{os.strerror(number)}\) and is not in force; .*{way_out}"):
            ledger.withdraw(["r1"])
        monkeypatch.undo()
        assert ledger.pending() == []
        assert os.listdir(tmp_path / "ledger.db.inbox") == []  # noqa: PTH208


def as_agent(work: Callable[[], object]) -> str:
    """Do something as another user, who owns the ledger; return what came of it.

    In a forked child, because that user may not be able to read the interpreter and its modules.
    """
    for name in ("ascii", "utf-8"):
        codecs.lookup(name)
    answer = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover
        try:
            os.setgid(AGENT)
            os.setuid(AGENT)
            os.write(answer[1], repr(work()).encode())
        except BaseException as error:
            os.write(answer[1], f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(answer[1])
    os.waitpid(child, 0)
    with os.fdopen(answer[0], "rb") as found:
        return found.read().decode()


@pytest.fixture
def owned(memory: Path) -> Path:
    """A ledger with an admitted run, which belongs to the agent's user and not to root."""
    small.admitted(memory).close()
    for path in (memory, *memory.rglob("*")):
        os.chown(path, AGENT, AGENT)
    return memory


@as_root
def test_what_root_submits_the_agent_can_read(owned: Path) -> None:
    """`rpdp ledger withdraw` as root: its file, and all that it leaves behind, belongs to the owner of the ledger."""
    (owned / "ledger.db.lock").unlink()
    with Ledger.read(owned / "ledger.db") as steward:
        steward.withdraw(["r3"])
    (file,) = (owned / "ledger.db.inbox").iterdir()
    assert (file.stat().st_uid, stat.S_IMODE(file.stat().st_mode)) == (AGENT, 0o600)
    Ledger.open(owned / "ledger.db").close()
    Ledger.read(owned / "ledger.db").close()
    assert {path.stat().st_uid for path in owned.rglob("*")} == {AGENT}
    with Ledger.read(owned / "ledger.db") as steward:
        steward.withdraw(["r5"])

    def next_round() -> object:
        with Ledger.open(owned / "ledger.db") as ledger:
            ledger.left(small.budgets(), LIFETIME_DELTA)
            return ledger.charge("run", 1, heads).joined, ledger.switched_off().tolist()

    assert as_agent(next_round) == "(True, [3, 5])"


@as_root
def test_an_action_that_the_agent_could_not_read_is_not_submitted(owned: Path) -> None:
    """Another user who may write the inbox is refused; the run goes on."""
    (owned / "ledger.db.inbox").chmod(0o777)
    os.chown(owned / "ledger.db.inbox", AGENT - 1, AGENT - 1)
    for name in ("ledger.db", "ledger.db.key"):
        os.chown(owned / name, AGENT, AGENT)

    def withdraw() -> object:
        with Ledger.read(owned / "ledger.db") as ledger:
            return ledger.withdraw(["r1"])

    told = as_agent(withdraw)
    assert told.startswith("InputError")
    assert f"belongs to user {AGENT - 1}, who could not read an action of user {AGENT}" in told
    assert os.listdir(owned / "ledger.db.inbox") == []  # noqa: PTH208


def test_two_stewards_at_once_are_one_after_the_other(tmp_path: Path) -> None:
    """Each holds the inbox while it counts: two actions of one number would have no order."""
    with small.make(tmp_path) as ledger:
        held = os.open(ledger.files.inbox, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(held, fcntl.LOCK_EX)
        other = threading.Thread(target=ledger.withdraw, args=(["r0"],))
        other.start()
        other.join(0.1)
        assert other.is_alive()
        assert ledger.inbox.files() == ()
        os.close(held)
        other.join(10.0)
        assert [file.partition("-")[0] for file in ledger.inbox.files()] == [f"{1:020d}"]


def test_an_inbox_that_cannot_be_listed_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(_: object) -> list[str]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with small.make(tmp_path) as ledger:
        with monkeypatch.context() as broken:
            broken.setattr(os, "listdir", denied)
            with pytest.raises(PrivacyRefusal, match="so a withdrawal could not take effect"):
                ledger.inbox.files()
        assert ledger.inbox.files() == ()
