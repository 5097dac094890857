"""`rpdp silo` and `rpdp deploy`: what they show, their exit codes, and that what is refused leaves nothing behind."""

from __future__ import annotations

import ctypes
import fcntl
import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rpdp import BudgetTable, PublicPlan
from rpdp.cli.run import run as command
from rpdp.deployment.agent.agent_client import ask
from rpdp.deployment.files.layout import Layout
from rpdp.deployment.files.silo_file import SiloFile
from rpdp.deployment.flower import server_run as server
from rpdp.deployment.flower.control import Control, FlowerRun, FlowerRunStatus, Value
from rpdp.deployment.flower.environment import executable
from rpdp.deployment.trial import start_agent
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.federation.frames import Frame
from rpdp.ledger import Ledger
from rpdp.planning import Allowance, assign_allowed

from . import trials

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SILOS = "silo-00,silo-01"
NO_GRID: Any = None


class Rpdp:
    """Runs `rpdp` in this process, in a directory of its own with a study file."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object, code: int = 0) -> str:
        self._capsys.readouterr()
        found = command([str(argument) for argument in arguments])
        captured = self._capsys.readouterr()
        assert found == code, captured
        return " ".join((captured.out + captured.err).split())

    def json(self, *arguments: object, code: int = 0) -> dict[str, Any]:
        value = json.loads(self(*arguments, "--json", code=code))
        assert isinstance(value, dict)
        return value


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Commands that would have a process of their own leave log and signals of this one alone."""
    log, numbers = logging.getLogger("rpdp"), (signal.SIGTERM, signal.SIGINT)
    level, handlers, signals = log.level, log.handlers[:], [signal.getsignal(number) for number in numbers]
    wakeup = signal.set_wakeup_fd(-1)
    yield
    signal.set_wakeup_fd(wakeup)
    log.setLevel(level)
    log.handlers[:] = handlers
    for number, handler in zip(numbers, signals, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def rpdp(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Rpdp:
    directory = tmp_path_factory.mktemp("c")  # a Unix socket's path must be short
    monkeypatch.chdir(directory)
    Path("study.toml").write_text(trials.study_text())
    return Rpdp(capsys)


@pytest.fixture
def made(rpdp: Rpdp) -> Rpdp:
    rpdp("deploy", "init", "study.toml", "--silos", SILOS, "--out", "f", *ports(), "--trial")
    return rpdp


def ports() -> list[object]:
    """Options with ports that are free here."""
    port, superlink = trials.free_ports(2)
    return ["--port", port, "--superlink-port", superlink]


COMMANDS = [["silo", "check"], ["silo", "serve"], *(["deploy", name] for name in ("init", "up", "register", "run"))]


@pytest.mark.parametrize("words", [["silo"], ["deploy"], *COMMANDS], ids=" ".join)
def test_every_help_has_an_example(rpdp: Rpdp, words: list[str]) -> None:
    shown = rpdp(*words, "--help")
    assert f"Example: rpdp {' '.join(words)}" in shown
    assert words in (["silo"], ["deploy"], ["silo", "serve"]) or "--json" in shown


def test_init(rpdp: Rpdp) -> None:
    told = rpdp("deploy", "init", "study.toml", "--silos", "silo-00, silo-01", "--out", "f", "--host", "fl.example")
    assert "f/server: for the server; certificate for fl.example, port 8443" in told
    assert "f/silos/silo-01: for silo silo-01, with the key of its node" in told
    assert "f/authority: keep it offline" in told
    assert "next: each silo completes its silo.toml" in told
    assert not Path("f/silos/silo-00/ledger.db").exists()


def test_init_for_a_trial(rpdp: Rpdp) -> None:
    told = rpdp.json("deploy", "init", "study.toml", "--silos", SILOS, "--out", "f", "--trial")
    server = str(Path("f/server").resolve())
    assert told == {"directory": "f", "silos": ["silo-00", "silo-01"], "server": server, "trial": True}
    with Ledger.read(Path("f/silos/silo-00/ledger.db")) as ledger:
        assert (ledger.kind, ledger.lifetime_delta) == ("production", 2e-3)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["none.toml", "--silos", SILOS, "--out", "f"], "none.toml: cannot be read"),
        (["study.toml", "--silos", "a,a", "--out", "f"], "none twice"),
        (["study.toml", "--silos", "a,,b", "--out", "f"], "silos='' must be a text"),
        (["study.toml", "--silos", "../a", "--out", "f"], "must be the name of a directory"),
        (["study.toml", "--silos", SILOS, "--out", "f", "--host", "fl.example:1"], "neither a host name nor"),
        (["study.toml", "--silos", SILOS, "--out", "f", "--port", "0"], "--port"),
        (["study.toml", "--silos", "north,silo-00", "--out", "f", "--trial"], "data.part='north' must be one of"),
        (["study.toml", "--out", "f"], "Missing option '--silos'"),
        (["study.toml", "--silos", SILOS], "Missing option '--out'"),
    ],
)
def test_init_with_bad_input(rpdp: Rpdp, arguments: list[str], expected: str) -> None:
    assert expected in rpdp("deploy", "init", *arguments, code=2)
    told = rpdp.json("deploy", "init", *arguments, code=2)
    assert told["exit_code"] == 2
    assert expected in told["error"]
    assert [path.name for path in Path().iterdir()] == ["study.toml"]


