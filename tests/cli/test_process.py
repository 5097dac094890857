"""The command as a process: exit codes, streams, pipes, interrupts, terminals of all kinds; never a traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import rpdp as package

RPDP = [sys.executable, "-c", "from rpdp.cli import main; main()"]
PLAN = ["plan", "-T", "15", "-t", "50", "-d", "1e-4", "--participations", "8", "--accountant", "rdp", "-s", "9"]


def rpdp(*arguments: object, **environment: str) -> subprocess.CompletedProcess[bytes]:
    clean = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "PYTHONIOENCODING")}
    return subprocess.run(
        [*RPDP, *map(str, arguments)], capture_output=True, check=False, timeout=60, env={**clean, **environment}
    )


def test_good_input(budgets: Path) -> None:
    done = rpdp("budgets", "check", budgets)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"100 records, all good" in done.stdout


def test_bad_input(tmp_path: Path) -> None:
    refused = rpdp("budgets", "check", tmp_path / "nowhere.csv")
    assert (refused.returncode, refused.stdout) == (2, b"")
    assert refused.stderr.endswith(b"nowhere.csv: no such file\n")


def test_bad_usage_as_json() -> None:
    refused = rpdp("account", "--json")
    assert (refused.returncode, refused.stderr) == (2, b"")
    told = json.loads(refused.stdout)
    assert told["kind"] == "UsageError"
    assert "--rounds" in told["error"]


def test_installed_as_a_command() -> None:
    command = Path(sys.executable).with_name("rpdp")
    version = subprocess.run([command, "--version"], capture_output=True, check=True, timeout=60, text=True)
    assert version.stdout == f"rpdp {package.__version__}\n"


@pytest.mark.parametrize("extra", [[], ["--json"]], ids=["table", "JSON"])
def test_a_terminal_without_greek_letters(budgets: Path, extra: list[str]) -> None:
    shown = rpdp(*PLAN, "-b", budgets, "--explain", "r-000", *extra, PYTHONIOENCODING="ascii")
    assert (shown.returncode, shown.stderr) == (0, b"")
    text = shown.stdout.decode("ascii")
    if extra:
        assert "allows ε = 0.1" in json.loads(text)["explanation"]
    else:
        assert "allows epsilon = 0.1" in text
        assert "| sigma = 9 | delta = 0.0001" in text


@pytest.mark.parametrize("arguments", [["--help"], ["plan", "--help"], [*PLAN, "--nonsense"], PLAN])
def test_help_and_errors_without_greek_letters(arguments: list[str]) -> None:
    plain = {"PYTHONIOENCODING": "", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    shown = rpdp(*arguments, **plain)
    assert shown.returncode == (0 if "--help" in arguments else 2)
    assert b"Traceback" not in shown.stderr
    assert (shown.stdout + shown.stderr).decode("ascii")


def test_narrow_terminals_cut_nothing(budgets: Path) -> None:
    shown = rpdp(*PLAN, "-b", budgets, COLUMNS="60", PYTHONIOENCODING="utf-8").stdout.decode()
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= 60
    wide = rpdp(*PLAN, "-b", budgets, COLUMNS="20", PYTHONIOENCODING="utf-8").stdout.decode()
    assert "…" not in wide
    assert [line.split() for line in shown.splitlines() if line.endswith(" 0")] == [
        line.split() for line in wide.splitlines() if line.endswith(" 0")
    ]


@pytest.mark.parametrize("extra", [[], ["--json"]], ids=["table", "JSON"])
def test_a_reader_that_leaves_early(extra: list[str]) -> None:
    """Like `rpdp … | head -0`: nobody reads, nothing complains."""
    account = ["account", "-T", "5", "-t", "5", "-d", "1e-3", "--participations", "5", "-s", "5", *extra]
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.Popen([*RPDP, *account], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    _, errors = process.communicate(timeout=60)
    assert errors == b""
    assert process.returncode == 1


def test_interrupted_leaves_no_traceback(tmp_path: Path) -> None:
    """Ctrl-C while a frontier is priced, which would take minutes: the process says that it works, then is stopped."""
    started = tmp_path / "started"
    sigmas = ",".join(str(1 + number / 1000) for number in range(1000))
    code = (
        "import pathlib, rpdp.planning as planning; from rpdp.cli import main; price = planning.frontier\n"
        f"def marked(*a, **k): pathlib.Path({str(started)!r}).touch(); return price(*a, **k)\n"
        "planning.frontier = marked; main()"
    )
    arguments = ["frontier", *PLAN[1:-2], "--distribution", "ThreeLevels", "--noise-multipliers", sigmas]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not started.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out, errors) == (130, "", "\ninterrupted\n")
