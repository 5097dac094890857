"""A run on one machine: the server and all silos in this process, with a checkpoint after every round.

Simulations and production runs on one machine share it. They differ in their randomness and accounts.
"""

from __future__ import annotations

import copy
import hashlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from rpdp.errors import InputError
from rpdp.federation.checkpoint import Checkpoint
from rpdp.federation.devices import shared_device
from rpdp.federation.messages import Announcement, Update
from rpdp.federation.run_result import RoundLog, RunResult, SiloView
from rpdp.federation.server import Server
from rpdp.federation.silo import TrainedRound
from rpdp.federation.workers import default_workers, make_pool
from rpdp.metrics import Predictions
from rpdp.training import FlatModel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from rpdp.federation.evaluation import Evaluation
    from rpdp.federation.score import GroupScore, Score
    from rpdp.federation.silo import Silo
    from rpdp.federation.workers import Pool
    from rpdp.planning import PublicPlan


def require_distinct(silos: Sequence[Silo]) -> None:
    """Refuse a federation without silos, or with two silos of the same name."""
    names = [silo.name for silo in silos]
    if not names:
        raise InputError("silos=[] is empty: a federation needs at least one")
    if len(set(names)) != len(names):
        raise InputError(f"silos: the names are not unique: {', '.join(sorted(names))}; give each silo its own")