def test_init_twice(made: Rpdp) -> None:
    before = Path("f/authority/ca.key").read_bytes()
    told = made("deploy", "init", "study.toml", "--silos", SILOS, "--out", "f", code=2)
    assert "f is not an empty directory" in told
    assert Path("f/authority/ca.key").read_bytes() == before


def test_check(made: Rpdp) -> None:
    trials.set_value(
        Layout.read(Path("f")), "silo-00", "release_after", "20"
    )  # it is measured, perhaps on a busy machine
    told = made.json("silo", "check", "f/silos/silo-00/silo.toml")
    assert (told["silo"], told["kind"], told["runs"], told["max_runs"]) == ("silo-00", "production", 0, 2)
    assert told["release_after"] == 20.0
    assert told["models"]["study"]["parameters"] == 31
    assert told["socket"] == str(Path("f/silos/silo-00/agent.sock").resolve())
    shown = made("silo", "check", "f/silos/silo-00/silo.toml")
    assert f"silo silo-00: {told['records']} records, each with a budget and an account" in shown
    assert "answers leave 20 s after the request" in shown
    assert 0.0 < told["slowest_round"]["study"] < 18.0
    assert told["not_covered"] == []
    assert "model study: a round takes at most" in shown
    assert not Path(told["socket"]).exists()
    (plan,) = told["allowed_plans"]
    assert f"plans that may run: {plan}" in shown
    trials.set_value(Layout.read(Path("f")), "silo-00", "release_after", '"ready"')
    assert "their timing is not covered" in made("silo", "check", "f/silos/silo-00/silo.toml")
    trials.set_value(Layout.read(Path("f")), "silo-00", "allowed_plans", "[]")
    assert "plans that may run: none" in made("silo", "check", "f/silos/silo-00/silo.toml")
    path = Path("f/silos/silo-00/silo.toml")
    path.write_text(path.read_text().replace("allowed_plans = [] ", ""))
    assert "any plan within the policy may run and book budgets" in made("silo", "check", path)


