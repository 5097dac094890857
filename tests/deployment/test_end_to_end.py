"""A whole federation on this machine: SuperLink, two authenticated SuperNodes and two agents, over TLS on loopback."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from rpdp import Policy, PublicPlan, Silo, simulate
from rpdp.cli.output import INTERRUPTED
from rpdp.cli.run import run as command
from rpdp.deployment.flower.control import Control
from rpdp.deployment.flower.environment import executable
from rpdp.deployment.processes import Process
from rpdp.deployment.trial import federation
from rpdp.studies.run_directory import read_result
from rpdp.studies.study_data import records_of
from rpdp.tasks.registry import task
from tests.programs import needs_nginx

from . import trials

if TYPE_CHECKING:
    from torch import Tensor

    from rpdp.budgets import BudgetTable
    from rpdp.deployment.files.layout import Layout

pytestmark = needs_nginx
SILOS = ("silo-00", "silo-01")
SEED = 7
WAIT = 300.0


def study(rounds: int, joined: int) -> str:
    """σ follows from max_epsilon: a record in every batch pays 2 for a run, so that one with ε = 5 can pay for two."""
    return trials.study_text(rounds, 10, joined, noise="max_epsilon = 2.0", lifetime_delta=3e-3)


class Commands:
    """Runs `rpdp` in this process; what it answers."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def text(self, *arguments: object) -> str:
        self._capsys.readouterr()
        code = command([str(argument) for argument in arguments])
        captured = self._capsys.readouterr()
        assert code == 0, captured
        return captured.out

    def json(self, *arguments: object) -> dict[str, Any]:
        told = json.loads(self.text(*arguments, "--json"))
        assert isinstance(told, dict)
        return told


