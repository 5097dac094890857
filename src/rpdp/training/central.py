"""Centralised rPDP-SGD: the paper's variant without federation, and uniform DP-SGD as a special case.

A single data holder takes every step. Record j is drawn into each step with its own q_j, which is exactly what the cost
in its plan covers (privacy.md, section 1 with T = 1 and λ = 1). With the plan of `uniform_plan` the same function is
uniform DP-SGD. Plain SGD, without any promise, is `rpdp_lab.rivals.train_plain`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from rpdp.budgets import BudgetTable
from rpdp.checks import require_count, require_positive
from rpdp.errors import InputError, PlanError
from rpdp.sampling import PoissonSampler
from rpdp.training.flat_model import FlatModel
from rpdp.training.kernel_choice import make_kernel
from rpdp.training.noisy_step import NoisyStep, StepSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from rpdp.planning import PublicPlan, SiloPlan
    from rpdp.sampling import Randomness
    from rpdp.training.kernel import PerRecordLoss
    from rpdp.training.records import Records

OptimiserFactory = Callable[[list["Tensor"]], torch.optim.Optimizer]
"""Makes an optimiser with public settings from the tensors to train, e.g. `lambda v: torch.optim.SGD(v, lr=1)`."""


class LocalView:
    """Facts about the steps and records of one run, for the data holder only. No promise covers any of them.

    Attributes:
        draws: How often each record was drawn.
        expected_draws: How often the plan expects each record to be drawn.
        batch_sizes: Realised batch size of each step.
        median_norms: Median gradient norm of each step before clipping; NaN when nothing was drawn.
        clipped_shares: Share of each step's gradients that were longer than the clip norm.
    """

    def __init__(self, expected_draws: NDArray[np.float64]) -> None:
        self.expected_draws = expected_draws
        self.draws = np.zeros(len(expected_draws), dtype=np.int64)
        self.batch_sizes: list[int] = []
        self.median_norms: list[float] = []
        self.clipped_shares: list[float] = []

    def add(self, drawn: NDArray[np.int64], norms: Tensor, clip_norm: float) -> None:
        """Record one step: the drawn positions and the norms of their gradients."""
        self.draws[drawn] += 1
        self.batch_sizes.append(len(drawn))
        self.median_norms.append(float(norms.median()) if len(norms) else float("nan"))
        self.clipped_shares.append(float((norms > clip_norm).double().mean()) if len(norms) else 0.0)

    @property
    def inclusion_ratio(self) -> float:
        """The number of draws divided by the expected number: near 1 when the sampler follows the plan."""
        expected = float(self.expected_draws.sum())
        return float(self.draws.sum()) / expected if expected > 0 else float("nan")


@dataclass(frozen=True)
class CentralResult:
    """A trained model. `model` is what the promise covers; `local` is sensitive and stays with the data holder.

    Attributes:
        model: The model after the last step.
        is_simulation: Whether the randomness was seeded. If so, nothing is protected.
        local: Facts about the steps. Never report them.
    """

    model: FlatModel
    is_simulation: bool
    local: LocalView

    @property
    def values(self) -> Tensor:
        """A copy of the trained parameters, flat."""
        return self.model.values.detach().clone()


def train_central(
    module: nn.Module,
    loss: PerRecordLoss,
    records: Records,
    plan: SiloPlan,
    randomness: Randomness,
    *,
    optimiser: OptimiserFactory,
    record_ids: Sequence[str] | None = None,
    micro_batch: int = 1024,
    device: torch.device | str = "cpu",
) -> CentralResult:
    """Train `module` in place, so that for every record the run is (ε_j, δ)-DP under adding or removing it.

    The plan determines steps, noise, clip norm and normaliser. Seeded streams are keyed by step, so step t draws the
    same records and noise however long the run is.

    | case | what happens |
    |---|---|
    | `Schedule(1, steps, participation=1.0)` | the paper's variant |
    | several rounds, all joined | rounds × local steps; with `scf`, a record is active only in its first rounds |
    | a round might be sat out | `PlanError`: the cost in the plan counts on sitting out |
    | another number of records, or other ids | `PlanError` |
    | a cost above its budget | impossible: such a `SiloPlan` cannot be created |
    | no records | `InputError` |
    | a record with NaN in its data | contributes zero, is drawn and charged as planned; the run goes on |
    | q = 0 | never drawn |

    Args:
        module: The model; it is changed in place.
        loss: A function of output and targets that returns one value per record.
        records: In the order of the plan.
        plan: From `PublicPlan.assign`, with any estimator.
        randomness: `Secure()`, or `Seeded(...)` for a simulation.
        optimiser: Called once with the flat parameters. Its settings are public and must not be tuned on these records.
        record_ids: Ids of `records`. If given, they must be those of the plan, in its order.
        micro_batch: Larger draws are processed in pieces of at most this size.
        device: The device to train on.
    """
    steps = planned_steps(plan)
    require_covered(plan, records, record_ids)
    model = FlatModel(module, device)
    kernel = make_kernel(model, loss, records)
    flat_optimiser = optimiser([model.values])
    public = plan.public
    settings = StepSettings(public.clip_norm, public.noise_multiplier, public.normaliser, micro_batch)
    sampler = PoissonSampler(plan.q)
    last_steps = plan.active_rounds.astype(np.int64) * public.schedule.local_steps
    local = LocalView(plan.q * last_steps)
    for number in range(steps):
        sampler.switch_off(np.flatnonzero(last_steps == number))
        drawn = sampler.draw(randomness.child("step", number, "draw"))
        step = NoisyStep(kernel, flat_optimiser, settings, randomness.child("step", number, "noise"))
        local.add(drawn, step(records, drawn).norms, public.clip_norm)
    model.require_finite()
    return CentralResult(model, randomness.is_simulation, local)


def uniform_plan(public: PublicPlan, records: int | Sequence[str], epsilon: float) -> SiloPlan:
    """The plan of ordinary DP-SGD for `train_central`: every record gets the same ε and hence the same q.

    With the smallest of the real budgets this is the paper's "Minimum". It keeps every promise, but the plan then
    depends on the record with that budget, which the promise does not cover.
    """
    require_positive("epsilon", epsilon)
    if isinstance(records, int):
        require_count("records", records)
        ids: Sequence[str] = [str(row) for row in range(records)]
    else:
        ids = records
    return public.assign(BudgetTable(ids, np.full(len(ids), epsilon)))


def planned_steps(plan: SiloPlan) -> int:
    """The number of steps of a plan in which every round is certain to be joined; refuses any other plan."""
    schedule = plan.public.schedule
    capped = schedule.max_participations is not None and schedule.max_participations < schedule.rounds
    if capped or (schedule.participation != 1.0 and schedule.participations != schedule.rounds):
        raise PlanError(
            f"the schedule of the plan ({schedule.describe()}) skips rounds, and its cost counts on that; centralised "
            "training takes every step: use Schedule(1, steps, participation=1.0)"
        )
    return schedule.rounds * schedule.local_steps


def require_covered(plan: SiloPlan, records: Records, record_ids: Sequence[str] | None) -> None:
    """Refuse records unless the plan covers exactly these, in this order."""
    if len(records) == 0:
        raise InputError("the data set is empty: give at least one record to train on")
    if len(records) != len(plan):
        raise PlanError(
            f"{len(records):,} records and a plan for {len(plan):,}: every record needs its own budget; make the plan "
            "from the budgets of exactly these records"
        )
    if record_ids is None:
        return
    given, planned = np.asarray(record_ids, dtype=np.str_), np.asarray(plan.ids.to_pylist(), dtype=np.str_)
    if len(given) != len(planned):
        raise PlanError(f"{len(given):,} record ids for {len(planned):,} records; give one id for each record")
    different = np.flatnonzero(given != planned)
    if different.size:
        row = int(different[0])
        raise PlanError(
            f"record {row} is {str(given[row])!r}, but the plan has {str(planned[row])!r} there ({different.size:,} "
            "such records): budgets would be applied to the wrong records; make the plan from these records, in this "
            "order"
        )
