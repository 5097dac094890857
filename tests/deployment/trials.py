"""Federations for tests: made by the code of `rpdp deploy init`, their silo files changed as a steward would."""

from __future__ import annotations

import re
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rpdp.budgets import BudgetTable
from rpdp.deployment.agent.opening import record_ids
from rpdp.deployment.files.layout import Layout
from rpdp.deployment.files.silo_file import SiloFile
from rpdp.federation import Server, Update
from rpdp.federation.heads import NAME as HEADS
from rpdp.federation.heads import read_heads
from rpdp.ledger import Ledger
from rpdp.planning import PublicPlan
from rpdp.studies.study_budgets import drawn_budgets
from rpdp.studies.study_data import make_model
from rpdp.studies.study_file import StudyFile
from rpdp.training import FlatModel

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

    from rpdp.deployment.flower.control import Value
    from rpdp.deployment.processes import Process
    from rpdp.federation.run_result import RoundLog
    from rpdp.ledger.account import RunStatus

_STUDY = """
[task]
name = "breast_cancer"
[schedule]
rounds = {rounds}
local_steps = {local_steps}
participations = {participations}
[privacy]
delta = 1e-3
{noise}
clip_norm = {clip_norm}
[budgets]
distribution = "ThreeLevels"
records_per_silo = 90
[training]
learning_rate = 0.2
[policy]
lifetime_delta = {lifetime_delta}
max_runs = 2
max_share_per_run = 0.5
"""


def study_text(
    rounds: int = 3,
    local_steps: int = 4,
    participations: int = 1,
    *,
    noise: str = "noise_multiplier = 4.5",
    clip_norm: float = 1.0,
    lifetime_delta: float = 2e-3,
) -> str:
    """A study of the embedded task for two runs; `noise` is the line that states σ or what it follows from."""
    return _STUDY.format(**locals())


def make_layout(directory: Path, study: str, silos: Sequence[str], *, stock: bool = False) -> Layout:
    """A federation on free ports of this machine, with one for stock SuperNodes if so asked."""
    path = directory / "study.toml"
    path.write_text(study)
    port, behind, for_stock = free_ports(3)
    ports = {"superlink_port": behind, "stock_port": for_stock if stock else None}
    return Layout.create(directory / "f", StudyFile.read(path), silos, "127.0.0.1", port, **ports)


