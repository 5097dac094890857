"""Private training inside a training loop of one's own: it gives the batches, and takes the steps.

One data holder, one silo: the same admission, plan, account, draws and noisy steps as in a federation. What is the
user's own is the loop around them: schedulers, logging, evaluation, checkpoints.
"""

from __future__ import annotations

import time
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from rpdp.budgets import BudgetTable
from rpdp.display import counts_repr
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.federation import Policy, RunResult, Silo
from rpdp.federation.in_process import silo_view
from rpdp.federation.local_training import RoundSteps
from rpdp.federation.messages import Announcement, Update
from rpdp.federation.run_result import RoundLog
from rpdp.federation.silo import TrainedRound
from rpdp.sampling import Secure, Seeded
from rpdp.training import FlatModel, make_kernel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike, NDArray
    from torch import Tensor

    from rpdp.ledger import Ledger
    from rpdp.planning import PublicPlan, SiloPlan
    from rpdp.training import PerRecordLoss, Records

_AVERAGING = (
    nn.BCELoss,
    nn.BCEWithLogitsLoss,
    nn.CrossEntropyLoss,
    nn.HuberLoss,
    nn.L1Loss,
    nn.MSELoss,
    nn.NLLLoss,
    nn.PoissonNLLLoss,
    nn.SmoothL1Loss,
)
"""Losses whose mean over a batch is the mean of the losses of its records."""


@dataclass(frozen=True, eq=False)
class DrawnBatch:
    """The records of one step. Sensitive: nothing that depends on them may leave but through `PersonalTrainer.step`.

    Attributes:
        records: The drawn records. There may be none; the step is taken all the same.
        positions: Their positions in the data set.
    """

    records: Records
    positions: NDArray[np.int64]

    __repr__ = counts_repr


class TrainingRound:
    """One round: its number, and its batches to iterate over, once. A round that is sat out has none."""

    def __init__(self, number: int, batches: Iterator[DrawnBatch]) -> None:
        self.number = number
        self._batches = batches

    def __iter__(self) -> Iterator[DrawnBatch]:
        return self._batches