class InProcessRun:
    """A run whose server and silos are in this process; the silos have admitted it already.

    Models are trained and evaluated on the device of the silos; the server's state is on the CPU. `keep` is called
    after every round, before its checkpoint, so that what it keeps is never older than the model. So is `on_model`,
    with the number of the round and the flat model after it, which is public.
    """

    def __init__(
        self,
        run: str,
        model: nn.Module,
        silos: Sequence[Silo],
        public: PublicPlan,
        *,
        seed: int | None,
        evaluation: Evaluation | None,
        method: str,
        checkpoint: str | Path | None,
        keep: Callable[[], None] | None = None,
        on_model: Callable[[int, Tensor], None] | None = None,
    ) -> None:
        self._name = run
        self._seed = seed
        self._method = method
        self._public = public
        self._silos = {silo.name: silo for silo in sorted(silos, key=lambda silo: silo.name)}
        self._evaluation = evaluation
        self._checkpoint = None if checkpoint is None else Path(checkpoint)
        self._keep = keep
        self._on_model = on_model
        self._model = FlatModel(copy.deepcopy(model), shared_device(silos))
        self._server = Server(run, public, self._model.values.data.cpu(), list(self._silos))
        self._draws = {name: np.zeros(len(silo.records), dtype=np.int64) for name, silo in self._silos.items()}
        self._rounds: list[RoundLog] = []
        self._identity = f"{run}-{self._beginning()[:16]}"

    def _beginning(self) -> str:
        """Return a hash of what the name of a run leaves open: the model it starts from and every silo's plan."""
        digest = hashlib.sha256(self._server.values.numpy().tobytes())
        for name, silo in self._silos.items():
            digest.update(f"{name} {silo.plan.fingerprint}\n".encode())
        return digest.hexdigest()

    def run(self, workers: int | None, on_round: Callable[[RoundLog], None] | None) -> RunResult:
        """Run the remaining rounds and return the result."""
        began = time.perf_counter()
        self._restore()
        count = default_workers(len(self._model), len(self._silos)) if workers is None else workers
        pool = make_pool({"train": self._train, "test": self._on_test, "own": self._on_training_records}, count)
        try:
            while not self._server.is_done:
                log = self._round(pool)
                self._rounds.append(log)
                if self._keep is not None:
                    self._keep()
                if self._on_model is not None:
                    self._on_model(log.round, self._server.result)
                self._save()
                if on_round is not None:
                    on_round(log)
            views, groups = self._views(pool)
        finally:
            pool.close()
        seconds = time.perf_counter() - began
        return RunResult(
            self._name,
            self._public,
            self._method,
            self._seed,
            self._server.result,
            tuple(self._rounds),
            views,
            seconds,
            self._model.module,
            groups,
        )

    def _round(self, pool: Pool) -> RoundLog:
        began = time.perf_counter()
        announcements = self._server.announce()
        begun = {name: silo.begin(announcements[name]) for name, silo in self._silos.items()}
        updates = [done for done in begun.values() if isinstance(done, Update)]  # finished before an interruption
        joining = [name for name, answer in begun.items() if answer is True]
        # Claim in this process, which keeps the accounts: a worker must not decide whether a round may be trained.
        for name in joining:
            self._silos[name].claim(announcements[name])
        withdrawn = {name: self._silos[name].account.switched_off(announcements[name].run) for name in joining}
        jobs = [(name, withdrawn[name], *_packed(announcements[name])) for name in joining]

        def finished(index: int, outcome: tuple[bytes, NDArray[np.int64]]) -> None:
            """Store the update at once, so that it is not lost if another silo fails."""
            silo, (payload, draws) = self._silos[joining[index]], outcome
            self._draws[silo.name] += draws
            updates.append(silo.finish(TrainedRound(self._name, Update.from_bytes(silo.name, payload), draws)))

        pool.map("train", jobs, finished)
        rejected = self._server.collect(updates)
        accepted = tuple(sorted(update.silo for update in updates if update.silo not in rejected))
        return RoundLog(self._server.round, accepted, rejected, self._score(pool), time.perf_counter() - began)

    def _score(self, pool: Pool) -> Score | None:
        if self._evaluation is None:
            return None
        values = self._server.result.numpy()
        names = list(self._evaluation.test)
        found = pool.map("test", [(name, values) for name in names])
        return self._evaluation.score(dict(zip(names, found, strict=True)), details=self._server.is_done)

    def _views(self, pool: Pool) -> tuple[Mapping[str, SiloView], tuple[GroupScore, ...]]:
        """What each silo knows, and how the final model does on training records by budget. Sensitive."""
        if self._evaluation is None:
            return {name: silo_view(silo, self._draws[name], None) for name, silo in self._silos.items()}, ()
        values = self._server.result.numpy()
        found = pool.map("own", [(name, values) for name in self._silos])
        views = {
            name: silo_view(silo, self._draws[name], self._evaluation.correct_answers(predictions))
            for (name, silo), predictions in zip(self._silos.items(), found, strict=True)
        }
        budgets = np.concatenate([view.plan.epsilon for view in views.values()])
        return views, self._evaluation.by_budget(Predictions.together(found), budgets)

    def _restore(self) -> None:
        """Continue from a checkpoint of this run, if there is one.

        The rounds before it are announced to the silos again. A ledger has charged them already and changes nothing; an
        account in memory charges them with the same seeded coins.
        """
        changed = (
            "plan, method, seed, starting model or budgets have changed, or the release of rpdp that computes the "
            "probabilities. Use another directory, or remove this one to start again"
        )
        kept = Checkpoint.of_run(self._checkpoint, self._identity, changed)
        if kept is None:
            return
        for number in range(1, len(kept.rounds) + 1):
            for name, announcement in self._server.announcements(number).items():
                self._silos[name].begin(announcement)
        self._server.restore(kept)
        self._draws = kept.draws
        self._rounds = list(kept.rounds)

    def _save(self) -> None:
        if self._checkpoint is not None:
            self._server.checkpoint(self._identity, self._rounds, self._draws).write(self._checkpoint)

    def _train(
        self,
        name: str,
        withdrawn: NDArray[np.int64],
        run: str,
        plan: str,
        number: int,
        values: NDArray[np.float32],
        correction: NDArray[np.float32],
    ) -> tuple[bytes, NDArray[np.int64]]:
        received = Announcement(run, plan, number, _tensor(values), None if correction is None else _tensor(correction))
        trained = self._silos[name].compute(received, withdrawn)  # already claimed in the main process
        return trained.update.to_bytes(), trained.draws

    def _on_test(self, name: str, values: NDArray[np.float32]) -> Predictions:
        assert self._evaluation is not None
        self._model.values.data.copy_(_tensor(values))
        return self._evaluation.predict(self._model, self._evaluation.test[name])

    def _on_training_records(self, name: str, values: NDArray[np.float32]) -> Predictions:
        assert self._evaluation is not None
        self._model.values.data.copy_(_tensor(values))
        return self._evaluation.predict(self._model, self._silos[name].records)


def silo_view(silo: Silo, draws: NDArray[np.int64], correct: NDArray[np.bool_] | None) -> SiloView:
    """Return what a silo knows about the run that it has admitted. Sensitive."""
    joined, plan = np.asarray(silo.joined), silo.plan
    turns = np.searchsorted(joined, plan.active_rounds, side="right")
    expected = plan.q * turns * plan.public.schedule.local_steps
    overdrawn = int(((plan.run_epsilon > silo.budgets.per_record().epsilon) & (plan.order == 0)).sum())
    return SiloView(plan, tuple(joined.tolist()), draws, expected, correct, overdrawn)


def _packed(announcement: Announcement) -> tuple[object, ...]:
    """Return an announcement as plain arrays, which can be sent through a pipe."""
    correction = None if announcement.correction is None else announcement.correction.numpy()
    return announcement.run, announcement.plan, announcement.round, announcement.values.numpy(), correction


def _tensor(values: NDArray[np.float32]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values))