def free_ports(number: int) -> list[int]:
    """Different free ports of this machine."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(number)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def set_value(layout: Layout, silo: str, key: str, value: str) -> None:
    """Change one line of a silo file."""
    path = layout.silo(silo) / "silo.toml"
    text, count = re.subn(rf"(?m)^{key} = [^#\n]*", f"{key} = {value} ", path.read_text())
    assert count == 1, f"{key} occurs {count} times in {path}"
    path.write_text(text)


def add_lines(layout: Layout, silo: str, lines: str) -> None:
    """Add a section to a silo file."""
    path = layout.silo(silo) / "silo.toml"
    path.write_text(path.read_text() + lines)


def give_budgets(layout: Layout, silo: str, *, seed: int = 0) -> BudgetTable:
    """Budgets as the study declares them, and a ledger: for simulations if the silo file has that section."""
    spec = SiloFile.read(layout.silo(silo) / "silo.toml")
    table = drawn_budgets(StudyFile.read(layout.server / "study.toml"), silo, record_ids(spec), seed)
    table.write(spec.file(spec.silo.budgets))
    delta = spec.policy.lifetime_delta
    kind = "production" if spec.simulation is None else "simulation"
    Ledger.create(spec.file(spec.silo.ledger), table, kind=kind, lifetime_delta=delta).close()  # type: ignore[arg-type]
    return table


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not collected yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def all_gone(pids: Iterable[int], seconds: float = 5.0) -> bool:
    """Whether all these processes have ended, given a moment."""
    deadline = time.monotonic() + seconds
    while left := [pid for pid in pids if alive(pid)]:
        if time.monotonic() > deadline:
            return False
        pids = left
        time.sleep(0.05)
    return True


def running_in(directory: Path) -> set[int]:
    """Ids of the processes that run in a directory or were told of it, whoever has started them."""
    found = set()
    for process in Path("/proc").iterdir():
        try:
            told = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            if process.name.isdigit() and str(directory).encode() in told and alive(int(process.name)):
                found.add(int(process.name))
        except OSError:  # gone, or somebody else's
            continue
    return found


def family(*processes: Process) -> set[int]:
    """Ids of processes and of all that they started."""
    return {pid for each in processes for pid in (each.pid, *each.descendants())}


def config(run: str, **settings: Value) -> dict[str, Value]:
    """A run config: settings of the app, with dashes."""
    return {"run-id": run, **{key.replace("_", "-"): value for key, value in settings.items()}}


def require_sound(
    layout: Layout, silo: str, runs: Sequence[str], seen: dict[str, Sequence[RoundLog]], *, newest: bool = True
) -> None:
    """All that must hold for a silo at the end, whatever happened on the way.

    Args:
        layout: The federation; its processes have ended.
        silo: Its name.
        runs: All runs that the silo has admitted.
        seen: The server's log of rounds by run.
        newest: Whether the server has heard all; else its head may be an older one of this ledger.
    """
    spec = SiloFile.read(layout.silo(silo) / "silo.toml")
    budgets = BudgetTable.read(spec.file(spec.silo.budgets))
    with Ledger.read(spec.file(spec.silo.ledger)) as ledger:
        assert ledger.verify().findings == ()
        # Each round is charged once, missed ones together with the next; released are charged and joined ones, once.
        announced = dict.fromkeys(runs, 0)
        joined: set[tuple[str, int]] = set()
        released: set[tuple[str, int]] = set()
        for event in ledger.chain.events("charge", "release"):
            key = (event.run, event.round)
            if event.kind == "release":
                assert key in joined - released
                released.add(key)
                continue
            assert event.round == announced[event.run] + event.facts["missed"] + 1
            announced[event.run] = event.round
            joined |= {key} if event.joined else set()
        assert [event.run for event in ledger.chain.events("admit")] == list(runs)
        for run in runs:  # the server has used nothing but what was released
            assert {(run, log.round) for log in seen[run] if silo in log.joined} <= released
        stories = [ledger.explain(record) for record in budgets.ids.to_pylist()]
        for story, epsilon in zip(stories, budgets.epsilon, strict=True):
            assert story.epsilon <= epsilon * (1 + 1e-9)
            assert story.share_used <= 1 + 1e-9  # of B, which the promise of ε at δ was turned into
            assert np.isclose(story.share_used, sum(run.share for run in story.runs), rtol=1e-6, atol=1e-9)
        head = read_heads(layout.server / HEADS)[silo]
        ledger.chain.require(head, ledger.id)
        assert not newest or ledger.public_head() == head


def status(layout: Layout, silo: str, run: str) -> RunStatus:
    """Where a run stands in the ledger of a silo."""
    spec = SiloFile.read(layout.silo(silo) / "silo.toml")
    with Ledger.read(spec.file(spec.silo.ledger)) as ledger:
        return next(one.status for one in ledger.overview().runs if one.status.run == run)


def model_of_releases(layout: Layout, run: str, rounds: Sequence[RoundLog]) -> Tensor:
    """The model again, from the updates in the silos' outboxes: what the server has averaged, if it got these bytes."""
    spec, public = StudyFile.read(layout.server / "study.toml"), PublicPlan.read(layout.server / "plan.json")
    server = Server(run, public, FlatModel(make_model(spec, 0)).values.data, layout.silos)
    with ExitStack() as stack:
        ledgers = {}
        for silo in layout.silos:
            file = SiloFile.read(layout.silo(silo) / "silo.toml")
            ledgers[silo] = stack.enter_context(Ledger.open(file.file(file.silo.ledger)))
        for log in rounds:
            server.announce()
            sent = {silo: ledgers[silo].stored(run, log.round) for silo in log.joined}
            assert server.collect(Update.from_bytes(silo, payload or b"") for silo, payload in sent.items()) == {}
    return server.result
