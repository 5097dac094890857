"""A few seeded agents and a server for them, beside the simulator's run of the same federation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from rpdp.federation import RunResult, Silo, simulate
from rpdp.federation.coordinator import Coordinator, RoundSettings
from rpdp.tasks.models.losses import binary_loss
from rpdp.training import FlatModel
from tests.deployment.agent.scene import Making, in_memory, policy_of, public_plan
from tests.federation.world import chosen, make_model, make_recipe, make_records

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

    from rpdp import PublicPlan
    from rpdp.deployment.agent.agent import Agent
    from tests.deployment.agent.links import Local

NAMES = ("a", "b", "c")
SEED = 7
WEIGHTS = {"a": 1.0, "b": 2.0, "c": 0.5}


def plan(backbone: str = "fedavg", rounds: int = 6, **changes: Any) -> PublicPlan:
    return public_plan(rounds, participation=0.7, weights=WEIGHTS, recipe=make_recipe(backbone), **changes)


PUBLIC = plan()


def making(public: PublicPlan, name: str, seed: int | None = SEED) -> Making:
    return Making(public, name, records=make_records(30, ord(name)), seed=seed, q=0.5)


def agents(public: PublicPlan, names: Sequence[str] = NAMES) -> dict[str, Agent | None]:
    """Seeded agents at addresses that do not tell their names."""
    return {f"at {index}": in_memory(making(public, name)) for index, name in enumerate(names)}


def start() -> Tensor:
    torch.manual_seed(0)
    return FlatModel(make_model()).values.data.clone()


def coordinator(
    folder: Path, public: PublicPlan, link: Local, names: Sequence[str] = NAMES, **more: Any
) -> Coordinator:
    settings: dict[str, Any] = {"deadline": 20.0, "patience": 5.0, "seed": SEED}
    given = {name: more.pop(name) for name in tuple(more) if name in RoundSettings.__dataclass_fields__}
    return Coordinator(
        "run", public, start(), names, link, RoundSettings(**{**settings, **given}),
        checkpoint=folder / "checkpoint", heads=folder / "heads.json", **more,
    )  # fmt: skip


def simulated(public: PublicPlan, names: Sequence[str] = NAMES) -> RunResult:
    silos = []
    for name in names:
        made = making(public, name)
        silos.append(Silo(name, made.held, made.budgets, policy=policy_of(public), planner=chosen(0.5)))
    torch.manual_seed(0)
    return simulate(make_model(), binary_loss, silos, public, seed=SEED, workers=1)


def rounds(result: RunResult) -> list[tuple[int, tuple[str, ...], dict[str, str]]]:
    return [(log.round, log.joined, dict(log.rejected)) for log in result.rounds]
