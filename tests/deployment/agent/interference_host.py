"""One world of the non-interference suite: a silo in a folder, with or without the target, served by its own process.

The process does what `rpdp silo serve` does: it reads the silo file, opens the agent and serves its socket until
SIGTERM. A *leak* changes the agent first, so that it shows whether the target is there: the controls of the suite.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rpdp import BudgetTable
from rpdp.accounting.curve import PrivacyCurve
from rpdp.accounting.delta_table import DeltaTable
from rpdp.accounting.divergence import DivergenceCurve
from rpdp.cli.signals import stop_on_signal
from rpdp.cli.silo_command import _facts
from rpdp.deployment.agent import agent as agent_module
from rpdp.deployment.agent.agent import Agent
from rpdp.deployment.agent.opening import open_agent
from rpdp.deployment.agent.socket_service import Service
from rpdp.deployment.files.silo_file import SiloFile
from rpdp.errors import RpdpError
from rpdp.federation import Silo, Update, model_fingerprint
from rpdp.federation import silo as silo_module
from rpdp.federation.frames import Frame
from rpdp.ledger import Ledger
from rpdp.planning import Recipe
from tests.deployment.agent import interference_zoo as zoo
from tests.federation.world import make_public

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from rpdp import PublicPlan

RELEASE_AFTER = 0.6
"""Seconds; more on a machine that is busy."""

ROUNDS = 120
BESIDE = "beside"
"""The name of the other run that an agent carries in some cases."""

SEED = 5
LIFETIME_DELTA = 0.01
EPSILON = 1000.0
"""So large that every record is drawn in every step: what one record causes happens in every round."""

PRICE = 0.016
"""Share of `release_after`."""


@dataclass(frozen=True)
class Case:
    """What a hostile federation looks like: code of the silo, and what the server may choose.

    Attributes:
        target: Which record is there or not.
        first: The target is the first record of the silo, not the last one.
        label: The target's label.
        epsilon: The target's budget; that of all others is `EPSILON`.
        admissions: Units are admissions that are cancelled again, not rounds; a price takes `PRICE` of `release_after`
            longer, as if the plan or the machine were slow.
        beside: The agent carries another run as well, a round of which is announced while one of this run is answered.
        weights: Which model the server announces.
        correction: The number in every place of the correction, if there is one.
        is_production: With secure randomness on a production ledger; otherwise both agents draw the same coins.
    """

    name: str
    model: str = "logistic"
    loss: str = "logits"
    target: str = "marked"
    first: bool = False
    label: int = 0
    epsilon: float = EPSILON
    admissions: bool = False
    beside: bool = False
    weights: str = "zeros"
    correction: float | None = None
    recipe: dict[str, Any] = field(default_factory=dict)
    local_steps: int = 2
    participation: float | None = 1.0
    participations: int | None = None
    noise_multiplier: float = 8.0
    delta: float = 1e-3
    is_production: bool = False
    release_after: float = RELEASE_AFTER

    @property
    def overflows(self) -> bool:
        """Whether what the server chose may make every model overflow, whatever the records: such rounds sit out."""
        return self.weights == "largest" or self.recipe.get("learning_rate") == 1e30 or self.correction is not None

    @property
    def public(self) -> PublicPlan:
        """The plan that the server proposes."""
        return make_public(
            ROUNDS,
            self.local_steps,
            participation=self.participation,
            participations=self.participations,
            noise_multiplier=self.noise_multiplier,
            delta=self.delta,
            share=0.4 if self.beside else None,
            accountant="rdp",  # its table, which every admission computes, takes half a second instead of three
            recipe=Recipe(**self.recipe),
            model_fingerprint=model_fingerprint(zoo.make_model(self.model)),
        )


def build(folder: Path, case: Case, with_target: bool) -> SiloFile:
    """The silo's folder: its code, budgets, ledger and silo file."""
    folder.mkdir(mode=0o700)
    target = case.target if with_target else None
    given = f"{target!r}, first={case.first}, label={case.label}"
    (folder / "silo_code.py").write_text(
        "from tests.deployment.agent import interference_zoo as zoo\n"
        f"def load():\n    return zoo.make_records({given})\n"
        f"def make_model():\n    return zoo.make_model({case.model!r})\n"
        f"loss = zoo.make_loss({case.loss!r})\n"
    )
    ids = zoo.make_records(target)[1]
    table = BudgetTable(ids, np.where(np.array(ids) == "target", case.epsilon, EPSILON))
    table.write(folder / "budgets.csv")
    kind: Any = "production" if case.is_production else "simulation"
    # A price at the plan's own tiny δ takes long, which is what the control about admissions needs to show.
    delta = case.public.delta if case.admissions else LIFETIME_DELTA
    Ledger.create(folder / "ledger.db", table, kind=kind, lifetime_delta=delta, account="sums").close()
    text = _SILO_FILE.format(public=case.public, after=case.release_after, lifetime_delta=delta)
    (folder / "silo.toml").write_text(text + ("" if case.is_production else f"[simulation]\nseed = {SEED}\n"))
    return SiloFile.read(folder / "silo.toml")


_SILO_FILE = """
[silo]
name = "a"
ledger = "ledger.db"
budgets = "budgets.csv"
socket = "s"
[data]
factory = "silo_code:load"
[models.study]
model = "silo_code:make_model"
loss = "silo_code:loss"
[policy]
max_rounds = {public.schedule.rounds}
max_local_steps = {public.schedule.local_steps}
max_participation = 1.0
max_clip_norm = {public.clip_norm}
min_noise_multiplier = {public.noise_multiplier}
lifetime_delta = {lifetime_delta}
max_runs = 3
max_share_per_run = 1.0
release_after = {after}
"""


