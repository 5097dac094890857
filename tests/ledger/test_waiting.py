"""Waiting for a ledger: one process writes at a time, the others wait as long as they were told to."""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from pathlib import Path

import pytest

from rpdp.cli.run import run as command
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.ledger import Ledger, LedgerInUseError
from tests.ledger import small


@pytest.fixture
def path(tmp_path: Path) -> Path:
    small.make(tmp_path).close()
    return tmp_path / "ledger.db"


def after(seconds: float, act: object) -> threading.Timer:
    timer = threading.Timer(seconds, act)  # type: ignore[arg-type]
    timer.start()
    return timer


def test_a_writer_waits_until_the_other_has_finished(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = Ledger.open(path)
    timer = after(0.3, first.close)
    with caplog.at_level(logging.WARNING, "rpdp.ledger"), Ledger.open(path, wait=60.0) as second:
        assert second.is_writer
        assert not first.is_writer
    timer.join()
    (told,) = caplog.messages  # once, however often it looked
    assert f"is being written by process {os.getpid()} on " in told
    assert "waiting for it, 60 s at most" in told


def test_a_writer_does_not_wait_longer_than_it_was_told(path: Path) -> None:
    with Ledger.open(path):
        for wait, words in ((0.0, "--wait SECONDS"), (0.2, "not free within 0.2 s")):
            began = time.monotonic()
            with pytest.raises(LedgerInUseError, match=f"is being written by process {os.getpid()} .*{words}"):
                Ledger.open(path, wait=wait)
            assert time.monotonic() - began >= wait
    Ledger.open(path).close()


@pytest.mark.parametrize("wait", [-1.0, float("nan"), float("inf")])
def test_a_wait_is_a_number_of_seconds(path: Path, wait: float) -> None:
    with pytest.raises(InputError, match="wait="):
        Ledger.open(path, wait=wait)
    Ledger.open(path).close()


def test_a_file_that_was_replaced_meanwhile_is_refused(path: Path) -> None:
    """The lock that was waited for is that of the old file; nobody would see what is written there."""
    first = Ledger.open(path)

    def replace() -> None:
        shutil.copy(path, path.with_name("copy.db"))
        path.with_name("copy.db").replace(path)
        first.close()

    timer = after(0.3, replace)
    with pytest.raises(PrivacyRefusal, match="moved, removed or replaced"):
        Ledger.open(path, wait=60.0)
    timer.join()
    assert not [one for one in threading.enumerate() if one is timer]


def test_commands_wait(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    budgets = path.with_name("new.csv")
    budgets.write_text("record,epsilon\nnew,1.0\n")
    commands = [
        ["prune", str(path)],
        ["cancel", str(path), "run"],
        ["add", str(path), "--budgets", str(budgets)],
    ]
    with Ledger.open(path):
        for given in commands:
            assert command(["ledger", *given, "--wait", "0.1"]) == 3
            assert f"is being written by process {os.getpid()}" in capsys.readouterr().err
    first = Ledger.open(path)
    timer = after(0.3, first.close)
    assert command(["ledger", *commands[2], "--wait", "60"]) == 0
    timer.join()
    assert "1 records added" in " ".join(capsys.readouterr().out.split())
