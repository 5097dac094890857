"""The silo: it owns records, budgets, plan, account and randomness, and it enforces the privacy promise.

A silo does not trust the server. It admits a public plan only within its own policy, plans from what is left of its
records' budgets, and holds the cost. Until the first round the hold can be cancelled, and costs nothing. From then on
the silo answers announcements: it flips its own coin, charges the round, does its local work (it trains on the active
records, or adds up what they contribute to statistics), stores the update, and only then releases it (privacy.md,
sections 4, 5, 8 and 9). The simulator and the deployment use this same class.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rpdp.display import counts_repr
from rpdp.errors import InputError, PrivacyRefusal, Reason, RpdpError
from rpdp.federation.admission_checks import (
    matched_budgets,
    require_accounts,
    require_honest,
    require_kind,
    require_member,
    require_same_code,
    tabulate,
)
from rpdp.federation.devices import known_device
from rpdp.federation.local_training import LocalTraining
from rpdp.federation.local_work import TrainingWork
from rpdp.federation.messages import Update
from rpdp.federation.purposes import Purposes
from rpdp.federation.stated_limits import stated_limits
from rpdp.ledger import AccountTerms, BudgetAccountant, MemoryAccount
from rpdp.planning import assign_allowed
from rpdp.training import FlatModel, make_kernel, require_value_independent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from rpdp.budgets import BudgetTable
    from rpdp.federation.cells import CellSource
    from rpdp.federation.local_work import LocalWork
    from rpdp.federation.messages import Announcement
    from rpdp.federation.policy import Policy
    from rpdp.federation.training_process import TrainingProcess
    from rpdp.ledger import Account
    from rpdp.planning import Planner, PublicPlan, Purpose, SiloPlan
    from rpdp.sampling import Randomness
    from rpdp.training import PerRecordLoss, Records


class TooLate(RpdpError):
    """Training did not finish before the answer was due."""


@dataclass(frozen=True)
class TrainedRound:
    """The outcome of a joined round: what may leave the silo, and what must not.

    Attributes:
        run: The id of the run.
        update: The update to release.
        draws: How often each record was drawn. Sensitive; it stays in the silo.
    """

    run: str
    update: Update
    draws: NDArray[np.int64]

    __repr__ = counts_repr


class _Run:
    """Everything that admission fixes for one run."""

    def __init__(self, name: str, plan: SiloPlan, work: LocalWork, randomness: Randomness) -> None:
        self.name = name
        self.plan = plan
        self.work = work
        self.randomness = randomness
        self.accountant = BudgetAccountant(plan)
        self.untrained: dict[int, str] = {}
        """Rounds charged and joined in this process but not claimed for training, with the announcement's digest."""

        self.in_training: set[int] = set()
        """Rounds claimed for training whose update is not stored yet."""


