"""What a deployed round costs: over Flower with our node, with Flower's own SuperNode, and in one process.

Two silos of the embedded task, all joining, 10 local steps each, production ledgers; over TLS with a SuperLink, two
nodes and two agents on this machine. Two such federations are up at the same time, one with `rpdp silo node`, one with
Flower's SuperNode; runs on them take turns. Their peers without Flower:

- the same coordinator and agents in this process (frames, ledgers, training; no Flower, no sockets), and
- `simulate` (no frames, no ledger).

Answers leave when they are ready, so that no second is spent on purpose. The model is tiny: what is seen is what a
round costs whatever is trained in it. With training that takes minutes the ratio is near 1.

The parts of a round with our node, measured at the server's grid (before and after each push and pull):

| part | from … to |
|---|---|
| push | the grid sends the requests |
| waiting | requests are sent … a pull brings the last answer: the node's polling and transfers, the agent, training |
| pull | the pull that brings the last answer |
| server | average, checkpoint, heads, looking for nodes |

    python benchmarks/deployment.py [--quick] [--json]
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rpdp import Ledger, Policy, PublicPlan, Silo, simulate
from rpdp.budgets import BudgetTable
from rpdp.deployment.agent.agent import Agent, AllowedModel
from rpdp.deployment.agent.release_timing import Timing
from rpdp.deployment.files.layout import Layout
from rpdp.deployment.flower.control import Control
from rpdp.deployment.processes import free_port
from rpdp.deployment.trial import federation, provide_trial_budgets
from rpdp.federation.coordinator import Coordinator, RoundSettings
from rpdp.federation.frames import Frame
from rpdp.sampling import Secure
from rpdp.studies.study_data import records_of
from rpdp.studies.study_file import StudyFile
from rpdp.tasks.registry import task
from rpdp.training import FlatModel

if TYPE_CHECKING:  # mypy sees a package, `python benchmarks/name.py` sees a neighbour
    from collections.abc import Callable, Mapping

    from benchmarks._harness import Benchmark
    from benchmarks._timed_apps import SERVER_APP
else:
    from _harness import Benchmark
    from _timed_apps import SERVER_APP

TASK = task("breast_cancer")
SILOS = ("silo-00", "silo-01")
WAIT = 1200.0

STUDY = """
[task]
name = "breast_cancer"
[schedule]
rounds = {rounds}
local_steps = 10
participation = 1.0
[privacy]
delta = 1e-3
noise_multiplier = 5.0
clip_norm = 1.0
[budgets]
distribution = "ThreeLevels"
records_per_silo = 90
[training]
learning_rate = 0.2
[policy]
lifetime_delta = 1e-2
max_runs = 5
max_share_per_run = 0.2
"""


# In this process


@dataclass
class Clock:
    """Seconds of the parts of an agent's answers."""

    spent: dict[str, list[float]] = field(default_factory=dict)

    def timed(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, with its time kept."""

        def measured(*arguments: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return work(*arguments, **named)
            finally:
                self.spent.setdefault(name, []).append(time.perf_counter() - began)

        return measured

    def median(self, name: str) -> float:
        """Of all calls."""
        return statistics.median(self.spent[name])


class Direct:
    """A `Link` that calls the agents of this process."""

    def __init__(self, agents: Mapping[str, Agent], clock: Clock) -> None:
        self._agents, self._clock = agents, clock

    def addresses(self) -> dict[str, str]:
        """All of them."""
        return {name: name for name in self._agents}

    def ask(self, requests: Mapping[str, bytes], timeout: float) -> dict[str, bytes]:
        """One after the other."""
        answers = {}
        for name, data in requests.items():
            request = Frame.from_bytes(data, len(data))
            answer = self._agents[name].answer
            if request.kind == "round":
                answer = self._clock.timed("answer", answer)
            answers[name] = answer(request).to_bytes()
        return answers


def silo_of(name: str, public: PublicPlan, budgets: BudgetTable, ledger: Ledger | None) -> Silo:
    held = TASK.load().silos[name].train
    ids = held.record_ids.tolist()
    return Silo(name, records_of(held), budgets, policy=Policy.of(public), record_ids=ids, account=ledger)


def in_process(
    layout: Layout, budgets: Mapping[str, BudgetTable], directory: Path, clock: Clock, *, trains_here: bool = False
) -> list[float]:
    """Seconds of each round, coordinator and agents in this process with ledgers on disk.

    Agents train in processes of their own, as they do in a deployment, or with `trains_here` in this one.
    """
    public = PublicPlan.read(layout.server / "plan.json")
    ledgers, agents = [], {}
    for name, table in budgets.items():
        ledger = Ledger.create(directory / f"{name}.db", table, kind="production", lifetime_delta=public.delta)
        silo = silo_of(name, public, table, ledger)
        silo.train = clock.timed("train", silo.train)  # type: ignore[method-assign]
        agents[name] = Agent(silo, [AllowedModel(TASK.model(seed=0), TASK.loss)], Secure, Timing(None))
        if trains_here:
            silo.trainer = None
        ledgers.append(ledger)
    values = FlatModel(TASK.model(seed=0)).values.data
    result = Coordinator(
        "run",
        public,
        values,
        SILOS,
        Direct(agents, clock),
        RoundSettings(deadline=60.0),
        checkpoint=directory / "checkpoint",
        heads=directory / "heads.json",
    ).go()
    for agent, ledger in zip(agents.values(), ledgers, strict=True):
        agent.close()
        ledger.close()
    return [log.seconds for log in result.rounds]


def simulated(layout: Layout, budgets: Mapping[str, BudgetTable]) -> list[float]:
    public = PublicPlan.read(layout.server / "plan.json")
    silos = [silo_of(name, public, table, None) for name, table in budgets.items()]
    result = simulate(TASK.model(seed=0), TASK.loss, silos, public, seed=0, workers=1)
    return [log.seconds for log in result.rounds]


# Over Flower


@dataclass(frozen=True)
class Round:
    """One deployed round: its seconds, and those of its parts."""

    seconds: float
    parts: dict[str, float]


def make(directory: Path, rounds: int) -> Layout:
    directory.mkdir()
    study = directory / "study.toml"
    study.write_text(STUDY.format(rounds=rounds))
    layout = Layout.create(directory / "f", StudyFile.read(study), SILOS, "127.0.0.1", free_port())
    provide_trial_budgets(layout, StudyFile.read(study))
    for name in SILOS:
        path = layout.silo(name) / "silo.toml"
        lines = [line for line in path.read_text().splitlines() if not line.startswith("release_after")]
        path.write_text("\n".join([*lines, 'release_after = "ready"', ""]))
    server = SERVER_APP.format(times=str(layout.server / "times-"))
    (layout.app / "rpdp_app" / "server_app.py").write_text(server)
    return layout


def rounds_of(layout: Layout, run: str) -> list[Round]:
    """The rounds of a run but the first, in which connections are made and code is loaded."""
    path = layout.server / f"times-{run}"
    noted = [json.loads(line) for line in path.read_text().splitlines()]
    pushes = [index for index, note in enumerate(noted) if note["what"] == "push" and note["round"]]
    found = []
    for here, after in list(pairwise(pushes))[1:]:
        push = noted[here]
        last = [note for note in noted[here:after] if note["what"] == "pull" and note["answers"]][-1]
        ended = noted[after]["began"]
        parts = {
            "push": push["ended"] - push["began"],
            "waiting": last["began"] - push["ended"],
            "pull": last["ended"] - last["began"],
            "server": ended - last["ended"],
        }
        found.append(Round(ended - push["began"], parts))
    return found


def deployed(ours: Layout, stock: Layout, turns: int) -> tuple[list[Round], list[Round]]:
    """The rounds of our node and of Flower's SuperNode; the runs take turns."""
    with federation(ours), federation(stock, stock=True):
        for turn in range(turns):
            for layout in (ours, stock):
                run = f"turn-{turn}"
                status = Control.of(layout).submit(layout.app, {"run-id": run}).wait(timeout=WAIT)
                if status.name != "completed":
                    raise RuntimeError(f"{run} over Flower {status.name}: {status.details}")
    names = [f"turn-{turn}" for turn in range(turns)]
    found = [[one for run in names for one in rounds_of(layout, run)] for layout in (ours, stock)]
    return found[0], found[1]


# The comparison


def report(bench: Benchmark, ours: list[Round], stock: list[Round], peers: dict[str, float]) -> None:
    seconds, theirs = ([one.seconds for one in found] for found in (ours, stock))
    middle = statistics.median(seconds)
    print(f"our node: {_spread(seconds)}; Flower's SuperNode: {_spread(theirs)}; load {os.getloadavg()[0]:.1f}")
    context = f"{middle:.2f} s against {statistics.median(theirs):.2f} s, medians"
    bench.record("our_node_against_supernode", middle / statistics.median(theirs), context=context)
    for name, peer in peers.items():
        context = f"{middle:.2f} s against {1e3 * peer:.1f} ms, medians; {middle - peer:.2f} s more for any model"
        bench.record(f"round_against_{name}", middle / peer, context=context)
    for name in ours[0].parts:
        part = statistics.median(one.parts[name] for one in ours)
        bench.record(f"share_of_{name}", part / middle, context=f"{1e3 * part:.0f} ms of a round")


def _spread(seconds: list[float]) -> str:
    middle, least, most = statistics.median(seconds), min(seconds), max(seconds)
    return f"{middle:.2f} s ({least:.2f} to {most:.2f}, {len(seconds)} rounds)"


def main(arguments: list[str]) -> None:
    bench = Benchmark("A deployed round with our node, with Flower's SuperNode, and in one process", arguments)
    rounds, turns = (5, 1) if bench.quick else (9, 3)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="rpdp-") as made:
        directory, clock = Path(made), Clock()
        layout = make(directory / "ours", rounds)
        budgets = {name: BudgetTable.read(layout.silo(name) / "budgets.csv") for name in SILOS}
        seconds: dict[str, list[float]] = {"in_process": [], "simulate": []}
        here: list[float] = []

        def peers(turn: str) -> None:
            (directory / turn / "here").mkdir(parents=True)
            here.extend(in_process(layout, budgets, directory / turn / "here", Clock(), trains_here=True)[1:])
            seconds["in_process"] += in_process(layout, budgets, directory / turn, clock)[1:]
            seconds["simulate"] += simulated(layout, budgets)[1:]

        peers("before")
        ours, stock = deployed(layout, make(directory / "stock", rounds), turns)
        peers("after")
    ended, kept = (statistics.median(each) for each in (seconds["in_process"], here))
    context = f"{1e3 * ended:.1f} ms against {1e3 * kept:.1f} ms, medians of agents' rounds without Flower"
    bench.record("training_in_its_own_process_against_here", ended / kept, goal=1.1, context=context)
    report(bench, ours, stock, {name: statistics.median(each) for name, each in seconds.items()})
    bench.finish()


if __name__ == "__main__":
    main(sys.argv[1:])