def serve(folder: Path, case: Case, with_target: bool, leak: str | None, link: Connection) -> None:
    """Serve one world until SIGTERM. Says first whether the agent opened, and what the check names as not covered."""
    os.setsid()  # so that the whole world can be ended
    os.umask(0o077)
    log = os.open(folder.with_suffix(".log"), os.O_WRONLY | os.O_CREAT, 0o600)
    for number in (1, 2):
        os.dup2(log, number)
    zoo.SLEEP = case.release_after / 2
    if case.admissions:
        _changed(PrivacyCurve, "_price", lambda price: _slow(price, PRICE * case.release_after))
    if leak is not None:
        LEAKS[leak]()
    try:
        spec = build(folder, case, with_target)
        with open_agent(spec) as agent:
            service = Service(agent, folder / "s")
            stop_on_signal(service.stop)
            link.send(("ready", not_covered(_facts(spec, agent))))
            service.serve()
    except RpdpError as error:
        link.send(("refused", str(error).replace(str(folder), "")))
    sys.stdout.flush()


def not_covered(facts: object) -> tuple[str, ...]:
    """What `rpdp silo check` names as not covered, wherever it says so."""
    if isinstance(facts, str):
        return (facts,) if facts.startswith("not covered") else ()
    inner = facts.values() if isinstance(facts, dict) else facts if isinstance(facts, list | tuple) else ()
    return tuple(note for each in inner for note in not_covered(each))


# Controls: agents that show whether the target is there


def _has_target(silo: Silo) -> bool:
    return "target" in silo.budgets.ids.to_pylist()


def _release_after(agent: Agent) -> float:
    return agent._timing.release_after or 0.0


def _changed(owner: type, name: str, change: Callable[[Any], Any]) -> None:
    setattr(owner, name, change(getattr(owner, name)))


def _slow(price: Any, seconds: float) -> Any:
    def changed(curve: PrivacyCurve, q: Any) -> Any:
        time.sleep(seconds * q.size)
        return price(curve, q)

    return changed


def _late() -> None:
    """An answer leaves a fifth of `release_after` later."""

    def change(answer: Any) -> Any:
        def changed(agent: Agent, request: Frame) -> Frame:
            found: Frame = answer(agent, request)
            if found.kind in ("update", "sat-out") and _has_target(agent.silo):
                time.sleep(0.2 * _release_after(agent))
            return found

        return changed

    _changed(Agent, "answer", change)


def _late_turn() -> None:
    """The next request waits."""

    def change(answer: Any) -> Any:
        def changed(agent: Agent, request: Frame) -> Frame:
            found: Frame = answer(agent, request)
            if found.facts.get("reason") == "round" and _has_target(agent.silo):
                time.sleep(0.2 * _release_after(agent))
            return found

        return changed

    _changed(Agent, "answer", change)


def _late_other_run() -> None:
    """A round of the other run is answered later."""

    def change(answer: Any) -> Any:
        def changed(agent: Agent, request: Frame) -> Frame:
            found: Frame = answer(agent, request)
            if request.kind == "round" and request.facts["run"] == BESIDE and _has_target(agent.silo):
                time.sleep(0.2 * _release_after(agent))
            return found

        return changed

    _changed(Agent, "answer", change)


def _sits_out(share: int = 1) -> None:
    """No update is ready in time."""

    def change(finish: Any) -> Any:
        def changed(silo: Silo, trained: Any) -> Update:
            if _has_target(silo) and trained.update.round % share == 0:
                raise OSError("no space left on device")
            found: Update = finish(silo, trained)
            return found

        return changed

    _changed(Silo, "finish", change)


def _longer() -> None:
    """An answer is a byte longer."""

    def change(answer: Any) -> Any:
        def changed(agent: Agent, request: Frame) -> Frame:
            found: Frame = answer(agent, request)
            return replace(found, payload=found.payload + b"\0" * _has_target(agent.silo))

        return changed

    _changed(Agent, "answer", change)


def _other_word() -> None:
    """A refusal has another word."""

    def change(answer: Any) -> Any:
        def changed(agent: Agent, request: Frame) -> Frame:
            found: Frame = answer(agent, request)
            if found.kind == "refused" and _has_target(agent.silo):
                return Frame({**found.facts, "reason": "failed"})
            return found

        return changed

    _changed(Agent, "answer", change)


def _unchecked() -> None:
    """Models are taken as they are: whatever a record's values make them do."""

    def nothing(*_: object) -> list[str]:
        return []

    for module in (agent_module, silo_module):
        getattr(module, CHECK)  # it is there to be replaced
        setattr(module, CHECK, nothing)


def _no_table() -> None:
    """An admission computes only the prices that its own budgets need."""
    for curve in (PrivacyCurve, DivergenceCurve, DeltaTable):
        _changed(curve, "tabulate", lambda _: lambda curve: None)


CHECK = "require_value_independent"
UNCHECKED = "models are not checked"
NO_TABLE = "only needed prices"
OTHER_RUN = "other run late"
SOMETIMES = "sits out every other round"
LEAKS: dict[str, Callable[[], None]] = {
    "answers late": _late,
    "next turn late": _late_turn,
    OTHER_RUN: _late_other_run,
    "sits out": _sits_out,
    SOMETIMES: lambda: _sits_out(2),
    "a byte more": _longer,
    "another word": _other_word,
    UNCHECKED: _unchecked,
    NO_TABLE: _no_table,
}
