"""What `rpdp silo status` says, beside a running agent and without one, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rpdp.cli.run import run
from rpdp.deployment.agent.agent_journal import AgentJournal
from rpdp.deployment.agent.agent_status import silo_status
from rpdp.deployment.files.certificates import certificate_end, make_authority, make_silo_certificate, make_silo_key
from rpdp.deployment.files.silo_file import SiloFile
from rpdp.federation.frames import Frame
from rpdp.ledger import Ledger
from tests.deployment.agent.scene import LIFETIME_DELTA, Live, Making, admission, announcement, public_plan, told

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rpdp.deployment.agent.agent import Agent

PUBLIC = public_plan(rounds=3, local_steps=1)
DAY = 86400.0


def silo_file(folder: Path) -> SiloFile:
    """A silo file for the ledger of `scene`; what it says of data and models is not looked at."""
    path = folder / "silo.toml"
    path.write_text(
        """
[silo]
name = "a"
ledger = "a.db"
budgets = "budgets.csv"
socket = "s"
[data]
factory = "hospital:load"
[models.study]
model = "hospital:model"
loss = "hospital:loss"
[policy]
max_rounds = 3
max_local_steps = 1
max_participation = 1.0
max_clip_norm = 1.0
min_noise_multiplier = 1.0
lifetime_delta = 0.01
max_runs = 3
release_after = 1.0
"""
    )
    return SiloFile.read(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    making = Making(PUBLIC)
    Ledger.create(tmp_path / "a.db", making.budgets, kind="production", lifetime_delta=LIFETIME_DELTA).close()
    return tmp_path


@pytest.fixture
def agent(folder: Path) -> Iterator[Agent]:
    """An agent that has admitted a run and answered a round, with its status file."""
    journal = AgentJournal("a", status=folder / "a.db.agent")
    with Ledger.open(folder / "a.db") as ledger:
        made = Making(PUBLIC).agent(ledger)
        made._journal = journal
        journal.begin()
        try:
            yield made
        finally:
            made.close()
            journal.end()


def test_beside_a_running_agent(folder: Path, agent: Agent) -> None:
    spec = silo_file(folder)
    with Live(agent, folder / "s"):
        told(agent, admission(PUBLIC, "study-1"))
        told(agent, announcement(PUBLIC, 2, run="study-1"))
        told(agent, admission(PUBLIC, "study-2"))
        found = silo_status(spec)
        before = (folder / "a.db").read_bytes()
        lines = found.lines()
        assert (found.exit_code, found.attention) == (0, [])
        assert lines[0].startswith("silo a: agent up since ")
        assert "(admitted)" in lines[0]
        assert "last round: 2 of 3 of study-1" in lines
        assert "run study-1: going on, 2 of 3 rounds charged, 1 joined, 1 released" in lines
        assert "run study-2: held" in lines
        assert any(line.startswith("run study-2 holds budgets of 30 records until ") for line in lines)
        assert any(line.startswith("left: ") for line in lines)
        facts = json.loads(json.dumps(found.facts()))  # all of it is JSON
        assert facts["head"]["count"] == agent.silo.account.public_head().count  # type: ignore[union-attr]
        assert facts["last_round"] == {"run": "study-1", "round": 2, "of": 3}
        assert [hold["run"] for hold in facts["holds"]] == ["study-2"]
        assert facts["installed"]["ledger_format"] == 4
        assert (folder / "a.db").read_bytes() == before  # it only reads
        assert told(agent, announcement(PUBLIC, 3, run="study-1")).kind == "update"


def test_without_an_agent(folder: Path) -> None:
    spec = silo_file(folder)
    found = silo_status(spec)
    assert found.exit_code == 1
    assert found.lines()[0].startswith("silo a: no agent answers. Installed: rpdp ")
    AgentJournal("a", status=folder / "a.db.agent", clock=lambda: 1000.0).begin()  # and no end: it was killed
    assert "the last one, up since 1970-01-01 00:16:40 UTC, was killed" in silo_status(spec).lines()[0]
    (folder / "a.db.agent").write_text("{")
    assert run(["silo", "status", str(spec.path)]) == 2


def test_what_asks_for_attention(folder: Path, agent: Agent) -> None:
    authority = make_authority(folder)
    make_silo_certificate(authority, folder, "a", make_silo_key(folder, "a").public)
    end = certificate_end(folder / "a.crt").timestamp()
    spec = silo_file(folder)
    with Live(agent, folder / "s"):
        assert silo_status(spec).exit_code == 0
        assert silo_status(spec, now=end - 29.5 * DAY).attention == ["a.crt ends in 29.5 days: see `rpdp deploy renew`"]
        assert silo_status(spec, now=end + DAY).attention[0].startswith("a.crt ended 24.0 h ago")
        told(agent, Frame({"kind": "hello", "version": "9", "clock": 1000}))
        told(agent, announcement(PUBLIC, 1, run="none"))
        clock, problem = silo_status(spec).attention
        assert clock.startswith("the clock of the server is ")
        assert "a request was refused (run)" in problem
        assert silo_status(spec).exit_code == 4


def test_the_command(folder: Path, agent: Agent, capsys: pytest.CaptureFixture[str]) -> None:
    spec = silo_file(folder)
    with Live(agent, folder / "s"):
        assert run(["silo", "status", str(spec.path), "--json"]) == 0
        facts: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert (facts["silo"], facts["is_answering"], facts["exit_code"]) == ("a", True, 0)
    assert run(["silo", "status", str(spec.path)]) == 1
    assert run(["silo", "status", str(spec.path), "--certificates", str(folder / "no")]) == 2
