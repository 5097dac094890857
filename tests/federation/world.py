"""A small federation that tests put together: records, plans with chosen probabilities, silos, announcements."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from rpdp import BudgetTable, PublicPlan, Schedule, SiloPlan
from rpdp.federation import Announcement, Evaluation, Policy, RunResult, Server, Silo, Update
from rpdp.federation import local_training as local
from rpdp.planning import Recipe, Status
from rpdp.sampling import Randomness, Seeded
from rpdp.tasks.models.linear import logistic_regression
from rpdp.tasks.models.losses import binary_loss, predicted_classes
from rpdp.training import NoisyStep, Records, StepDiagnostics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    import pytest
    from numpy.typing import ArrayLike, NDArray

    from rpdp.ledger import Account
    from rpdp.planning import Allowances, Planner

FEATURES = 4
RUN = "run"
DEFAULTS: dict[str, Any] = {
    "noise_multiplier": 1.0,
    "delta": 1e-3,
    "clip_norm": 1.0,
    "normaliser": 10.0,
    "weights": 1.0,
    "accountant": "rdp",
}


def make_public(
    rounds: int = 4,
    local_steps: int = 3,
    *,
    participation: float | None = 1.0,
    participations: int | None = None,
    max_participations: int | None = None,
    recipe: Recipe | None = None,
    **changes: Any,
) -> PublicPlan:
    """A public plan, with every setting open to change."""
    schedule = Schedule(
        rounds,
        local_steps,
        participation=None if participations else participation,
        participations=participations,
        max_participations=max_participations,
    )
    return PublicPlan(schedule, **{**DEFAULTS, **changes}, recipe=recipe or Recipe())


def make_recipe(backbone: str, **settings: float) -> Recipe:
    """A recipe of one backbone."""
    return Recipe(learning_rate=0.5, backbone=backbone, backbone_settings=settings)


def make_records(count: int, seed: int = 0) -> Records:
    """Two classes on either side of a plane."""
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(count, FEATURES)).astype(np.float32)
    labels = (features @ np.array([1.0, -1.0, 0.5, 0.0]) > 0).astype(np.int64)
    return Records.of(torch.from_numpy(features), torch.from_numpy(labels))


def make_ids(count: int, name: str = "r") -> list[str]:
    return [f"{name}{number}" for number in range(count)]


def silo_plan(
    public: PublicPlan,
    ids: pa.ChunkedArray,
    budget: NDArray[np.float64],
    q: ArrayLike,
    *,
    cost: ArrayLike = 0.1,
    active_rounds: ArrayLike | None = None,
) -> SiloPlan:
    """A silo plan with these probabilities, whatever they would really cost: for what does not depend on prices."""
    count = len(ids)
    rounds = public.schedule.rounds if active_rounds is None else active_rounds
    chances = np.broadcast_to(np.asarray(q, dtype=np.float64), (count,)).copy()
    return SiloPlan(
        public=public,
        ids=ids,
        budget=budget,
        q=chances,
        cost=np.where(chances > 0.0, np.broadcast_to(cost, (count,)), 0.0),
        active_rounds=np.broadcast_to(np.asarray(rounds, dtype=np.int32), (count,)).copy(),
        status=np.full(count, Status.SAMPLED, dtype=np.uint8),
        estimator="by hand",
        facts={},
    )


def chosen(q: ArrayLike, active_rounds: ArrayLike | None = None) -> Planner:
    """A planner that hands out these probabilities."""

    def planner(public: PublicPlan, ids: pa.ChunkedArray, allowed: Allowances) -> SiloPlan:
        return silo_plan(public, ids, allowed.amount, q, active_rounds=active_rounds)

    return planner


def make_silo(
    name: str,
    public: PublicPlan,
    count: int = 12,
    *,
    seed: int = 0,
    q: ArrayLike = 0.5,
    active_rounds: ArrayLike | None = None,
    records: Records | None = None,
    account: Account | None = None,
    policy: Policy | None = None,
    kind: type[Silo] = Silo,
    planner: Planner | None = None,
    device: torch.device | str = "cpu",
) -> Silo:
    """A silo whose plan has chosen probabilities, or comes from a planner."""
    held = make_records(count, seed) if records is None else records
    return kind(
        name,
        held,
        BudgetTable(make_ids(len(held), name), np.ones(len(held))),
        policy=Policy.of(public) if policy is None else policy,
        account=account,
        planner=chosen(q, active_rounds) if planner is None else planner,
        device=device,
    )


def make_model() -> nn.Module:
    return logistic_regression(FEATURES)


def admit(
    silo: Silo,
    public: PublicPlan,
    *,
    loss: Callable[[Tensor, Tensor], Tensor] = binary_loss,
    randomness: Randomness | None = None,
    model: nn.Module | None = None,
) -> SiloPlan:
    """Admit the run of this plan."""
    source = Seeded(1).child(silo.name) if randomness is None else randomness
    return silo.admit(RUN, public, make_model() if model is None else model, loss, source)


def admitted(name: str, public: PublicPlan, *, randomness: Randomness | None = None, **settings: Any) -> Silo:
    """A silo that has admitted the plan."""
    silo = make_silo(name, public, **settings)
    admit(silo, public, randomness=randomness)
    return silo


def announced(public: PublicPlan, number: int, **changes: Any) -> Announcement:
    """What a server says at the start of a round, from a model of zeros."""
    return replace(Announcement(RUN, public.fingerprint, number, torch.zeros(FEATURES + 1)), **changes)


def answer_all(server: Server, silos: Sequence[Silo]) -> list[Update]:
    """One round: what comes back from the silos. The caller lets the server collect it."""
    told = server.announce()
    return [update for silo in silos if (update := silo.answer(told[silo.name])) is not None]


def evaluation(names: Sequence[str], count: int = 40) -> Evaluation:
    """Test records for some silos."""
    return Evaluation({name: make_records(count, 100 + index) for index, name in enumerate(names)}, is_correct)


def is_correct(output: Tensor, targets: Tensor) -> Tensor:
    return predicted_classes(output) == targets


def outcome(result: RunResult) -> dict[str, Any]:
    """Everything of a result that must repeat: all but the times, which differ by nature."""
    return {
        "run": result.run,
        "values": result.values.numpy().tobytes(),
        "rounds": [(log.round, log.joined, dict(log.rejected), log.score) for log in result.rounds],
        "silos": {
            name: (
                view.plan.fingerprint,
                view.joined,
                view.draws.tolist(),
                view.expected_draws.tolist(),
                None if view.correct is None else view.correct.tolist(),
            )
            for name, view in result.silos.items()
        },
    }


class Spy:
    """Sees what every local step draws and releases."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.drawn: list[list[int]] = []
        self.released: list[NDArray[np.float64]] = []
        spy = self

        class Watched(NoisyStep):
            def release(self, records: Records, drawn: NDArray[np.int64]) -> StepDiagnostics:
                diagnostics = super().release(records, drawn)
                gradient = self.kernel.model.values.grad
                assert gradient is not None
                spy.drawn.append(drawn.tolist())
                spy.released.append(gradient.double().numpy().copy())
                return diagnostics

        monkeypatch.setattr(local, "NoisyStep", Watched)

    def take(self) -> list[NDArray[np.float64]]:
        """The releases since the last call."""
        released, self.released = self.released, []
        return released