def test_two_hospitals_and_a_patient_who_withdraws(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    rpdp = Commands(capsys)
    layout = trials.make_layout(tmp_path_factory.mktemp("e"), study(rounds=2, joined=1), SILOS)
    trials.set_value(layout, "silo-00", "release_after", "0.5")  # on a busy machine it may sit out
    trials.set_value(layout, "silo-01", "release_after", '"ready"')  # it never does
    budgets = {silo: trials.give_budgets(layout, silo) for silo in SILOS}
    ledger = layout.silo("silo-01") / "ledger.db"
    gone, stays = two_with_five(budgets["silo-01"])  # both will have paid 2 of their 5

    with federation(layout) as running:
        assert rpdp.json("deploy", "run", layout.directory, "--run-id", "first", "--timeout", WAIT)["rounds"] == 2
        told = rpdp.json("ledger", "withdraw", ledger, gone, "--reason", "letter of 3 May")
        assert told["booked"] is False  # the running agent writes: it books it with its next round
        assert rpdp.json("deploy", "run", layout.directory, "--run-id", "second", "--timeout", WAIT)["rounds"] == 2
        nodes = [node.process for node in running.nodes.values()]
        processes = [running.link.process, *nodes, *running.agents.values()]
        pids = trials.family(*processes)
        assert all(trials.alive(process.pid) for process in processes)
        assert len(pids) >= 8  # a SuperLink, two SuperNodes and the SuperExec of each, two agents
    assert trials.all_gone(pids)

    require_sound_runs(layout, "first", "second")
    took = {}
    for record in (gone, stays):
        took[record] = [run["q"] > 0.0 for run in rpdp.json("ledger", "explain", ledger, record)["runs"]]
    assert took == {gone: [True, False], stays: [True, True]}  # the latter is the negative control
    lines = rpdp.text("ledger", "explain", ledger, gone).splitlines()
    assert any("was withdrawn by " in line and "letter of 3 May" in line for line in lines)
    assert any(line.startswith("Run second") and "it sat out and used nothing" in line for line in lines)


def two_with_five(budgets: BudgetTable) -> tuple[str, str]:
    """Two records with ε = 5."""
    one, other, *_ = np.asarray(budgets.ids.to_pylist())[budgets.epsilon == 5.0].tolist()
    return one, other


def require_sound_runs(layout: Layout, *runs: str) -> None:
    results = {run: read_result(layout.server / "runs" / run) for run in runs}
    for result in results.values():
        assert not result.is_simulation
        assert bool(result.values.isfinite().all())
        assert bool(result.values.any())  # it starts from zeros, and silo-01 joins one round and is never late
        assert torch.equal(result.values, trials.model_of_releases(layout, result.run, result.rounds))
    for silo in SILOS:
        trials.require_sound(layout, silo, runs, {run: result.rounds for run, result in results.items()})
        for run in runs:
            stands = trials.status(layout, silo, run)
            assert (stands.announced, len(stands.joined)) == (2, 1)
            assert set(stands.released) <= set(stands.joined)
            assert silo != "silo-01" or stands.released == stands.joined
        assert "Traceback" not in (layout.silo(silo) / "agent.log").read_text()


@pytest.mark.slow
def test_a_seeded_run_is_that_of_the_simulator(tmp_path_factory: pytest.TempPathFactory) -> None:
    layout = trials.make_layout(tmp_path_factory.mktemp("e"), study(rounds=4, joined=3), SILOS)
    for silo in SILOS:
        trials.set_value(layout, silo, "release_after", '"ready"')
        trials.add_lines(layout, silo, f"[simulation]\nseed = {SEED}\n")
    budgets = {silo: trials.give_budgets(layout, silo) for silo in SILOS}
    with federation(layout):
        real = Control.of(layout).submit(layout.app, trials.config("real", patience=10.0)).wait(timeout=WAIT)
        assert real.name == "failed"  # simulated silos take no part in a real run
        done = Control.of(layout).submit(layout.app, trials.config("seeded", seed=SEED)).wait(timeout=WAIT)
        assert done.name == "completed", done
    result = read_result(layout.server / "runs" / "seeded")
    assert (result.is_simulation, result.seed) == (True, SEED)
    assert sum(len(log.joined) for log in result.rounds) == 6
    for silo in SILOS:
        trials.require_sound(layout, silo, ["seeded"], {"seeded": result.rounds})
    assert torch.equal(result.values, simulated(layout, budgets, SEED))
    assert not torch.equal(result.values, simulated(layout, budgets, SEED + 1))


def simulated(layout: Layout, budgets: dict[str, BudgetTable], seed: int) -> Tensor:
    """The model that the simulator ends with, from the same plan and budgets."""
    chosen = task("breast_cancer")
    public, held = PublicPlan.read(layout.server / "plan.json"), chosen.load().silos
    silos = [
        Silo(
            name,
            records_of(held[name].train),
            table,
            policy=Policy.of(public),
            record_ids=held[name].train.record_ids.tolist(),
        )
        for name, table in budgets.items()
    ]
    return simulate(chosen.model(seed=0), chosen.loss, silos, public, seed=seed, workers=1).values


@pytest.mark.slow
@pytest.mark.parametrize(
    ("least", "number", "code"),
    [(8, signal.SIGTERM, 0), (4, signal.SIGTERM, INTERRUPTED), (8, signal.SIGKILL, -signal.SIGKILL)],
    ids=["all are up", "they are starting", "killed"],
)
def test_a_trial_that_ends_leaves_nothing_running(
    tmp_path_factory: pytest.TempPathFactory, least: int, number: signal.Signals, code: int
) -> None:
    layout = trials.make_layout(tmp_path_factory.mktemp("e"), study(rounds=2, joined=1), SILOS)
    for silo in SILOS:
        trials.give_budgets(layout, silo)
    words = [executable("rpdp"), "deploy", "up", str(layout.directory), "--json"]
    with Process(words, environment=os.environ, directory=layout.directory, log=layout.directory / "up.log") as up:
        up.wait_until(lambda: len(trials.running_in(layout.directory)) >= least, timeout=WAIT, what="starting")
        if least == 8:
            up.wait_until(lambda: '"address"' in up.output(), timeout=WAIT, what="up")
        os.kill(up.pid, number)
        deadline = time.monotonic() + WAIT
        while (up.exit_code is None or _guarded(number, layout)) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert (up.exit_code, trials.running_in(layout.directory)) == (code, set())


def _guarded(number: signal.Signals, layout: Layout) -> bool:
    """Whether something still runs that is for the guard to end."""
    return number == signal.SIGKILL and bool(trials.running_in(layout.directory))