def spends(*shares: float) -> None:
    """Book shares of everybody's budget at a silo, in runs that were over long ago."""
    plan = PublicPlan.read("f/server/plan.json")
    budgets = BudgetTable.read("f/silos/silo-00/budgets.csv")
    with Ledger.open("f/silos/silo-00/ledger.db") as ledger:
        for number, share in enumerate(shares):
            allowance = Allowance(share=share)
            allowed = ledger.left(budgets, ledger.lifetime_delta, allowance)
            ledger.reserve(f"run {number}", assign_allowed(plan, budgets.ids, allowed), None, allowance)
            ledger.charge(f"run {number}", plan.schedule.rounds, lambda: False, lambda: (1,))


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ((), "{records} of {records} records can take part in full, 0 reduced, 0 not at all"),
        ((0.8,), " used up by earlier runs), 0 not at all"),
        ((1.0,) * 20, "silo silo-00: 0 of {records} records can take part in full"),
    ],
    ids=["fresh", "used", "used up"],
)
def test_check_says_what_the_next_run_finds(made: Rpdp, shares: tuple[float, ...], expected: str) -> None:
    """On a fresh, a used and a used-up ledger; for the largest run of the policy, or for a plan."""
    silo, more = "f/silos/silo-00/silo.toml", max(2 - len(shares), 0)
    trials.set_value(Layout.read(Path("f")), "silo-00", "release_after", "20")
    spends(*shares)
    told = made.json("silo", "check", silo, "--plan", "f/server/plan.json")
    outlook = told["next_run"]["outlook"]
    shown = made("silo", "check", silo, "--plan", "f/server/plan.json")
    assert expected.format(records=told["records"]) in shown
    assert f"the next run, as plan {told['allowed_plans'][0][:12]}…:" in shown
    assert "runs like this one that fit, this one included: " in shown
    assert f"the policy admits {more} more run" in shown
    assert (outlook["records"], outlook["runs_allowed"]) == (told["records"], more)
    assert outlook["is_noise"] is (len(shares) == 20)
    assert ("the run would be noise" in shown) is (len(shares) == 20)
    assert (outlook["in_full"] == outlook["records"]) is (not shares)
    largest = made("silo", "check", silo)
    assert "the next run, as the largest run that the policy admits:" in largest
    assert "can take part in full" in largest


def test_check_without_an_allowance_says_why_nothing_is_known(made: Rpdp) -> None:
    trials.set_value(Layout.read(Path("f")), "silo-00", "release_after", "20")
    path = Path("f/silos/silo-00/silo.toml")
    lines = [line for line in path.read_text().splitlines() if not line.startswith("max_share_per_run")]
    path.write_text("\n".join(lines))
    assert "not known: this silo's policy states no max_share_per_run" in made("silo", "check", path)
    told = made.json("silo", "check", path)["next_run"]
    assert (told["outlook"], told["problem"].split(",")[0]) == (None, "this silo's policy states no max_share_per_run")


def test_check_demands_more_time_than_the_slowest_round_takes(made: Rpdp) -> None:
    """Else a record that slows its round would make it late, and everybody would see that."""
    trials.set_value(Layout.read(Path("f")), "silo-00", "release_after", "0.001")
    told = made("silo", "check", "f/silos/silo-00/silo.toml", code=3)
    assert "policy.release_after=0.001 is too short: with model study a round of" in told
    assert "Use release_after = " in told


def test_what_check_and_serve_refuse(made: Rpdp) -> None:
    silo = Path("f/silos/silo-00")
    with Ledger.open(silo / "ledger.db"):  # an agent is running
        assert "is being written by process" in made("silo", "check", silo / "silo.toml", code=3)
    (silo / "ledger.db").chmod(0o644)
    assert "others can read or write it" in made("silo", "check", silo / "silo.toml", code=3)
    assert "others can read or write it" in made("silo", "serve", silo / "silo.toml", code=3)
    (silo / "ledger.db").chmod(0o600)
    silo.chmod(0o770)
    assert "others can write to" in made("silo", "serve", silo / "silo.toml", code=3)
    silo.chmod(0o700)
    assert "group='nobody-at-all'" in made("silo", "serve", grouped(silo), code=2)
    assert "none.toml: cannot be read" in made("silo", "check", "none.toml", code=2)
    assert made.json("silo", "check", "none.toml", code=2)["kind"] == "InputError"
    assert not (silo / "agent.sock").exists()


