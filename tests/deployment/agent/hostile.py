"""What a hostile server may try: one row each, with the answer that it must get, and what must hold afterwards.

A row is *refused*: one fixed word, logged, nothing released, nothing charged. Or it is *harmless*: it cannot be told
from an honest request, or is one, and the row checks that it brings nothing beyond the plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rpdp.deployment.agent.agent import Agent
from rpdp.federation import Silo
from rpdp.federation.frames import Frame
from tests.deployment.agent.scene import (
    RECORDS,
    Live,
    Making,
    admission,
    announcement,
    policy_of,
    public_plan,
    reason,
    status,
)
from tests.federation.world import make_records

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import ArrayLike, NDArray

    from rpdp.training import Records

WEIGHTS = {"a": 1.0, "b": 1.0}
PUBLIC = public_plan(80, 2, participations=40, noise_multiplier=2.0, weights=WEIGHTS)
"""Exactly 40 of 80 rounds: which ones, the silo draws."""

BESIDE = public_plan(
    40, 2, participations=20, noise_multiplier=2.0, weights=WEIGHTS, normaliser=PUBLIC.normaliser + 1.0
)
"""The plan of another run, "beside", where an agent carries two."""

HELLO = Frame({"kind": "hello"}).to_bytes()
PLANE = np.array([1.0, -1.0, 0.5, 0.0])
CANARY_SIZE = 100.0


def with_canary(count: int = RECORDS, seed: int = 0) -> Records:
    """Records of which the last one is far away from all others, on the wrong side."""
    records = make_records(count, seed)
    records.inputs[0][-1] = torch.from_numpy(CANARY_SIZE * PLANE / np.linalg.norm(PLANE))
    records.targets[-1] = 0
    return records


def against_the_canary() -> NDArray[np.float32]:
    """A model that is sure of, and right on, every record but the canary: only its gradient is large."""
    return np.append(500.0 * PLANE, 0.0).astype(np.float32)


# The target


class Target:
    """A live agent in mid-run, as a hostile server meets it: some rounds are over."""

    def __init__(self, live: Live, folder: Path) -> None:
        self.live = live
        self.folder = folder
        self.asked = 0

    def begin(self, meets: str = "mid-run") -> Target:
        """Admit the run, and go on until one round was joined and one sat out; "several": the run beside it, too."""
        assert self.ask(admission(PUBLIC)).kind == "admitted"
        if meets == "several":
            assert self.ask(admission(BESIDE, "beside")).kind == "admitted"
            self.beside(1)
        self.first: dict[int, Frame] = {}
        while {answer.kind for answer in self.first.values()} != {"update", "sat-out"}:
            number = self.asked + 1
            self.first[number] = self.round(number)
            assert self.first[number].kind != "refused"
        return self

    @property
    def agent(self) -> Agent:
        return self.live.agent

    def ask(self, request: Frame | bytes) -> Frame:
        return self.live.ask(request)

    def round(self, number: int, values: ArrayLike = 0.0, **more: Any) -> Frame:
        self.asked = max(self.asked, number)
        return self.ask(announcement(PUBLIC, number, values, **more))

    def beside(self, number: int, values: ArrayLike = 0.0) -> Frame:
        """A round of the run beside."""
        return self.ask(announcement(BESIDE, number, values, run="beside"))

    def next_joined(self, values: ArrayLike, **more: Any) -> Frame:
        """Announce new rounds with this model until the silo has joined one; its answer."""
        while True:
            before = status(self.agent).joined
            answer = self.round(self.asked + 1, values, **more)
            if status(self.agent).joined != before:
                return answer

    def state(self) -> tuple[object, ...]:
        """All that a request could change: charges, joined rounds, releases, reservations."""
        silo = self.agent.silo
        left = silo.account.left(silo.budgets, silo.policy.lifetime_delta)
        assert left.delta is not None
        return silo.account.status(), silo.account.public_head(), left.amount.tolist(), left.delta.tolist()

    def check_promise(self) -> None:
        """No record is over its budget, and no more than the plan's rounds were joined."""
        silo, one = self.agent.silo, status(self.agent)
        assert len(one.joined) <= 40
        assert set(one.released) <= set(one.joined)
        for record in (0, 1, 2, len(silo.records) - 1):
            story = silo.account.explain(f"r{record}")  # type: ignore[attr-defined]
            assert story.share_used <= 1.0 + 1e-9
            assert not story.spent_delta > story.delta  # NaN in a Rényi account


@dataclass(frozen=True)
class Row:
    """One hostile behaviour.

    Attributes:
        name: What the server does.
        word: The word of the refusal; "" if it is harmless.
        attack: Does it; the answer for a refusal, what was checked for a harmless one.
        meets: "mid-run"; "several": in mid-run, beside another run; "fresh": an agent that has admitted nothing;
            "listed": one whose silo lists its plans, too.
    """

    name: str
    word: str
    attack: Callable[[Target], Frame | str]
    meets: str = "mid-run"


def refuse(target: Target, row: Row) -> bytes:
    """Do it; the bytes of the answer, after checking that it is the right word and changed nothing."""
    before = target.state()
    answer = row.attack(target)
    assert isinstance(answer, Frame)
    assert reason(answer) == row.word, f"{row.name}: {answer.facts}"
    assert target.state() == before, f"{row.name}: something was charged or released"
    return answer.to_bytes()


def suffer(target: Target, row: Row) -> str:
    """Do what cannot be refused; what was checked."""
    checked = row.attack(target)
    assert isinstance(checked, str)
    return checked


def making(
    silo: type[Silo] = Silo, agent: type[Agent] = Agent, *, count: int = RECORDS, seed: int = 0, meets: str = "mid-run"
) -> Making:
    """The silo that is attacked; another count and seed make one with other records and budgets."""
    several = {"max_share_per_run": 0.3} if meets == "several" else {}
    listed = {"allowed_plans": (PUBLIC.fingerprint,)} if meets == "listed" else {}
    return Making(
        PUBLIC,
        records=with_canary(count, seed),
        epsilon=(0.5, 1.0, 4.0) if seed == 0 else (2.0, 0.1),
        policy=policy_of(PUBLIC, **several, **listed),
        closed_runs=("closed",),
        max_concurrent_runs=2 if meets == "several" else 1,
        silo=silo,
        kind=agent,
    )