class Silo:
    """One data holder.

    Guarantee: whatever announcements arrive, each record of this silo spends at most what was reserved for it at
    admission, and that is at most its budget.

    It may carry several runs at the same time, over one account. Each was reserved whole, from what the others left,
    and has its own plan, coins and noise, so their rounds may come in any order. Properties such as `plan` are those of
    the run last admitted.

    | announcement | answer |
    |---|---|
    | the next round, coin tails | None; charged |
    | the next round, coin heads | an update; charged before training, stored before release |
    | a round answered before | the same bytes |
    | a round sat out, or charged but not finished | None, for ever |
    | another plan, run, round or model shape; numbers that are not finite | `PrivacyRefusal`; nothing is released |

    Args:
        name: Its id in the federation.
        records: The records that it holds.
        budgets: One budget for each record.
        policy: Its own limits. Those that the steward states beside a production ledger count as well.
        record_ids: The ids of `records` in order, to match budgets by id; by default those that `records` carry.
            Without any, the budget table must be in the order of the records.
        account: The account of reservations and charges. By default every simulation gets a new one in memory; give a
            `MemoryAccount` to simulate several runs that share lifetime budgets.
        planner: How budgets become probabilities; by default the certified estimator.
        schema_fingerprint: Of the schema by which the silo's table became `records`; None if they are from no table.
        device: The device that trains its model. Only simulations may use another device than the CPU. Updates are
            released from the CPU.
        measured: Its code that answers the requests of plans, by purpose: "evaluation", "statistics". A request of a
            purpose that is not named is refused.
        held_out: Which records are kept for evaluation, as a stable choice that does not depend on what they hold.
            They take part in no training, and all others in no evaluation.
    """

    training: ClassVar[type[LocalTraining]] = LocalTraining

    def __init__(
        self,
        name: str,
        records: Records,
        budgets: BudgetTable,
        *,
        policy: Policy,
        record_ids: Sequence[str] | None = None,
        account: Account | None = None,
        planner: Planner = assign_allowed,
        schema_fingerprint: str | None = None,
        device: torch.device | str = "cpu",
        measured: Mapping[Purpose, CellSource] | None = None,
        held_out: NDArray[np.bool_] | None = None,
    ) -> None:
        if not name:
            raise InputError("name='' is empty: a silo needs a name")
        if len(records) == 0:
            raise InputError(f"silo {name}: it has no records; leave it out of the federation")
        self.name = name
        self.records = records
        carried = None if records.ids is None else records.ids.tolist()
        self.budgets = matched_budgets(name, records, budgets, carried if record_ids is None else record_ids)
        self._keeps_account = account is not None
        self.account = MemoryAccount(len(records)) if account is None else account
        self.policy = _with_stewards_limits(policy, self.account)
        self.planner = planner
        self.schema_fingerprint = schema_fingerprint
        self.device = known_device(device)
        self.purposes = Purposes(name, len(records), measured, held_out)
        self.trainer: TrainingProcess | None = None
        """Where rounds are trained; None: in this process."""

        self.is_timed = False
        """Whether answers leave at public times. Then planning takes equally long whatever budgets there are."""

        self._runs: dict[str, _Run] = {}
        """The runs admitted in this process that may still go on, the last admitted at the end."""

    @property
    def runs(self) -> tuple[str, ...]:
        """The runs admitted in this process that may still go on, the last admitted at the end."""
        return tuple(self._runs)

    @property
    def plan(self) -> SiloPlan:
        """The silo plan of the run last admitted. Sensitive; it stays in the silo."""
        return self._admitted().plan

    @property
    def kernel_name(self) -> str:
        """The name of the kernel that clips the records of the run last admitted; "sums" if it has a request."""
        return self._admitted().work.name

    def announced_like(self, run: str) -> Tensor:
        """Return a tensor of the shape and type of what is announced in an admitted run."""
        return self._admitted(run).work.announced

    @property
    def accountant(self) -> BudgetAccountant:
        """The cost so far and the rounds left of every record. Sensitive; it stays in the silo."""
        return self._admitted().accountant

    def admit(
        self,
        run: str,
        public: PublicPlan,
        module: nn.Module | None,
        loss: PerRecordLoss | None,
        randomness: Randomness,
        hold: int | None = None,
        before_hold: Callable[[], None] | None = None,
    ) -> SiloPlan:
        """Check a public plan against the policy, plan from what is left, and hold it. Nothing is released.

        A run that was admitted before continues from the state of its account; its hold is not prolonged. A run that
        was cancelled is refused.

        Args:
            run: The id of the run.
            public: The plan as the server states it.
            module: The model, from the silo's own code; it is copied. Statistics need none.
            loss: Maps outputs and targets to one value per record. Only training needs it.
            randomness: The silo's own randomness; `Secure()` in production.
            hold: For how many seconds the budgets are held if no round is charged; by default as long as the policy
                allows.
            before_hold: Called once a new run has passed all checks, just before anything is held.
        """
        # Before planning: an expiry counted from its end would show how long it took, which depends on the records.
        began = self.account.clock()
        require_kind(self, randomness)
        held_for = self.policy.max_hold if hold is None else hold
        self.account.expire()
        cancelled = [status for status in self.account.status().runs if status.is_over and status.run != run]
        self.policy.require_hold(held_for, len(cancelled))
        plan = self.preview(run, public)
        require_same_code(self, public, module)
        # Before the reservation: an unsuitable model must be refused without any cost.
        work = self._work(public, module, loss)
        announced = self.announced(run)
        if announced is None:
            if before_hold is not None:
                before_hold()
            self.account.reserve(run, plan, began + held_for, self.policy.allowance(public))
        self._forget_finished(run)
        self._runs[run] = _Run(run, plan, work, randomness)
        if announced:
            self._runs[run].accountant.charge(announced)
        return plan

    def _forget_finished(self, admitted: str) -> None:
        """Let go of runs with no rounds left, and of what this process knew of the run that is admitted now.

        So the silo keeps no more than the unfinished runs in memory. A finished run whose server asks again is admitted
        again, from the ledger.
        """
        finished = {one.run for one in self.account.status().runs if one.is_over or one.announced >= one.rounds}
        for run in [run for run in self._runs if run in finished or run == admitted]:
            del self._runs[run]

    def begin_simulation(self) -> None:
        """Start a simulation: with a new account in memory, unless this silo was given one to keep."""
        if not self._keeps_account:
            self.account = MemoryAccount(len(self.records))
            self._runs.clear()

    def cancel(self, run: str) -> None:
        """Cancel a run, for the server, before its first round: all that it holds is returned.

        Cancelling it again changes nothing. A run that has begun, or was never admitted, is refused.
        """
        self.account.cancel(run)
        self._runs.pop(run, None)

    def preview(self, run: str, public: PublicPlan) -> SiloPlan:
        """Return the plan that `admit` would hold for this run now. Nothing is reserved.

        For a run that was admitted before, this is the plan that was reserved then. It is refused for the same reasons
        as admission: policy, membership, or a planner that states too low a cost.
        """
        statuses = self.account.status().runs
        runs = {status.run for status in statuses if not status.is_over}
        self.policy.require(public, len(runs - {run}))
        require_member(self, public)
        self.purposes.require(public)
        if run in {status.run for status in statuses}:
            return self._resumed(run, public)
        # Settings whose cost nobody can compute are refused, whatever kind of account would price them.
        public.curve_at(public.delta)
        allowance = self.policy.allowance(public)
        require_accounts(self, public)
        allowed = self.account.left(self.budgets, self.policy.lifetime_delta, allowance)
        if self.is_timed:
            tabulate(public, self.account.account, allowed.common_delta)
        plan = self.planner(public, self.budgets.ids, allowed)
        require_honest(self, plan, public, allowed)
        return self.purposes.limited(plan, is_new=True)

    def announced(self, run: str) -> int | None:
        """Return how many rounds of a run were announced; None if the run was never admitted."""
        return next((status.announced for status in self.account.status().runs if status.run == run), None)

    def holds(self, run: str) -> bool:
        """Return whether a run is held here: admitted, not begun and not cancelled."""
        return any(status.run == run and status.state == "held" for status in self.account.status().runs)

    @property
    def joined(self) -> tuple[int, ...]:
        """The rounds of the run last admitted that the silo joined."""
        return next(status.joined for status in self.account.status().runs if status.run == self._admitted().name)

    def answer(self, announcement: Announcement) -> Update | None:
        """Answer an announced round with an update, or with None to sit it out."""
        stored = self.begin(announcement)
        if isinstance(stored, Update):
            return stored
        return self.finish(self.train(announcement)) if stored else None

    def begin(self, announcement: Announcement) -> Update | bool:
        """Draw the coin and charge the round.

        Returns:
            True to train now, False to sit the round out, or the update if the round was finished before.
        """
        run = self._admitted(announcement.run)
        self._require_planned(run, announcement)
        number = announcement.round
        probability = run.plan.public.schedule.participation
        coin = run.randomness.child("round", number, "coin")
        # The account draws the coin inside the transaction that charges the round: never one without the other. The
        # same is true of the rounds to join, which are drawn with the first charge.
        charge = self.account.charge(
            run.name,
            number,
            lambda: coin.coin(probability or 0.0),
            lambda: _rounds_to_join(run.plan.public, run.randomness.child("rounds to join")),
        )
        if charge.is_new:
            run.accountant.charge(number)
            if charge.joined:
                run.untrained[number] = announcement.digest()
            return charge.joined
        # Charged before: the stored update goes out again, or the round is sat out. Training it again would be a second
        # release, which was never charged.
        payload = self.account.stored(run.name, number)
        return False if payload is None else Update.from_bytes(self.name, payload)

    def train(self, announcement: Announcement, in_time: Callable[[], bool] = lambda: True) -> TrainedRound:
        """Run the noisy local steps of a round for which `begin` returned True: once, on the announced model.

        If `in_time` returns False before a step, `TooLate` is raised and the round is sat out.
        """
        self.claim(announcement)
        return self.compute(announcement, in_time=in_time)

    def claim(self, announcement: Announcement) -> None:
        """Claim the right to train a round for which `begin` returned True: once, and only on the announced model."""
        run = self._admitted(announcement.run)
        self._require_planned(run, announcement)
        if run.untrained.get(announcement.round) != announcement.digest():
            raise PrivacyRefusal(
                f"silo {self.name}: round {announcement.round} is not waiting to be trained on this model: it was not "
                "charged and joined here, or was trained already; nothing was released"
            )
        del run.untrained[announcement.round]
        run.in_training.add(announcement.round)

    def compute(
        self,
        announcement: Announcement,
        withdrawn: Sequence[int] | NDArray[np.int64] = (),
        in_time: Callable[[], bool] = lambda: True,
    ) -> TrainedRound:
        """Train a claimed round. This changes no account, so a forked worker may do it.

        `withdrawn` are records not to draw in addition to those that the account knows of: the copy of the account in a
        forked worker does not see later withdrawals.
        """
        run = self._admitted(announcement.run)
        late = TooLate(f"silo {self.name}: round {announcement.round} did not finish in time; it is sat out")
        also = np.asarray(withdrawn, dtype=np.int64)

        def switched_off() -> NDArray[np.int64]:
            if not in_time():
                raise late
            return np.concatenate([self.account.switched_off(run.name), also])

        if self.trainer is not None:
            inbox = self.account.inbox_directory
            trained = self.trainer.train(run.plan, announcement, switched_off, in_time, inbox)
            if trained is None:
                raise late
            change, draws = trained
        else:
            stream = run.randomness.child("round", announcement.round)
            change, draws = run.work.run(run.plan, announcement, switched_off, stream)
        return TrainedRound(run.name, Update(self.name, announcement.round, change), draws)

    def finish(self, trained: TrainedRound) -> Update:
        """Store the update of a claimed round. Only then may it be sent."""
        run, update = self._admitted(trained.run), trained.update
        if update.silo != self.name or update.round not in run.in_training:
            raise PrivacyRefusal(
                f"silo {self.name}: the update of silo {update.silo} for round {update.round} of run {run.name!r} is "
                "not one that this silo was training; nothing was released"
            )
        self._require_fitting("the update", update.change, run.work.released)
        run.in_training.discard(update.round)
        # Stored before it is returned: once the bytes may have left, every later answer must repeat exactly them.
        self.account.store(run.name, update.round, update.to_bytes())
        return update

    def _resumed(self, run: str, public: PublicPlan) -> SiloPlan:
        """Return the plan that this run was admitted with; refused if the public plan has changed."""
        terms = AccountTerms(self.account.account, self.policy.lifetime_delta, self.account.silos_per_person)
        plan = self.account.resume(run, self.budgets.ids, terms.per_record(self.budgets))
        if plan.public.fingerprint != public.fingerprint:
            raise PrivacyRefusal(
                f"silo {self.name}: run {run!r} was admitted with plan {plan.public.fingerprint[:12]}…, not with "
                f"{public.fingerprint[:12]}…; a changed plan is a new run and needs a new name",
                Reason.PLAN,
            )
        return self.purposes.limited(plan, is_new=False)

    def _work(self, public: PublicPlan, module: nn.Module | None, loss: PerRecordLoss | None) -> LocalWork:
        """What the rounds of a run do here. Checks and sizes use public things and the silo's own code alone."""
        model = None if module is None else FlatModel(copy.deepcopy(module), self.device)
        if public.request is not None:
            return self.purposes.work(public, None if model is None else model.values.data)
        if module is None or model is None or loss is None:
            raise InputError(f"silo {self.name}: training needs a model and a loss; give both")
        try:
            kernel = make_kernel(model, loss, self.records)
        except InputError as error:
            raise InputError(f"silo {self.name}: {error}") from None
        if self.trainer is None and not self.account.is_simulation:  # an agent has checked its models already
            require_value_independent(module, loss, self.records)
        return TrainingWork(kernel, self.records, self.training)

    def _require_planned(self, run: _Run, announcement: Announcement) -> None:
        plan, rounds = run.plan.public.fingerprint, run.plan.public.schedule.rounds
        if announcement.plan != plan:
            raise PrivacyRefusal(
                f"silo {self.name}: asked for run {run.name!r} with plan {announcement.plan[:12]}…, but it was "
                f"admitted with plan {plan[:12]}…; nothing was released",
                Reason.PLAN,
            )
        if not 1 <= announcement.round <= rounds:
            raise PrivacyRefusal(
                f"silo {self.name}: round {announcement.round} of run {run.name!r} is not one of its {rounds} rounds; "
                "nothing was released",
                Reason.ROUND,
            )
        self._require_fitting("the announced model", announcement.values, run.work.announced)
        if announcement.correction is None:
            return
        if not run.work.takes_correction:
            raise PrivacyRefusal(
                f"silo {self.name}: run {run.name!r} trains nothing, so it takes no correction; nothing was released",
                Reason.SHAPE,
            )
        self._require_fitting("the correction", announcement.correction, run.work.announced)

    def _require_fitting(self, name: str, given: Tensor, own: Tensor) -> None:
        if given.shape != own.shape or given.dtype != own.dtype:
            raise PrivacyRefusal(
                f"silo {self.name}: {name} has type {given.dtype} and shape {tuple(given.shape)}, but this silo's "
                f"model has type {own.dtype} and shape {tuple(own.shape)}; nothing was released",
                Reason.SHAPE,
            )
        if not bool(given.isfinite().all()):
            raise PrivacyRefusal(
                f"silo {self.name}: {name} has numbers that are not finite; nothing was released", Reason.VALUES
            )

    def _admitted(self, run: str | None = None) -> _Run:
        """Return a run that was admitted in this process; by default the last one."""
        if not self._runs:
            raise PrivacyRefusal(f"silo {self.name}: no run was admitted; call admit first", Reason.RUN)
        name = next(reversed(self._runs)) if run is None else run
        if name not in self._runs:
            raise PrivacyRefusal(
                f"silo {self.name}: asked for run {name!r}, but {', '.join(map(repr, self._runs))} "
                f"{'is' if len(self._runs) == 1 else 'are'} admitted; nothing was released",
                Reason.RUN,
            )
        return self._runs[name]


def _with_stewards_limits(policy: Policy, account: Account) -> Policy:
    """Return the limits together with those that the steward states beside a production ledger."""
    if account.is_simulation or account.ledger_file is None:
        return policy
    return policy.within(stated_limits(account.ledger_file))


def _rounds_to_join(public: PublicPlan, randomness: Randomness) -> tuple[int, ...]:
    """Draw exactly k of the T rounds, every choice equally likely; none if each round has its own coin."""
    wanted, rounds = public.schedule.participations or 0, public.schedule.rounds
    numbers = list(range(1, rounds + 1))
    for place in range(wanted):  # Fisher–Yates: the first k places of a random permutation
        other = place + int(randomness.integers(rounds - place, 1)[0])
        numbers[place], numbers[other] = numbers[other], numbers[place]
    return tuple(sorted(numbers[:wanted]))
