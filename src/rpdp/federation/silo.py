"""The silo: it owns records, budgets, plan, account and randomness, and it enforces the privacy promise.

A silo does not trust the server. It admits a public plan only within its own policy, plans from what is left of its
records' budgets, and holds the cost. Until the first round the hold can be cancelled, and costs nothing. From then on
the silo answers announcements: it flips its own coin, charges the round, trains on the active records, stores the
update, and only then releases it (privacy.md, sections 4, 5 and 8). The simulator and the deployment use this same
class.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rpdp.accounting.renyi_filter import ORDERS
from rpdp.display import counts_repr
from rpdp.errors import BudgetError, InputError, PlanError, PrivacyRefusal, Reason, RpdpError
from rpdp.federation.devices import known_device
from rpdp.federation.fingerprint import model_fingerprint
from rpdp.federation.local_training import LocalTraining
from rpdp.federation.messages import Update
from rpdp.ledger import AccountTerms, BudgetAccountant, MemoryAccount
from rpdp.planning import assign_allowed, states_its_costs
from rpdp.training import FlatModel, make_kernel, require_value_independent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from rpdp.budgets import AccountKind, BudgetTable
    from rpdp.federation.messages import Announcement
    from rpdp.federation.policy import Policy
    from rpdp.federation.training_process import TrainingProcess
    from rpdp.ledger import Account
    from rpdp.planning import Allowances, Planner, PublicPlan, Purpose, SiloPlan
    from rpdp.sampling import Randomness
    from rpdp.training import Kernel, PerRecordLoss, Records


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

    def __init__(self, name: str, plan: SiloPlan, kernel: Kernel, randomness: Randomness) -> None:
        self.name = name
        self.plan = plan
        self.kernel = kernel
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
        policy: Its own limits.
        record_ids: The ids of `records` in order, to match budgets by id; by default those that `records` carry.
            Without any, the budget table must be in the order of the records.
        account: The account of reservations and charges. By default every simulation gets a new one in memory; give a
            `MemoryAccount` to simulate several runs that share lifetime budgets.
        planner: How budgets become probabilities; by default the certified estimator.
        schema_fingerprint: Of the schema by which the silo's table became `records`; None if they are from no table.
        device: The device that trains its model. Only simulations may use another device than the CPU. Updates are
            released from the CPU.
    """

    training: ClassVar[type[LocalTraining]] = LocalTraining
    purpose: ClassVar[Purpose] = "training"
    """What a silo does with its records in a round, whatever a plan calls it."""

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
    ) -> None:
        if not name:
            raise InputError("name='' is empty: a silo needs a name")
        if len(records) == 0:
            raise InputError(f"silo {name}: it has no records; leave it out of the federation")
        self.name = name
        self.records = records
        carried = None if records.ids is None else records.ids.tolist()
        self.budgets = _matched(name, records, budgets, carried if record_ids is None else record_ids)
        self.policy = policy
        self._keeps_account = account is not None
        self.account = MemoryAccount(len(records)) if account is None else account
        self.planner = planner
        self.schema_fingerprint = schema_fingerprint
        self.device = known_device(device)
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
        """The name of the kernel that clips the records of the run last admitted."""
        return self._admitted().kernel.name

    def model_values(self, run: str) -> Tensor:
        """Return this silo's flat model of an admitted run, for its shape and type."""
        return self._admitted(run).kernel.model.values.data

    @property
    def accountant(self) -> BudgetAccountant:
        """The cost so far and the rounds left of every record. Sensitive; it stays in the silo."""
        return self._admitted().accountant

    def admit(
        self,
        run: str,
        public: PublicPlan,
        module: nn.Module,
        loss: PerRecordLoss,
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
            module: The model, from the silo's own code; it is copied.
            loss: Maps outputs and targets to one value per record.
            randomness: The silo's own randomness; `Secure()` in production.
            hold: For how many seconds the budgets are held if no round is charged; by default as long as the policy
                allows.
            before_hold: Called once a new run has passed all checks, just before anything is held.
        """
        # Before planning: an expiry counted from its end would show how long it took, which depends on the records.
        began = self.account.clock()
        if randomness.is_simulation != self.account.is_simulation:
            kinds = ("production", "simulation")
            raise PrivacyRefusal(
                f"silo {self.name}: {kinds[randomness.is_simulation]} randomness with a "
                f"{kinds[self.account.is_simulation]} account; seeded runs are simulations and protect nobody, and "
                "real runs need secure randomness and a production ledger"
            )
        if self.device.type != "cpu" and not self.account.is_simulation:
            raise PrivacyRefusal(
                f"silo {self.name}: device {self.device} is for simulations; use the CPU for a real run, because there "
                "no record can stop it"
            )
        held_for = self.policy.max_hold if hold is None else hold
        self.account.expire()
        cancelled = [status for status in self.account.status().runs if status.is_over and status.run != run]
        self.policy.require_hold(held_for, len(cancelled))
        plan = self.preview(run, public)
        if public.model_fingerprint not in (None, model_fingerprint(module)):
            raise PrivacyRefusal(
                f"silo {self.name}: the plan is for another model than this silo has; use the same model on both sides",
                Reason.MODEL,
            )
        if public.schema_fingerprint != self.schema_fingerprint:
            raise PrivacyRefusal(
                f"silo {self.name}: the plan is for tables of schema {_short(public.schema_fingerprint)}, but its own "
                f"records were made by schema {_short(self.schema_fingerprint)}; use the same schema on both sides",
                Reason.MODEL,
            )
        # Before the reservation: an unsuitable model must be refused without any cost.
        kernel = self._kernel(copy.deepcopy(module), loss)
        if self.trainer is None and not self.account.is_simulation:  # an agent has checked its models already
            require_value_independent(module, loss, self.records)
        announced = self.announced(run)
        if announced is None:
            if before_hold is not None:
                before_hold()
            self.account.reserve(run, plan, began + held_for, self.policy.allowance(public))
        self._forget_finished(run)
        self._runs[run] = _Run(run, plan, kernel, randomness)
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
        self._require_member(public)
        if run in {status.run for status in statuses}:
            return self._resumed(run, public)
        # Settings whose cost nobody can compute are refused, whatever kind of account would price them.
        public.curve_at(public.delta)
        allowance = self.policy.allowance(public)
        self._require_purpose(public)
        self._require_accounts(public)
        allowed = self.account.left(self.budgets, self.policy.lifetime_delta, allowance)
        if self.is_timed:
            _tabulate(public, self.account.account, allowed.common_delta)
        plan = self.planner(public, self.budgets.ids, allowed)
        self._require_honest(plan, public, allowed)
        return plan

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
            training = self.training(run.kernel, run.plan, run.randomness.child("round", announcement.round))
            change, draws = training.run(self.records, announcement, switched_off)
        return TrainedRound(run.name, Update(self.name, announcement.round, change), draws)

    def finish(self, trained: TrainedRound) -> Update:
        """Store the update of a claimed round. Only then may it be sent."""
        run, update = self._admitted(trained.run), trained.update
        if update.silo != self.name or update.round not in run.in_training:
            raise PrivacyRefusal(
                f"silo {self.name}: the update of silo {update.silo} for round {update.round} of run {run.name!r} is "
                "not one that this silo was training; nothing was released"
            )
        self._require_fitting("the update", update.change, run.kernel.model.values)
        run.in_training.discard(update.round)
        # Stored before it is returned: once the bytes may have left, every later answer must repeat exactly them.
        self.account.store(run.name, update.round, update.to_bytes())
        return update

    def _require_purpose(self, public: PublicPlan) -> None:
        """Refuse to train for a plan that says it is for something else: it could take what is reserved for that."""
        if public.purpose != self.purpose:
            raise PrivacyRefusal(
                f"silo {self.name}: the plan states purpose={public.purpose!r}, but its rounds are {self.purpose}, and "
                f"budgets that are reserved for {public.purpose} are not for that; nothing was reserved. State purpose="
                f"{self.purpose!r}",
                Reason.POLICY,
            )

    def _require_accounts(self, public: PublicPlan) -> None:
        """Refuse a plan for other accounts than this silo keeps: a person's accounts in all silos must fit together."""
        kept = self.account
        if kept.silos_per_person != public.silos_per_person or public.account not in (None, kept.account):
            raise PrivacyRefusal(
                f"silo {self.name}: the plan is for account={public.account or kept.account!r} and silos_per_person="
                f"{public.silos_per_person}, but this silo's account is {kept.account!r} with silos_per_person="
                f"{kept.silos_per_person}, for ever; nothing was reserved. All silos need the same",
                Reason.POLICY,
            )

    def _require_honest(self, plan: SiloPlan, public: PublicPlan, allowed: Allowances) -> None:
        """Refuse a plan that is for other settings or records, or that states less than its true cost.

        In simulations a method may state less than it costs, because they serve to compare such methods.
        """
        if plan.public.fingerprint != public.fingerprint or not plan.ids.equals(self.budgets.ids):
            raise PrivacyRefusal(
                f"silo {self.name}: the planner returned a plan for other settings or other records; it must plan the "
                "public plan and the ids that it is given"
            )
        if self.account.is_simulation:
            return
        if not states_its_costs(plan, allowed):
            raise PrivacyRefusal(
                f"silo {self.name}: the planner states lower costs than its probabilities have; use a planner that "
                "keeps its promise, such as assign_allowed"
            )

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
        return plan

    def _kernel(self, module: nn.Module, loss: PerRecordLoss) -> Kernel:
        try:
            return make_kernel(FlatModel(module, self.device), loss, self.records)
        except InputError as error:
            raise InputError(f"silo {self.name}: {error}") from None

    def _require_member(self, public: PublicPlan) -> None:
        try:
            public.weight(self.name)
        except InputError as error:
            raise PrivacyRefusal(f"silo {self.name}: {error}", Reason.MEMBER) from None

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
        for name, given in (("the announced model", announcement.values), ("the correction", announcement.correction)):
            if given is not None:
                self._require_fitting(name, given, run.kernel.model.values)

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


def _tabulate(public: PublicPlan, account: AccountKind, common_delta: float | None) -> None:
    """Compute everything that planning may need for any records of accounts of this kind."""
    if account == "renyi":
        for order in ORDERS[1:].tolist():
            public.divergence_curve(order).tabulate()
        return
    public.curve_at(public.delta if common_delta is None else common_delta).tabulate()
    public.delta_table.tabulate()


def _rounds_to_join(public: PublicPlan, randomness: Randomness) -> tuple[int, ...]:
    """Draw exactly k of the T rounds, every choice equally likely; none if each round has its own coin."""
    wanted, rounds = public.schedule.participations or 0, public.schedule.rounds
    numbers = list(range(1, rounds + 1))
    for place in range(wanted):  # Fisher–Yates: the first k places of a random permutation
        other = place + int(randomness.integers(rounds - place, 1)[0])
        numbers[place], numbers[other] = numbers[other], numbers[place]
    return tuple(sorted(numbers[:wanted]))


def _matched(name: str, records: Records, budgets: BudgetTable, ids: Sequence[str] | None) -> BudgetTable:
    """Return the budgets in the order of the records, one for each."""
    if ids is None:
        if len(budgets) != len(records):
            raise PlanError(
                f"silo {name}: {len(records):,} records and {len(budgets):,} budgets; every record needs one"
            )
        return budgets
    if len(ids) != len(records):
        raise InputError(f"silo {name}: {len(ids):,} record ids for {len(records):,} records")
    try:
        return budgets.arranged(ids)
    except BudgetError as error:
        raise BudgetError(f"silo {name}: {error}") from None


def _short(fingerprint: str | None) -> str:
    return "(none)" if fingerprint is None else f"{fingerprint[:12]}…"
