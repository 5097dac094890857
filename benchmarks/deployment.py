"""What Flower costs a round: a deployed federation against the same rounds in one process, and where the time goes.

Two silos of the embedded task, all joining, 10 local steps each, production ledgers; over TLS with a SuperLink, two
SuperNodes and two agents on this machine, against

- the same coordinator and agents in this process (frames, ledgers, training; no Flower, no sockets), and
- `simulate` (no frames, no ledger).

Answers leave when they are ready, so that no second is spent on purpose. The model is tiny: what is seen is what a
round costs whatever is trained in it. With training that takes minutes the ratio is near 1.

Time is taken with one clock at four places: the server's grid (before and after each push and pull), the ClientApp
(start of its process, call, question to the agent, answer), and for the parts of an agent's answer the same code in
this process. A round's parts are those of the silo that answered last, so they add up to the round:

| part | from … to | measured |
|---|---|---|
| polling | pushed … ClientApp process started; answered … pull that brings it | yes; Flower's transfers too |
| process start | ClientApp process started … called | yes |
| transport | duration of the push and of the pull that brought the answer, and the app's own code | yes |
| agent | question on the Unix socket … answer, without training; ledger included | answer measured, share inferred |
| training | local steps and noise | inferred from the same rounds in this process |
| server | answer … next push: average, checkpoint, heads | yes |

What is done to keep it low is shown too: our own pull loop (in half of the rounds, in blocks, Flower's three seconds
are used instead), a ClientApp that loads neither torch nor the core, and SuperExec's poll interval (one SuperNode with
Flower's default beside one with ours; not with --quick).

    python benchmarks/deployment.py [--quick] [--json]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
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
from rpdp.deployment.files.silo_file import SiloFile
from rpdp.deployment.flower.control import Control
from rpdp.deployment.flower.flower_processes import SuperNode
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
    from benchmarks._timed_apps import CLIENT_APP, SERVER_APP
    from rpdp.deployment.trial import RunningFederation
else:
    from _harness import Benchmark
    from _timed_apps import CLIENT_APP, SERVER_APP

TASK = task("breast_cancer")
SILOS = ("silo-00", "silo-01")
STOCK_SECONDS = 3.0
"""What `Grid.send_and_receive` sleeps between two pulls."""
DEFAULT_TASK_POLL = "1.0"
FEW = 6
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
    """One deployed round: seconds of its parts, of the silo that answered last."""

    stock: bool
    seconds: float
    parts: dict[str, float]
    processor: float
    """Seconds of processor time that the ClientApp took: on a busy machine the steadier measure of its start."""


def make(directory: Path, rounds: int, block: int) -> Layout:
    study = directory / "study.toml"
    study.write_text(STUDY.format(rounds=rounds))
    layout = Layout.create(directory / "f", StudyFile.read(study), SILOS, "127.0.0.1", free_port())
    provide_trial_budgets(layout, StudyFile.read(study))
    for name in SILOS:
        path = layout.silo(name) / "silo.toml"
        lines = [line for line in path.read_text().splitlines() if not line.startswith("release_after")]
        path.write_text("\n".join([*lines, 'release_after = "ready"', ""]))
    from rpdp.deployment.flower.grid_link import POLL_SECONDS

    times = str(layout.server / "times-")
    server = SERVER_APP.format(stock=STOCK_SECONDS, own=POLL_SECONDS, times=times, block=block)
    (layout.app / "rpdp_app" / "server_app.py").write_text(server)
    (layout.app / "rpdp_app" / "client_app.py").write_text(CLIENT_APP)
    project = layout.app / "pyproject.toml"
    project.write_text(project.read_text().replace("rpdp.deployment.flower.client_app:app", "rpdp_app.client_app:app"))
    return layout


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def clients(layout: Layout) -> dict[str, dict[str, Any]]:
    """What the ClientApps noted, by message, with the silo."""
    return {
        str(note["message"]): {**note, "silo": name}
        for name in SILOS
        for note in lines_of(layout.silo(name) / "times.jsonl")
    }


def rounds_of(layout: Layout, run: str, block: int) -> list[Round]:
    """The rounds of a run; the first of every block, which the pull loop before has still shaped, is left out."""
    noted, at_silos = lines_of(layout.server / f"times-{run}"), clients(layout)
    pushes = [index for index, note in enumerate(noted) if note["what"] == "push" and note["round"]]
    found = []
    for number, (here, after) in enumerate(pairwise(pushes)):
        push = noted[here]
        pulls = {answer: note for note in noted[here:after] if note["what"] == "pull" for answer in note["answers"]}
        if number % block == 0 or set(pulls) != set(push["nodes"]):
            continue
        last = max(pulls, key=lambda answer: pulls[answer]["ended"])
        found.append(Round(push["stock"], *_split(push, at_silos[last], pulls[last], noted[after]["began"])))
    return found


def _split(push: Any, silo: Any, pull: Any, ended: float) -> tuple[float, dict[str, float], float]:
    to_silo, back = silo["started"] - push["ended"], pull["began"] - silo["answered"]
    moved = (push["ended"] - push["began"]) + (pull["ended"] - pull["began"]) + (silo["asked"] - silo["called"])
    parts = {
        "polling": to_silo + back,
        "process_start": silo["called"] - silo["started"],
        "transport": moved,
        "answer": silo["answered"] - silo["asked"],
        "server": ended - pull["ended"],
    }
    return ended - push["began"], parts, silo["processor"]


def deployed(layout: Layout, block: int, *, with_default: bool) -> tuple[list[Round], tuple[float, float] | None]:
    """The rounds of a run over Flower; and the pause between two ClientApps, with our SuperExec interval and theirs."""
    with federation(layout) as running:
        status = Control.of(layout).submit(layout.app, {"run-id": "first"}).wait(timeout=WAIT)
        if status.name != "completed":
            raise RuntimeError(f"the run over Flower {status.name}: {status.details}")
        pauses = default_interval(layout, running) if with_default else None
    return rounds_of(layout, "first", block), pauses


def default_interval(layout: Layout, running: RunningFederation) -> tuple[float, float]:
    """A few rounds with Flower's default interval at one of the two SuperNodes."""
    ours, theirs = SILOS
    running.nodes[theirs].stop()
    spec = SiloFile.read(layout.silo(theirs) / "silo.toml")
    key, authority = layout.silo(theirs) / f"{theirs}.key", layout.silo(theirs) / "ca.crt"
    settings = {"silo": theirs, "socket": str(spec.file(spec.silo.socket))}
    variables = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": DEFAULT_TASK_POLL}
    home, link = layout.silo(theirs) / "flower", running.link.address
    path = layout.server / "times-second"
    with SuperNode(home, link, authority, key, settings, variables=variables):
        submitted = Control.of(layout).submit(layout.app, {"run-id": "second"})
        until = time.monotonic() + WAIT
        while sum(note["what"] == "push" and note["round"] for note in lines_of(path)) <= FEW:
            if time.monotonic() > until:
                raise RuntimeError("the second run over Flower does not get on")
            time.sleep(0.5)
        submitted.stop()
    asked = {
        message for note in lines_of(path) if note["what"] == "push" and note["round"] for message in note["nodes"]
    }
    notes = [note for message, note in clients(layout).items() if message in asked]
    pauses = {}
    for name in SILOS:  # in the order of the rounds
        mine = [note for note in notes if note["silo"] == name]
        pauses[name] = statistics.median(after["started"] - before["answered"] for before, after in pairwise(mine))
    return pauses[ours], pauses[theirs]


