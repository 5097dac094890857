"""Centralised rPDP-SGD: the paper's variant without federation, and uniform DP-SGD as its special case.

One data holder, every step taken: record j of a plan is drawn into each step with its own q_j, and the plan has
priced exactly that (privacy.md, section 1 with T = 1 and λ = 1). Uniform DP-SGD is the same function with the plan of
`uniform_plan`; plain SGD, without any promise, is `rpdp_lab.rivals.train_plain`.
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
"""From the list of tensors to train to an optimiser with public settings, e.g. `lambda v: torch.optim.SGD(v, lr=1)`."""


class LocalView:
    """Per-step and per-record facts of one run, for the data holder's own eyes; nothing here is covered by a promise.

    Attributes:
        draws: How often each record was drawn.
        expected_draws: How often it was to be drawn on average, from the plan.
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
        """Note one step: positions drawn, and their norms where they are known."""
        self.draws[drawn] += 1
        self.batch_sizes.append(len(drawn))
        self.median_norms.append(float(norms.median()) if len(norms) else float("nan"))
        self.clipped_shares.append(float((norms > clip_norm).double().mean()) if len(norms) else 0.0)

    @property
    def inclusion_ratio(self) -> float:
        """All draws over what was expected: near 1 when the sampler does what the plan priced."""
        expected = float(self.expected_draws.sum())
        return float(self.draws.sum()) / expected if expected > 0 else float("nan")


@dataclass(frozen=True)
class CentralResult:
    """A trained model. `model` is what the promise covers; `local` is sensitive and stays with the data holder.

    Attributes:
        model: The model after the last step.
        is_simulation: Whether the randomness was seeded, so that nothing is protected.
        local: What the steps saw. Never report it.
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

    Steps, noise, clip norm and normaliser are those of the plan. Seeded streams are keyed by step, so step t draws the
    same records and noise however long the run is.

    | case | what happens |
    |---|---|
    | `Schedule(1, steps, participation=1.0)` | the paper's variant |
    | several rounds, all joined | rounds × local steps; a record of `scf` is active in its first rounds only |
    | a round might be sat out | `PlanError`: the plan's price counts on it |
    | another number of records, or other ids | `PlanError` |
    | a cost above its budget | cannot be: `SiloPlan` refuses to exist |
    | no records | `InputError` |
    | a record with NaN in its data | contributes zero, is drawn and charged as planned; the run goes on |
    | q = 0 | never drawn |

    Args:
        module: The model; it is changed.
        loss: From output and targets to one value per record.
        records: In the order of the plan.
        plan: From `PublicPlan.assign`, with any estimator.
        randomness: `Secure()`, or `Seeded(...)` for a simulation.
        optimiser: Made once, over the flat parameters; its settings are public and must not be tuned on these records.
        record_ids: Ids of `records`; when given, they must be those of the plan, in its order.
        micro_batch: A larger draw is processed in pieces.
        device: Where to train.
    """
    steps = planned_steps(plan)
    require_covered(plan, records, record_ids)
    model = FlatModel(module, device)
    kernel = make_kernel(model, loss, records)
    made = optimiser([model.values])
    public = plan.public
    settings = StepSettings(public.clip_norm, public.noise_multiplier, public.normaliser, micro_batch)
    sampler = PoissonSampler(plan.q)
    last_steps = plan.active_rounds.astype(np.int64) * public.schedule.local_steps
    local = LocalView(plan.q * last_steps)
    for number in range(steps):
        sampler.switch_off(np.flatnonzero(last_steps == number))
        drawn = sampler.draw(randomness.child("step", number, "draw"))
        step = NoisyStep(kernel, made, settings, randomness.child("step", number, "noise"))
        local.add(drawn, step(records, drawn).norms, public.clip_norm)
    model.require_finite()
    return CentralResult(model, randomness.is_simulation, local)


def uniform_plan(public: PublicPlan, records: int | Sequence[str], epsilon: float) -> SiloPlan:
    """The plan of ordinary DP-SGD: every record gets the same ε, hence the same q. For `train_central`.

    At the smallest of the real budgets this is the paper's "Minimum": it keeps every promise, and depends on that one
    record, which the promise does not cover.
    """
    require_positive("epsilon", epsilon)
    if isinstance(records, int):
        require_count("records", records)
        ids: Sequence[str] = [str(row) for row in range(records)]
    else:
        ids = records
    return public.assign(BudgetTable(ids, np.full(len(ids), epsilon)))


def planned_steps(plan: SiloPlan) -> int:
    """The steps of a plan in which every round is joined for certain; refuses any other plan."""
    schedule = plan.public.schedule
    capped = schedule.max_participations is not None and schedule.max_participations < schedule.rounds
    if capped or (schedule.participation != 1.0 and schedule.participations != schedule.rounds):
        raise PlanError(
            f"the plan's schedule ({schedule.describe()}) leaves out rounds, which its price counts on; centralised "
            "training takes every step: use Schedule(1, steps, participation=1.0)"
        )
    return schedule.rounds * schedule.local_steps


def require_covered(plan: SiloPlan, records: Records, record_ids: Sequence[str] | None) -> None:
    """Refuse records that the plan does not cover, one for one."""
    if len(records) == 0:
        raise InputError("the data set is empty: there is no record to train on")
    if len(records) != len(plan):
        raise PlanError(
            f"{len(records):,} records and a plan for {len(plan):,}: every record needs its own budget; make the plan "
            "from the budgets of exactly these records"
        )
    if record_ids is None:
        return
    given, planned = np.asarray(record_ids, dtype=np.str_), np.asarray(plan.ids.to_pylist(), dtype=np.str_)
    if len(given) != len(planned):
        raise PlanError(f"{len(given):,} record ids for {len(planned):,} records")
    other = np.flatnonzero(given != planned)
    if other.size:
        row = int(other[0])
        raise PlanError(
            f"record {row} is {str(given[row])!r}, the plan has {str(planned[row])!r} there ({other.size:,} such "
            "records): budgets would be applied to the wrong records"
        )
