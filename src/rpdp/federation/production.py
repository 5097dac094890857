"""A real run on one machine: secure randomness, and a production ledger for every silo.

Several silos in one process share a trust boundary, so this suits one organisation with several data sets. Across
organisations, each silo runs where its data are. The accounting is the same.

Admission has two phases here, too: if one silo refuses, or its disk is full, the others cancel what they hold.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rpdp.errors import InputError, RpdpError
from rpdp.federation.devices import shared_device
from rpdp.federation.heads import NAME as HEADS
from rpdp.federation.heads import keep_heads, require_heads
from rpdp.federation.in_process import InProcessRun, require_distinct
from rpdp.federation.round_progress import round_progress
from rpdp.federation.workers import one_thread
from rpdp.sampling import Secure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor, nn

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
    on_model: Callable[[int, Tensor], None] | None = None,
    checkpoint: str | Path,
    heads: str | Path | None = None,
) -> RunResult:
    """Run the federation in this process, for real: the silos' ledgers keep the promise.

    After an interruption, the same call continues the run. Rounds that were charged stay charged. In the interrupted
    round, silos that had finished are counted and the others sit it out. Training is in this process, so that a
    withdrawal takes effect from the next local step on.

    Args:
        model: The model to start from; it is not changed.
        loss: Maps outputs and targets to one value per record.
        silos: Silos on the CPU, each with a production ledger as its account.
        public: The plan that every silo is asked to admit.
        run: The id of the run; a new run needs a new one.
        evaluation: Public test records and metrics; without them nothing is measured.
        on_round: Called after every round; by default a bar shows progress on a terminal or in a notebook.
        on_model: Called after every round, before its checkpoint, with its number and the flat model, which is public.
        checkpoint: A directory for the state after every round. It also holds how often records were drawn: sensitive.
        heads: The file in which the server keeps the latest public head of every ledger, over all runs; by default a
            file in `checkpoint`. A ledger older than its head is refused before any silo is asked for anything.
    """
    require_distinct(silos)
    shared_device(silos)  # each silo refuses any device but the CPU
    if not run:
        raise InputError("run='' is empty: give the run a name, by which the ledgers know it")
    evaluation = None if evaluation is None else evaluation.checked(model)  # before anything is held
    known = Path(checkpoint) / HEADS if heads is None else Path(heads)
    ledgers = ledgers_of(silos)
    require_heads(known, ledgers)
    with one_thread():
        keep = partial(keep_heads, known, ledgers)
        with all_or_none(run, silos, keep):
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
                keep=keep,
                on_model=on_model,
            )
        with round_progress(public.schedule.rounds, on_round) as progress:
            return rounds.run(1, progress)


@contextmanager
def all_or_none(run: str, silos: Sequence[Silo], keep: Callable[[], None]) -> Iterator[None]:
    """Cancel the run at every silo that holds it if the block fails, unless a round was charged anywhere.

    An interruption (Ctrl-C) cancels nothing: the same call continues the run, or its holds expire.
    """
    try:
        yield
    except Exception as error:
        if any(silo.announced(run) for silo in silos):
            raise
        cancelled, failed = _cancel(run, [silo for silo in silos if silo.holds(run)])
        if not cancelled and not failed:
            raise
        with suppress(RpdpError, OSError):  # the error above is the one to tell
            keep()
        said = f"{error}. Nobody is charged: run {run!r} is cancelled at {', '.join(cancelled) or 'no silo'}"
        said += f"; at {', '.join(failed)} its hold could not be cancelled and expires" if failed else ""
        said += ". A cancelled run never returns: mend this and use a new run id"
        if isinstance(error, RpdpError):
            error.args = (said, *error.args[1:])
        else:
            error.add_note(said)
        raise


def _cancel(run: str, silos: Sequence[Silo]) -> tuple[list[str], list[str]]:
    """Cancel a run at these silos; return the names of those that did, and of those that could not."""
    cancelled, failed = [], []
    for silo in silos:
        try:
            silo.cancel(run)
            cancelled.append(silo.name)
        except Exception:  # a full disk, say: the others must still be asked, and the first error is the one to tell
            failed.append(silo.name)
    return cancelled, failed


def ledgers_of(silos: Sequence[Silo]) -> dict[str, Ledger]:
    """Return the ledgers of the silos. A silo with any other account is refused at admission."""
    from rpdp.ledger import Ledger  # needs apsw, which simulations do not

    return {silo.name: silo.account for silo in silos if isinstance(silo.account, Ledger)}