def grouped(silo: Path) -> Path:
    changed = silo / "grouped.toml"
    changed.write_text((silo / "silo.toml").read_text().replace('# group = "flower"', 'group = "nobody-at-all"'))
    return changed


def _to_the_process(process: int) -> None:
    os.kill(process, signal.SIGTERM)


def _takes_sigterm(task: Path, process: int) -> bool:
    blocked = re.search(r"^SigBlk:\s*(\w+)$", (task / "status").read_text(), re.MULTILINE)
    assert blocked is not None
    return int(task.name) != process and not int(blocked[1], 16) >> (signal.SIGTERM - 1) & 1


def _to_another_thread(process: int) -> None:
    """As the system may choose while threads start and end. It never chooses one that blocks the signal."""
    thread = min(int(path.name) for path in Path(f"/proc/{process}/task").iterdir() if _takes_sigterm(path, process))
    assert ctypes.CDLL(None).tgkill(process, thread, signal.SIGTERM) == 0


@pytest.mark.parametrize("tell", [_to_the_process, _to_another_thread])
def test_serve_until_sigterm(made: Rpdp, tell: Callable[[int], None]) -> None:
    silo = Path("f/silos/silo-00")
    socket = silo / "agent.sock"
    words = [executable("rpdp"), "silo", "serve", "silo.toml", "-v"]
    with subprocess.Popen(words, cwd=silo, stderr=subprocess.PIPE, text=True) as agent:
        try:
            deadline = time.monotonic() + 60
            while not socket.exists() and agent.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
            time.sleep(0.1)
            answer = Frame.from_bytes(ask(socket, Frame({"kind": "hello"}).to_bytes(), timeout=30), 0)
            assert (answer.kind, answer.facts["silo"], answer.facts["is_simulation"]) == ("hello", "silo-00", False)
            assert socket.stat().st_mode & 0o777 == 0o600
            tell(agent.pid)
            _, told = agent.communicate(timeout=60)
        finally:
            agent.kill()
    assert agent.returncode == 0, told
    assert f"silo silo-00 listens on {socket.resolve()}" in told
    assert f"request from user {os.geteuid()}" in told
    assert not socket.exists()


# Runs, without a SuperLink


