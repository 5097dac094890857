"""The in-process simulator: the server and all silos on one machine, the same `Silo` that deployment uses.

A simulation is seeded: on the CPU it repeats bit for bit on one machine and torch build, whatever the number of
workers; on a GPU (`rpdp.federation.devices`) up to rounding. It protects nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpdp.checks import require_count
from rpdp.errors import PrivacyRefusal
from rpdp.federation.devices import full_float32, require_sharable, shared_device
from rpdp.federation.in_process import InProcessRun, require_distinct
from rpdp.federation.workers import one_thread
from rpdp.planning import Status
from rpdp.sampling import Seeded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from torch import nn

    from rpdp.federation.evaluation import Evaluation
    from rpdp.federation.run_result import RoundLog, RunResult
    from rpdp.federation.silo import Silo
    from rpdp.planning import PublicPlan, SiloPlan
    from rpdp.training import PerRecordLoss


def require_participants(plans: Sequence[SiloPlan], method: str) -> None:
    """Refuse a run of pure noise: nobody can pay for a draw, and free draws (within δ) would not fill a batch."""
    if any(bool((plan.cost > 0.0).any()) or plan.expected_batch >= 1.0 for plan in plans):
        return
    short = sum(int((plan.status == Status.DELTA_TOO_SMALL).sum()) for plan in plans)
    total, public = sum(map(len, plans)), plans[0].public
    why = (
        f"the lifetime δ of {short:,} of {total:,} records is below the run's δ = {public.delta:g}: use a smaller "
        "privacy.delta, or a larger lifetime δ"
        if short
        else f"all {total:,} budgets are below what {public.schedule.describe()} at σ = {public.noise_multiplier:.4g} "
        "cost: use fewer rounds or local steps, more noise, or a lower level"
    )
    raise PrivacyRefusal(f"method {method}: no record could take part, nothing was released; {why}")


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
    checkpoint: str | Path | None = None,
) -> RunResult:
    """Run the whole federation here. **A simulation**: seeded, so nothing is protected.

    Args:
        model: Where training starts; it is not changed.
        loss: From output and targets to one value per record.
        silos: With accounts for simulations (the default), all on one device.
        public: The plan that every silo is asked to admit.
        seed: Fixes coins, draws and noise.
        evaluation: Public test records; without it no accuracy is measured.
        method: A name for reports.
        workers: Processes to train in; by default one per core, one for tiny models. Does not change the result. On a
            GPU there is one.
        on_round: Called after every round, for progress.
        checkpoint: A directory; the state is kept there after every round, and found again if the run was interrupted.
    """
    require_distinct(silos)
    if workers is not None:
        require_count("workers", workers)
    device = shared_device(silos)
    require_sharable(device, workers)
    run = f"{public.fingerprint[:16]}-{method}-{seed}"
    with one_thread(), full_float32(device):
        for silo in silos:
            silo.admit(run, public, model, loss, Seeded(seed).child("silo", silo.name))
        require_participants([silo.plan for silo in silos], method)
        rounds = InProcessRun(
            run, model, silos, public, seed=seed, evaluation=evaluation, method=method, checkpoint=checkpoint
        )
        return rounds.run(workers, on_round)
