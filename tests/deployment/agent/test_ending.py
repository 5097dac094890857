"""SIGTERM always ends an agent, and with it the process that trains, whatever model and loss are doing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rpdp import BudgetTable
from rpdp.deployment.agent.agent_client import ask
from rpdp.federation import model_fingerprint
from rpdp.ledger import Ledger
from tests.deployment.agent.scene import admission, announcement, public_plan, wait_until
from tests.federation.world import make_ids, make_model

if TYPE_CHECKING:
    from collections.abc import Iterator

MODULE = """
import os
from pathlib import Path

from rpdp.tasks.models.losses import binary_loss
from tests.federation.world import make_ids, make_model, make_records

def data():
    return make_records(30), make_ids(30)

def model():
    return make_model()

def loss(outputs, targets):
    while Path("endless").exists():
        Path("noted").write_text(str(os.getpid()))
        Path("noted").replace("training")
    return binary_loss(outputs, targets)
"""
SILO = """
[silo]
name = "a"
ledger = "ledger.db"
budgets = "budgets.csv"
[data]
factory = "stuck:data"
[models.study]
model = "stuck:model"
loss = "stuck:loss"
[policy]
max_rounds = 6
max_local_steps = 3
max_participation = 1.0
max_clip_norm = 1.0
min_noise_multiplier = 1.0
lifetime_delta = 0.01
max_runs = 1
max_share_per_run = 1.0
release_after = {after}
"""
AFTER = 20.0
"""When answers leave, in seconds. An admission, too, takes so long."""

PUBLIC = public_plan(model_fingerprint=model_fingerprint(make_model()))
COMMAND = [sys.executable, "-c", "from rpdp.cli import main; main()", "silo", "serve", "silo.toml"]


@pytest.fixture
def serving(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """An agent that serves in a process of its own."""
    (tmp_path / "stuck.py").write_text(MODULE)
    (tmp_path / "silo.toml").write_text(SILO.format(after=request.param))
    table = BudgetTable(make_ids(30), [50.0] * 30)
    table.write(tmp_path / "budgets.csv")
    (tmp_path / "budgets.csv").chmod(0o600)
    Ledger.create(tmp_path / "ledger.db", table, kind="production", lifetime_delta=0.01).close()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[3]), *sys.path])}
    with subprocess.Popen(COMMAND, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as agent:
        try:
            wait_until(lambda: listens(tmp_path / "agent.sock") or agent.poll() is not None, 120.0)
            assert agent.poll() is None, agent.communicate()[1]
            yield agent
        finally:
            agent.kill()


def listens(path: Path) -> bool:
    """The file of a socket is there a moment before anybody listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(str(path)) == 0


def start_training(folder: Path) -> int:
    """Admit the plan and announce a round whose training does not end; the process that trains."""
    path = folder / "agent.sock"
    assert b"admitted" in ask(path, admission(PUBLIC).to_bytes(), timeout=60)
    (folder / "endless").touch()

    def announce() -> None:
        with suppress(Exception):  # nobody answers any more
            ask(path, announcement(PUBLIC, 1).to_bytes(), timeout=60)

    threading.Thread(target=announce, daemon=True).start()
    note = folder / "training"
    wait_until(lambda: note.exists() and note.read_text() != "", 60.0)
    return int(note.read_text())


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("serving", [f"{AFTER:.1f}", '"ready"'], indirect=True)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_ends_an_agent_whose_training_never_ends(
    serving: subprocess.Popen[str], tmp_path: Path, number: signal.Signals
) -> None:
    trainer = start_training(tmp_path)
    began = time.monotonic()
    serving.send_signal(number)
    serving.communicate(timeout=20)
    assert time.monotonic() - began < AFTER - 3.0  # long before the public time at which training would be ended
    assert serving.returncode == 0
    assert trainer != serving.pid
    wait_until(lambda: not is_running(trainer))
    with Ledger.open(tmp_path / "ledger.db") as ledger:  # nobody holds it any more
        assert ledger.status().runs[0].joined == (1,)
        assert ledger.status().runs[0].released == ()


@pytest.mark.parametrize("serving", [f"{AFTER:.1f}"], indirect=True)
def test_an_agent_that_is_killed_takes_its_training_with_it(serving: subprocess.Popen[str], tmp_path: Path) -> None:
    trainer = start_training(tmp_path)
    serving.kill()
    serving.communicate(timeout=20)
    wait_until(lambda: not is_running(trainer))
    Ledger.open(tmp_path / "ledger.db").close()
