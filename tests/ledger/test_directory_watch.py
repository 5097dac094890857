"""A directory is read again whenever it may have changed, and only then."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from rpdp.ledger.stewardship import directory_watch
from rpdp.ledger.stewardship.directory_watch import DirectoryWatch

if TYPE_CHECKING:
    from collections.abc import Callable

SECOND = 10**9
NOW = 1_700_000_000 * SECOND
SETTLED = 2_500_000_000


@pytest.fixture(autouse=True)
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_watch, "time", SimpleNamespace(time_ns=lambda: NOW))


class Read:
    """Counts how often a directory is read, and may do something meanwhile."""

    def __init__(self, directory: Path, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.times = 0
        self._directory = directory
        self._meanwhile = meanwhile

    def __call__(self) -> list[str]:
        self.times += 1
        found = sorted(path.name for path in self._directory.iterdir())
        self._meanwhile()
        return found


def changed(directory: Path, ago: int) -> None:
    os.utime(directory, ns=(NOW - ago, NOW - ago))


def test_a_settled_directory_is_read_once_and_again_after_a_change(tmp_path: Path) -> None:
    changed(tmp_path, 10 * SECOND)
    read = Read(tmp_path)
    watch = DirectoryWatch(tmp_path, read)
    assert [watch.latest() for _ in range(5)] == [[]] * 5
    assert read.times == 1
    (tmp_path / "new").touch()
    changed(tmp_path, 9 * SECOND)
    assert [watch.latest() for _ in range(5)] == [["new"]] * 5
    assert read.times == 2


@pytest.mark.parametrize(
    ("ago", "times"),
    [(SETTLED + 1, 1), (SETTLED, 5), (SECOND, 5), (0, 5), (-SECOND, 5), (-(10**6) * SECOND, 5)],
    ids=["settled", "just not", "a second ago", "now", "a second ahead", "days ahead"],
)
def test_a_directory_that_may_change_without_a_new_time_stamp_is_read_each_time(
    tmp_path: Path, ago: int, times: int
) -> None:
    """The control is the first case."""
    changed(tmp_path, ago)
    read = Read(tmp_path)
    watch = DirectoryWatch(tmp_path, read)
    for _ in range(5):
        watch.latest()
    assert read.times == times


def test_a_clock_that_steps_back_to_the_last_change_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed(tmp_path, 10 * SECOND)
    read = Read(tmp_path)
    watch = DirectoryWatch(tmp_path, read)
    for ahead, times in ((0, 1), (-8 * SECOND, 2), (-8 * SECOND, 3), (0, 4), (0, 4)):
        monkeypatch.setattr(directory_watch, "time", SimpleNamespace(time_ns=lambda ahead=ahead: NOW + ahead))
        watch.latest()
        assert read.times == times


def test_what_arrives_while_it_is_read_is_seen_at_the_next_look(tmp_path: Path) -> None:
    changed(tmp_path, 10 * SECOND)
    arriving = ["first", "second"]

    def arrive() -> None:
        if arriving:
            (tmp_path / arriving.pop(0)).touch()
            changed(tmp_path, (8 + len(arriving)) * SECOND)

    watch = DirectoryWatch(tmp_path, Read(tmp_path, arrive))
    assert [watch.latest() for _ in range(4)] == [[], ["first"], ["first", "second"], ["first", "second"]]


def test_another_directory_of_the_same_name_is_read(tmp_path: Path) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    changed(inbox, 10 * SECOND)
    watch = DirectoryWatch(inbox, Read(inbox))
    assert watch.latest() == []
    inbox.rename(tmp_path / "old")
    inbox.mkdir()
    (inbox / "new").touch()
    changed(inbox, 10 * SECOND)
    assert watch.latest() == ["new"]


def test_a_directory_that_goes_is_read_each_time_so_that_the_reader_refuses(tmp_path: Path) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    changed(inbox, 10 * SECOND)
    read = Read(inbox)
    watch = DirectoryWatch(inbox, read)
    assert watch.latest() == []
    inbox.rename(tmp_path / "aside")
    for _ in range(3):
        with pytest.raises(FileNotFoundError):
            watch.latest()
    assert read.times == 4
    (tmp_path / "aside").rename(inbox)
    changed(inbox, 10 * SECOND)
    assert watch.latest() == []  # the control: it is back
    assert read.times == 5


def test_a_directory_that_cannot_be_looked_at_is_read_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed(tmp_path, 10 * SECOND)
    read = Read(tmp_path)
    watch = DirectoryWatch(tmp_path, read)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    with monkeypatch.context() as closed:
        closed.setattr(Path, "stat", refuse)
        for _ in range(3):
            watch.latest()
    assert read.times == 3
    for _ in range(3):
        watch.latest()
    assert read.times == 4  # the control


def test_a_reading_that_fails_is_not_remembered(tmp_path: Path) -> None:
    changed(tmp_path, 10 * SECOND)
    fails = iter([False, True, False])

    def fail() -> None:
        if next(fails):
            raise OSError("the disk fails")

    watch = DirectoryWatch(tmp_path, Read(tmp_path, fail))
    assert watch.latest() == []
    (tmp_path / "new").touch()
    changed(tmp_path, 9 * SECOND)
    with pytest.raises(OSError, match="the disk fails"):
        watch.latest()
    assert watch.latest() == ["new"]