# The comparison


def imports(bench: Benchmark) -> None:
    def fresh(code: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, "-c", code], check=True)

    thin = "import rpdp.deployment.flower.client_app"
    name = "client_app_import_against_one_that_trains"
    bench.compare(name, fresh(thin), fresh(f"{thin}; import torch, rpdp.federation.silo"), repeats=9)


def report(bench: Benchmark, found: list[Round], clock: Clock, peers: dict[str, float]) -> None:
    own, stock = ([one for one in found if one.stock is is_stock] for is_stock in (False, True))
    seconds = statistics.median(one.seconds for one in own)
    for name, peer in peers.items():
        context = f"{seconds:.2f} s against {1e3 * peer:.1f} ms, medians; {seconds - peer:.2f} s more for any model"
        bench.record(f"round_against_{name}", seconds / peer, context=context)
    parts = {name: statistics.median(one.parts[name] for one in own) for name in own[0].parts}
    training = min(1.0, clock.median("train") / clock.median("answer")) * parts["answer"]
    parts |= {"agent": parts.pop("answer") - training, "training": training}
    for name, part in sorted(parts.items(), key=lambda item: -item[1]):
        bench.record(f"share_of_{name}", part / seconds, context=f"{1e3 * part:.0f} ms of a round")
    total, load = sum(parts.values()), os.getloadavg()[0]
    print(f"medians of the parts add up to {total:.2f} s; {len(own)} rounds, load average now {load:.1f}")
    processor = statistics.median(one.processor for one in own)
    print(f"a ClientApp, a new process for every message, takes {processor:.2f} s of processor time")
    theirs = statistics.median(one.seconds for one in stock)
    context = f"{seconds:.2f} s against {theirs:.2f} s with Flower's sleep of {STOCK_SECONDS:g} s, {len(stock)} rounds"
    bench.record("own_pull_loop_against_stock", seconds / theirs, context=context)


def main(arguments: list[str]) -> None:
    bench = Benchmark("A round over Flower against the same round in one process", arguments)
    block = 3 if bench.quick else 4
    rounds = 2 * block + 1 if bench.quick else 4 * block + 1  # the last push ends the round before
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="rpdp-") as made:
        directory, clock = Path(made), Clock()
        layout = make(directory, rounds, block)
        budgets = {name: BudgetTable.read(layout.silo(name) / "budgets.csv") for name in SILOS}
        seconds: dict[str, list[float]] = {"in_process": [], "simulate": []}

        here: list[float] = []

        def peers(turn: str) -> None:
            (directory / turn / "here").mkdir(parents=True)
            here.extend(in_process(layout, budgets, directory / turn / "here", Clock(), trains_here=True)[1:])
            seconds["in_process"] += in_process(layout, budgets, directory / turn, clock)[1:]
            seconds["simulate"] += simulated(layout, budgets)[1:]

        peers("before")
        found, pauses = deployed(layout, block, with_default=not bench.quick)
        peers("after")
    ended, kept = (statistics.median(each) for each in (seconds["in_process"], here))
    context = f"{1e3 * ended:.1f} ms against {1e3 * kept:.1f} ms, medians of agents' rounds without Flower"
    bench.record("training_in_its_own_process_against_here", ended / kept, goal=1.1, context=context)
    report(bench, found, clock, {name: statistics.median(each) for name, each in seconds.items()})
    imports(bench)
    if pauses is not None:
        context = f"{pauses[0]:.2f} s against {pauses[1]:.2f} s from an answer to the next ClientApp, the same rounds"
        bench.record("our_task_poll_against_default", pauses[0] / pauses[1], context=context)
    bench.finish()


if __name__ == "__main__":
    main(sys.argv[1:])
