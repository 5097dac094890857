"""The simulator: the server and all silos on one machine, with the same `Silo` that the deployment uses.

A simulation is seeded. On the CPU it repeats bit for bit on one machine and torch build, whatever the number of
workers; on a GPU (`rpdp.federation.devices`) it repeats up to rounding. It protects nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpdp.checks import require_count
from rpdp.errors import PrivacyRefusal
from rpdp.federation.devices import full_float32, require_sharable, shared_device
from rpdp.federation.in_process import InProcessRun, require_distinct
from rpdp.federation.round_progress import round_progress
from rpdp.federation.workers import one_thread
from rpdp.planning import Status
from rpdp.sampling import Seeded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from torch import Tensor, nn

    from rpdp.federation.evaluation import Evaluation
    from rpdp.federation.run_result import RoundLog, RunResult
    from rpdp.federation.silo import Silo
    from rpdp.planning import PublicPlan, SiloPlan
    from rpdp.training import PerRecordLoss


def require_participants(plans: Sequence[SiloPlan], method: str) -> None:
    """Refuse a run of pure noise, in which no record can pay for a draw and free draws (within δ) fill no batch."""
    if any(bool((plan.cost > 0.0).any()) or plan.expected_batch >= 1.0 for plan in plans):
        return
    short = sum(int((plan.status == Status.DELTA_TOO_SMALL).sum()) for plan in plans)
    total, public = sum(map(len, plans)), plans[0].public
    why = (
        f"nothing is left of the δ of {short:,} of {total:,} records: use a larger lifetime δ"
        if short
        else f"all {total:,} budgets are below what {public.schedule.describe()} at σ = {public.noise_multiplier:.4g} "
        "cost: use fewer rounds or local steps, more noise, or a lower level"
    )
    raise PrivacyRefusal(f"method {method}: no record could take part, and nothing was released; {why}")


def simulate(
    model: nn.Module,
    loss: PerRecordLoss,
    silos: Sequence[Silo],
    public: PublicPlan,
    *,
    seed: int,
    evaluation: Evaluation | None = None,
    method: str = "rpdp",
    workers: int | None = None,
    on_round: Callable[[RoundLog], None] | None = None,
    on_model: Callable[[int, Tensor], None] | None = None,
    checkpoint: str | Path | None = None,
) -> RunResult:
    """Run the whole federation in this process. **A simulation**: it is seeded, so nothing is protected.

    Args:
        model: The model to start from; it is not changed.
        loss: Maps outputs and targets to one value per record.
        silos: Silos with accounts for simulations (the default), all on one device. Each call is a simulation of its
            own, and can be repeated, unless the silos were given accounts to keep.
        public: The plan that every silo is asked to admit.
        seed: Fixes coins, draws and noise.
        evaluation: Public test records and metrics; without them nothing is measured.
        method: The name of the method in reports.
        workers: The number of processes that train; by default one per core, and one for tiny models or on a GPU. It
            does not change the result.
        on_round: Called after every round; by default a bar shows progress on a terminal or in a notebook.
        on_model: Called after every round, before its checkpoint, with its number and the flat model.
        checkpoint: A directory for the state after every round; an interrupted run continues from it.
    """
    require_distinct(silos)
    if workers is not None:
        require_count("workers", workers)
    device = shared_device(silos)
    require_sharable(device, workers)
    run = f"{public.fingerprint[:16]}-{method}-{seed}"
    with one_thread(), full_float32(device):
        for silo in silos:
            silo.begin_simulation()
            silo.admit(run, public, model, loss, Seeded(seed).child("silo", silo.name))
        require_participants([silo.plan for silo in silos], method)
        evaluation = None if evaluation is None else evaluation.checked(model)
        rounds = InProcessRun(
            run,
            model,
            silos,
            public,
            seed=seed,
            evaluation=evaluation,
            method=method,
            checkpoint=checkpoint,
            on_model=on_model,
        )
        with round_progress(public.schedule.rounds, on_round) as progress:
            return rounds.run(workers, progress)