class Submitted:
    """What was submitted, and how it is said to have ended."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.config: dict[str, Value] = {}
        self.status = FlowerRunStatus("completed", "")
        monkeypatch.setattr(Control, "submit", self._submit)
        monkeypatch.setattr(FlowerRun, "wait", lambda *_, **__: self.status)

    def _submit(self, app: Path, run_config: dict[str, Value]) -> FlowerRun:
        assert (app / "pyproject.toml").is_file()
        self.config = run_config
        return FlowerRun(None, "1")  # type: ignore[arg-type]


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> Submitted:
    return Submitted(monkeypatch)


def test_run(made: Rpdp, submitted: Submitted) -> None:
    Path("f").rename("moved")
    done = Path("moved/server/runs/one")
    done.mkdir(parents=True)
    measured = {"accuracy": {"value": 0.75}, "auc": {"value": None}}
    (done / "result.json").write_text(json.dumps({"format": "rpdp-run/2", "rounds": 3, "metrics": measured}))
    settings = ("--set", "deadline=60", "--set", "test=mine:records", "--set", "seed=-1", "--set", "patience=1.5")
    told = made.json("deploy", "run", "moved", "--run-id", "one", *settings)
    assert (told["rounds"], told["metrics"]) == (3, measured)
    assert told["directory"] == str(done.resolve())
    server = str(Path("moved/server").resolve())
    wanted = {"server": server, "run-id": "one", "deadline": 60, "test": "mine:records", "seed": -1, "patience": 1.5}
    assert submitted.config == wanted
    shown = made("deploy", "run", "moved", "--run-id", "one")
    assert "run one: 3 rounds, on public records: accuracy 0.7500" in shown


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (FlowerRunStatus("failed", "ServerApp failed with exception: run 'one' was not admitted (silo-00: policy)"), 3),
        (FlowerRunStatus("failed", "No heartbeat received"), 1),
        (FlowerRunStatus("stopped", ""), 1),
    ],
)
def test_a_run_that_fails(made: Rpdp, submitted: Submitted, status: FlowerRunStatus, code: int) -> None:
    submitted.status = status
    told = made("deploy", "run", "f", "--run-id", "one", code=code)
    assert f"run one {status.name}: {status.details or 'no reason given'}; its log is" in told


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["nowhere", "--run-id", "one"], "no federation: server/deploy.toml is missing"),
        (["f", "--run-id", "../one"], "run-id='../one' must be the name of a directory"),
        (["f", "--run-id", "one", "--set", "deadline"], "--set 'deadline' must look like deadline=60"),
    ],
)
def test_runs_with_bad_input(made: Rpdp, submitted: Submitted, arguments: list[str], expected: str) -> None:
    for name in ("run", "up"):
        assert expected in made("deploy", name, *arguments, code=2)
    assert submitted.config == {}
    assert not Path("f/server/runs").exists()


def test_nobody_listens(made: Rpdp) -> None:
    assert "flwr" in made("deploy", "register", "f", code=1)


# The ServerApp, without a grid


def app_config(run: str, **changes: Value) -> dict[str, Value]:
    told = tomllib.loads(Path("f/server/app/pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    return {**told, "run-id": run, **changes}


def test_one_server_app_at_a_time_for_a_run(made: Rpdp, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of several studies may be in progress beside each other."""
    monkeypatch.setattr(server, "_LOCK_SECONDS", 0.1)
    Path("f/server/runs/one").mkdir(parents=True)
    with Path("f/server/runs/one/.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="this run is in progress already"):
            server.run_server(NO_GRID, app_config("one"))
        with pytest.raises(AttributeError, match="get_nodes"):
            server.run_server(NO_GRID, app_config("two", patience=0.1))
    with pytest.raises(AttributeError, match="get_nodes"):  # it has got further: to the grid
        server.run_server(NO_GRID, app_config("one", patience=0.1))


def test_a_finished_run_is_left_alone(made: Rpdp) -> None:
    done = Path("f/server/runs/one")
    done.mkdir(parents=True)
    (done / "result.json").write_text(json.dumps({"format": "rpdp-run/1"}))
    server.run_server(NO_GRID, app_config("one"))
    assert [path.name for path in done.iterdir()] == ["result.json"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"run-id": "../one"}, "run-id='../one' must be the name of a directory"),
        ({"silos": "silo-00, ../b"}, "must be the name of a directory"),
        ({"deadline": -1.0}, "deadline=-1.0 must be positive"),
        ({"test": "public_records:nothing"}, "returned list; it must return rpdp.training.Records"),
        ({"test": "public_records:missing"}, "has no function missing"),
    ],
)
def test_wrong_settings_of_the_app(made: Rpdp, changes: dict[str, Value], expected: str) -> None:
    Path("f/server/public_records.py").write_text("def nothing():\n    return []\n")
    sys.modules.pop("public_records", None)
    with pytest.raises(InputError, match=expected):
        server.run_server(NO_GRID, {**app_config("one"), **changes})
    assert not Path("f/server/runs/one/result.json").exists()


# Agents that do not start


def test_an_agent_that_refuses_to_start(made: Rpdp) -> None:
    silo = Path("f/silos/silo-00").resolve()
    (silo / "ledger.db").chmod(0o644)
    spec = SiloFile.read(silo / "silo.toml")
    with pytest.raises(PrivacyRefusal, match=r"(?s)ended with exit code 3.*others can read or write it"):
        start_agent(spec)
    (silo / "budgets.csv").unlink()
    with pytest.raises(InputError, match=r"the budget file .*budgets\.csv is missing"):
        start_agent(spec)
