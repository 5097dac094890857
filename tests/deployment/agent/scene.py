"""A silo agent that tests put together: a real ledger under it, a socket in front of it, and a server's words to it."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from rpdp import BudgetTable
from rpdp.deployment.agent.agent import Agent, AllowedModel
from rpdp.deployment.agent.agent_client import ask
from rpdp.deployment.agent.release_timing import Timing
from rpdp.deployment.agent.socket_service import Service
from rpdp.federation import Policy, Silo, model_fingerprint
from rpdp.federation.frames import Frame
from rpdp.ledger import Ledger, MemoryAccount
from rpdp.planning import assign_allowed
from rpdp.sampling import Secure, Seeded
from rpdp.tasks.models.losses import binary_loss
from tests.federation.world import FEATURES, chosen, make_ids, make_model, make_public, make_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from rpdp import PublicPlan
    from rpdp.federation.cells import CellSource
    from rpdp.ledger import Account
    from rpdp.ledger.account import RunStatus
    from rpdp.ledger.store.chain import PublicHead
    from rpdp.planning import Purpose
    from rpdp.training import PerRecordLoss, Records

RUN = "run"
MODEL = model_fingerprint(make_model())
SIZE = FEATURES + 1
RECORDS = 30
LIFETIME_DELTA = 0.01
MOST = 1 << 30
READY = Timing(None)


def public_plan(rounds: int = 6, local_steps: int = 3, **changes: Any) -> PublicPlan:
    """A plan for the model that agents here allow; every round is joined unless `participation` says otherwise."""
    return make_public(rounds, local_steps, **{"model_fingerprint": MODEL, **changes})


def policy_of(public: PublicPlan, **changes: Any) -> Policy:
    """Exactly this plan, for several runs."""
    return Policy(**{**vars(Policy.of(public)), "lifetime_delta": LIFETIME_DELTA, "max_runs": 3, **changes})


@dataclass(frozen=True)
class Making:
    """What an agent in a test is made of; by default what a hospital would have.

    Attributes:
        public: Its policy allows this plan.
        epsilon: Budgets, in turn.
        q: Probabilities in place of planned ones, for seeded agents: saves time where prices do not matter.
        seed: None for secure randomness on a production ledger; a number for seeded randomness and memory.
    """

    public: PublicPlan
    name: str = "a"
    records: Records | None = None
    epsilon: Sequence[float] = (0.5, 1.0, 4.0)
    policy: Policy | None = None
    timing: Timing = READY
    loss: PerRecordLoss = binary_loss
    seed: int | None = None
    q: float | None = None
    closed_runs: Sequence[str] = ()
    max_concurrent_runs: int = 4
    patience: float | None = 20.0
    kind: type[Agent] = Agent
    silo: type[Silo] = Silo
    vfs: str | None = None
    measured: Mapping[Purpose, CellSource] | None = None
    held_out: NDArray[np.bool_] | None = None
    has_model: bool = True

    @property
    def held(self) -> Records:
        return make_records(RECORDS) if self.records is None else self.records

    @property
    def budgets(self) -> BudgetTable:
        return BudgetTable(make_ids(len(self.held)), np.resize(self.epsilon, len(self.held)))

    def agent(self, account: Account) -> Agent:
        limits = policy_of(self.public) if self.policy is None else self.policy
        planner = assign_allowed if self.q is None else chosen(self.q)
        silo = self.silo(
            self.name, self.held, self.budgets, policy=limits, account=account, planner=planner,
            measured=self.measured, held_out=self.held_out,
        )  # fmt: skip

        def randomness() -> Secure | Seeded:
            return Secure() if self.seed is None else Seeded(self.seed).child("silo", self.name)

        return self.kind(
            silo,
            [AllowedModel(model, self.loss) for model in (make_model(),) if self.has_model],
            randomness,
            self.timing,
            closed_runs=self.closed_runs,
            max_concurrent_runs=self.max_concurrent_runs,
            patience=self.patience,
        )


@contextmanager
def opened(folder: Path, making: Making) -> Iterator[Agent]:
    """The agent over its ledger in a folder, which is made at the first call and opened at later ones."""
    path = folder / f"{making.name}.db"
    if not path.exists():
        kind: Any = "production" if making.seed is None else "simulation"
        Ledger.create(path, making.budgets, kind=kind, lifetime_delta=LIFETIME_DELTA).close()
    with Ledger.open(path, vfs=making.vfs) as ledger:
        agent = making.agent(ledger)
        try:
            yield agent
        finally:
            agent.close()


@contextmanager
def admitted(folder: Path, making: Making, runs: Mapping[str, PublicPlan]) -> Iterator[Agent]:
    """An agent over a new ledger that has admitted these runs; their servers knew no head."""
    with opened(folder, making) as agent:
        for run, public in runs.items():
            assert told(agent, admission(public, run)).kind == "admitted"
        yield agent


def in_memory(making: Making) -> Agent:
    """A seeded agent without a ledger."""
    assert making.seed is not None
    return making.agent(MemoryAccount(len(making.held)))


# What a server says


def admission(public: PublicPlan, run: str = RUN, head: PublicHead | None = None, hold: int = 3600) -> Frame:
    plan, known = json.loads(public.to_json()), None if head is None else asdict(head)
    return Frame({"kind": "admit", "run": run, "plan": plan, "hold": hold, "head": known})


def cancellation(run: str = RUN, head: PublicHead | None = None) -> Frame:
    return Frame({"kind": "cancel", "run": run, "head": None if head is None else asdict(head)})


def numbers(values: ArrayLike = 0.0, size: int = SIZE) -> bytes:
    return np.broadcast_to(np.asarray(values, dtype="<f4"), (size,)).tobytes()


def announcement(
    public: PublicPlan,
    number: int,
    values: ArrayLike = 0.0,
    *,
    run: str = RUN,
    head: PublicHead | None = None,
    correction: ArrayLike | None = None,
    size: int = SIZE,
) -> Frame:
    facts = {
        "kind": "round",
        "run": run,
        "plan": public.fingerprint,
        "round": number,
        "correction": correction is not None,
        "head": None if head is None else asdict(head),
    }
    return Frame(facts, numbers(values, size) + (b"" if correction is None else numbers(correction, size)))


def told(agent: Agent, frame: Frame) -> Frame:
    """The answer to a request; both travel as bytes."""
    answer = agent.answer(Frame.from_bytes(frame.to_bytes(), agent.most_payload))
    return Frame.from_bytes(answer.to_bytes(), MOST)


def reason(answer: Frame) -> str:
    """The word of a refusal; it says nothing else."""
    assert answer.kind == "refused", answer.facts
    assert set(answer.facts) == {"kind", "reason"}
    assert answer.payload == b""
    return str(answer.facts["reason"])


def head_of(agent: Agent) -> PublicHead:
    """Where its ledger stands, as the server is told."""
    head = agent.silo.account.public_head()
    assert head is not None
    return head


def status(agent: Agent, run: str = RUN) -> RunStatus:
    return next(one for one in agent.silo.account.status().runs if one.run == run)


# On a socket


class Live:
    """An agent that serves on a Unix socket in a thread of this process."""

    def __init__(self, agent: Agent, path: Path, group: str | None = None) -> None:
        self.agent = agent
        self.path = path
        self.service = Service(agent, path, group=group)
        self._thread = threading.Thread(target=self.service.serve)

    def __enter__(self) -> Self:
        self._thread.start()
        wait_until(lambda: self.path.exists() or not self._thread.is_alive())
        wait_until(lambda: self._listens() or not self._thread.is_alive())
        return self

    def __exit__(self, *_: object) -> None:
        self.service.stop()
        self._thread.join(20.0)
        assert not self._thread.is_alive()

    def ask(self, request: Frame | bytes, timeout: float = 20.0) -> Frame:
        sent = request if isinstance(request, bytes) else request.to_bytes()
        return Frame.from_bytes(ask(self.path, sent, timeout=timeout), MOST)

    def _listens(self) -> bool:
        try:
            return self.ask(Frame({"kind": "hello"})).kind == "hello"
        except Exception:  # not yet
            return False


def wait_until(happened: Callable[[], bool], seconds: float = 10.0) -> None:
    until = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.005)
