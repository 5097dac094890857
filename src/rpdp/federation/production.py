"""A real run on one machine: secure randomness, and a production ledger under every silo.

Several silos in one process share a trust boundary, so this suits one organisation with several data sets; across
organisations each silo runs where its data are. The accounting is the same.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rpdp.errors import InputError
from rpdp.federation.devices import shared_device
from rpdp.federation.in_process import InProcessRun, require_distinct
from rpdp.federation.workers import one_thread
from rpdp.ledger.heads import NAME as HEADS
from rpdp.ledger.heads import keep_heads, require_heads
from rpdp.sampling import Secure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import nn

    from rpdp.federation.evaluation import Evaluation
    from rpdp.federation.run_result import RoundLog, RunResult
    from rpdp.federation.silo import Silo
    from rpdp.ledger import Ledger
    from rpdp.planning import PublicPlan
    from rpdp.training import PerRecordLoss


def run_production(
    model: nn.Module,
    loss: PerRecordLoss,
    silos: Sequence[Silo],
    public: PublicPlan,
    *,
    run: str,
    evaluation: Evaluation | None = None,
    on_round: Callable[[RoundLog], None] | None = None,
    checkpoint: str | Path,
    heads: str | Path | None = None,
) -> RunResult:
    """Run the federation here, for real: what it promises is kept by the silos' ledgers.

    After an interruption the same call goes on: rounds that were charged stay charged; of the interrupted round,
    updates that were finished are used and the others sit out. Training is in this process, so that a withdrawal counts
    from the next local step on.

    Args:
        model: Where training starts; it is not changed.
        loss: From output and targets to one value per record.
        silos: Each with a production ledger as its account, on the CPU.
        public: The plan that every silo is asked to admit.
        run: The id of the run; a new run needs a new one.
        evaluation: Test records that are public; without it no accuracy is measured.
        on_round: Called after every round, for progress.
        checkpoint: A directory for the state after every round. It also holds how often records were drawn: sensitive.
        heads: Where the server keeps the newest public head of every ledger, over all runs; by default a file in
            `checkpoint`. A ledger older than its head is refused before anything is asked of any silo.
    """
    require_distinct(silos)
    shared_device(silos)  # each silo refuses another than the CPU
    if not run:
        raise InputError("run='' must be a name: the ledgers know the run by it")
    known = Path(checkpoint) / HEADS if heads is None else Path(heads)
    ledgers = _ledgers(silos)
    require_heads(known, ledgers)
    with one_thread():
        for silo in silos:
            silo.admit(run, public, model, loss, Secure())
        rounds = InProcessRun(
            run,
            model,
            silos,
            public,
            seed=None,
            evaluation=evaluation,
            method="rpdp",
            checkpoint=checkpoint,
            keep=partial(keep_heads, known, ledgers),
        )
        return rounds.run(1, on_round)


def _ledgers(silos: Sequence[Silo]) -> dict[str, Ledger]:
    """The durable accounts; a silo with any other is refused at admission."""
    from rpdp.ledger import Ledger  # needs apsw, which simulations do without

    return {silo.name: silo.account for silo in silos if isinstance(silo.account, Ledger)}