class PersonalTrainer:
    """Private steps for a PyTorch loop of one's own.

    Guarantee: after all steps, and after any of them, the model is (ε_j, δ)-DP for every record j of this data set,
    provided that the records influence the model, and the loop's own decisions, through `step` alone.

    | case | what happens |
    |---|---|
    | a round begins | it is charged to the account before its first batch is drawn |
    | the schedule sits a round out | the round has no batches, and is charged |
    | a batch without a step (`continue`, an exception) | the next batch is refused: no batch may be left out |
    | the model changed between two steps, by `loss.backward()` and `optimiser.step()`, say | refused |
    | the loop ends early | what was reserved is spent; nothing is refunded |
    | the process dies; the same run is opened again | finished rounds are restored; the interrupted one is sat out |

    Args:
        model: The model to train, in place. Training modes are the loop's business.
        loss: Maps outputs and targets to one value per record. A loss of `torch.nn` that averages over the batch, such
            as `CrossEntropyLoss()`, is taken record by record; their sum is divided by the plan's normaliser.
        optimiser: Any `torch.optim` optimiser over parameters of `model`. Its settings are public.
        records: The data set.
        budgets: One budget for each record: a table, or an ε for each, in their order.
        public: The public plan. Its recipe is not used: the loop sets learning rates.
        seed: For a simulation, which protects nobody.
        ledger: For a real run: the production ledger of these records.
        policy: What the data holder allows. A simulation needs none.
        run: The id of the run in the ledger; a new run needs a new one.
        name: The name of the data holder, if the weights of the plan name silos.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: PerRecordLoss,
        optimiser: torch.optim.Optimizer,
        records: Records,
        budgets: BudgetTable | ArrayLike,
        public: PublicPlan,
        *,
        seed: int | None = None,
        ledger: Ledger | None = None,
        policy: Policy | None = None,
        run: str | None = None,
        name: str = "here",
    ) -> None:
        if (seed is None) == (ledger is None):
            raise InputError("give seed=… for a simulation, or ledger=… for a real run: exactly one of them")
        if ledger is not None and (policy is None or not run):
            raise InputError("a real run needs policy=… (what the data holder allows) and run=… (its id in the ledger)")
        trained = _trained(model, optimiser)
        loss = record_loss(loss)
        self.public = public
        self.seed = seed
        self.run = run or f"{public.fingerprint[:16]}-trainer-{seed}"
        self._randomness = Secure() if seed is None else Seeded(seed).child("silo", name)
        table = as_budget_table(budgets, len(records))
        self._silo = Silo(name, records, table, policy=policy or Policy.of(public), account=ledger)
        self._silo.admit(self.run, public, model, loss, self._randomness)
        self._optimiser = optimiser
        self._flat = FlatModel(model)
        _require_known(trained, self._flat.parameters)
        self._kernel = make_kernel(self._flat, loss, records)
        self._draws = np.zeros(len(records), dtype=np.int64)
        self._logs: list[RoundLog] = []
        self._current: DrawnBatch | None = None
        self._steps: RoundSteps | None = None
        self._released: Tensor | None = None
        self._began = time.perf_counter()
        self._restore()
        self._rounds = self._remaining()

    def __repr__(self) -> str:
        kind = "production" if self.seed is None else "simulation"
        done, rounds = len(self._logs), self.public.schedule.rounds
        return f"PersonalTrainer({self.run!r}, {kind}, {done} of {rounds} rounds done)"

    @property
    def plan(self) -> SiloPlan:
        """The plan of every record. Sensitive; it stays with the data holder."""
        return self._silo.plan

    @property
    def result(self) -> RunResult:
        """The run so far, for reports."""
        self._require_untouched()
        view = silo_view(self._silo, self._draws, None)
        return RunResult(
            self.run,
            self.public,
            "rpdp",
            self.seed,
            self._flat.values.detach().clone(),
            tuple(self._logs),
            {self._silo.name: view},
            time.perf_counter() - self._began,
            self._flat.module,
        )

    def __iter__(self) -> Iterator[DrawnBatch]:
        """All batches that are left, over all rounds."""
        for training_round in self.rounds():
            yield from training_round

    def rounds(self) -> Iterator[TrainingRound]:
        """The rounds that are left. A round is charged when it is reached; it has to be finished before the next."""
        return self._rounds

    def next_round(self) -> TrainingRound:
        """The next round: what one pass over a data loader, an epoch, is in a usual loop."""
        training_round = next(self._rounds, None)
        if training_round is None:
            raise InputError(
                f"no round is left: {self!r}. How many there are is part of the public plan; to train longer, start "
                "a new run of a plan with more rounds"
            )
        return training_round

    def step(self, batch: DrawnBatch) -> None:
        """Take the private step of a batch: clip, sum, add noise, and let the optimiser move the model."""
        if batch is not self._current or self._steps is None:
            raise PrivacyRefusal(
                "this batch is not the one that waits for its step; call step exactly once for every batch, in order"
            )
        self._current = None
        values = self._flat.values
        self._require_untouched()
        self._steps.next_step().release(self._silo.records, batch.positions)
        assert values.grad is not None
        for parameter, part in zip(self._flat.parameters, self._flat.views(values.grad), strict=True):
            parameter.grad = part
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        values.grad = None
        self._released = values.detach().clone()

    def _remaining(self) -> Iterator[TrainingRound]:
        for number in range(len(self._logs) + 1, self.public.schedule.rounds + 1):
            self._require_untouched()
            start = self._flat.values.detach().clone()
            # Before the first batch is drawn: what it shows must not reach the model before its step either.
            self._released = start
            announcement = self._announcement(number, start)
            joined = self._silo.begin(announcement) is True  # charged here, before anything is drawn
            if joined:
                self._silo.claim(announcement)
                self._steps = self._steps_of(number)
            batches = self._batches(number, start) if joined else self._sit_out(number)
            yield TrainingRound(number, batches)
            # A round that was refused half-way stays open, whatever the loop did with the refusal.
            if next(batches, None) is not None or self._steps is not None:
                raise PrivacyRefusal(f"round {number} has batches left; take all of its steps before the next round")
        self._require_untouched()  # after the last round nobody else would look

    def _steps_of(self, number: int) -> RoundSteps:
        randomness = self._randomness.child("round", number)
        # Of this run: who withdrew from it stays out, re-consent or not.
        return RoundSteps(
            self._kernel, self.plan, number, randomness, lambda: self._silo.account.switched_off(self.run)
        )

    def _sit_out(self, number: int) -> Iterator[DrawnBatch]:
        self._logs.append(RoundLog(number, (), {}, None, 0.0))
        return iter(())

    def _batches(self, number: int, start: Tensor) -> Iterator[DrawnBatch]:
        """The batches of the round that has begun. The round is finished when the last one has had its step."""
        assert self._steps is not None
        began = time.perf_counter()
        for _ in range(self.public.schedule.local_steps):
            positions = self._steps.draw()
            self._current = DrawnBatch(self._silo.records.select(positions), positions)
            yield self._current
            if self._current is not None:
                raise PrivacyRefusal(
                    "the last batch was left without its step: whether a step is taken must not depend on the records "
                    "that were drawn; call step(batch) for every batch, empty ones included"
                )
        self._finish(number, start)
        self._logs.append(RoundLog(number, (self._silo.name,), {}, None, time.perf_counter() - began))

    def _finish(self, number: int, start: Tensor) -> None:
        """Store what the round released, so that the run can be continued from it."""
        self._require_untouched()
        self._flat.require_finite()
        assert self._steps is not None
        self._draws += self._steps.draws
        change = self._flat.values.detach() - start
        update = Update(self._silo.name, number, change)
        self._silo.finish(TrainedRound(self.run, update, self._steps.draws))
        self._steps = None

    def _restore(self) -> None:
        """Bring the model to where an interrupted run stood: add the stored updates of its finished rounds."""
        for number in range(1, (self._silo.announced(self.run) or 0) + 1):
            stored = self._silo.begin(self._announcement(number, self._flat.values.detach()))
            joined = isinstance(stored, Update)
            if isinstance(stored, Update):
                self._flat.values.data.add_(stored.change)
            self._logs.append(RoundLog(number, (self._silo.name,) if joined else (), {}, None, 0.0))

    def _announcement(self, number: int, values: Tensor) -> Announcement:
        return Announcement(self.run, self.public.fingerprint, number, values)

    def _require_untouched(self) -> None:
        """Refuse to go on with a model that something else than `step` has changed since the last step.

        A `loss.backward()` and `optimiser.step()` left over in a loop would train without any protection.
        """
        if self._released is not None and not torch.equal(self._released, self._flat.values.detach()):
            raise PrivacyRefusal(
                "the model was changed since the last private step, and nobody can tell from what; remove "
                "loss.backward() and optimiser.step() from the loop: step(batch) does both. To average models, change "
                "a copy"
            )


def record_loss(loss: PerRecordLoss) -> PerRecordLoss:
    """The loss of each record. One of `torch.nn` that averages over a batch is taken apart; others stay as they are.

    Class weights stay refused: their mean is divided by the sum of the weights that were drawn.
    """
    if not isinstance(loss, _AVERAGING) or loss.reduction != "mean" or getattr(loss, "weight", None) is not None:
        return loss
    each = deepcopy(loss)
    each.reduction = "none"

    def one_by_one(outputs: Tensor, targets: Tensor) -> Tensor:
        losses: Tensor = each(outputs, targets)
        return losses.flatten(1).mean(1) if losses.ndim > 1 else losses

    return one_by_one


def as_budget_table(budgets: BudgetTable | ArrayLike, records: int) -> BudgetTable:
    """One budget for each record: a table, or an ε for each, in their order."""
    if not isinstance(budgets, BudgetTable):
        epsilon = np.asarray(budgets, dtype=np.float64)
        budgets = BudgetTable([str(row) for row in range(epsilon.size)], epsilon)
    if len(budgets) != records:
        raise InputError(f"there are {records:,} records and {len(budgets):,} budgets; every record needs one")
    return budgets


def _trained(model: nn.Module, optimiser: torch.optim.Optimizer) -> list[Tensor]:
    """The tensors that the optimiser updates; refused unless they are trainable parameters of the model."""
    tensors: list[Any] = [value for group in optimiser.param_groups for value in group["params"]]
    _require_known([value for value in tensors if value.requires_grad], list(model.parameters()))
    return [value for value in tensors if value.requires_grad]


def _require_known(tensors: list[Tensor], parameters: list[Any]) -> None:
    known = {id(value) for value in parameters}
    if not tensors or not all(id(value) in known for value in tensors):
        raise InputError(
            "the optimiser must update parameters of this model: make it with model.parameters(), after the model is "
            "on its device"
        )
