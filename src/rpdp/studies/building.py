"""Building a federation that is ready to run from a study file, a method and a seed, in the same way for every method.

Public settings come from the file and what it declares; real budgets and records stay in the silos. Nothing is released
here, and every mistake that can be found before the first round is found.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rpdp.accounting import Accountant, Schedule, calibrate_noise
from rpdp.budgets import BudgetTable
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.federation import Policy, Silo, UnprotectedSilo, model_fingerprint
from rpdp.ledger import MemoryAccount
from rpdp.methods import method_named
from rpdp.planning import PublicPlan, assign_allowed
from rpdp.statistics import ModelCells
from rpdp.studies.differentiable import require_differentiable
from rpdp.studies.private_evaluation import evaluated_rounds, plan_private_evaluation
from rpdp.studies.real_run import own_limits
from rpdp.studies.study_budgets import declared, load_budgets
from rpdp.studies.study_data import Source, group_column, load_source, make_evaluation, make_model, pooled
from rpdp.training import require_private, require_value_independent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from torch import nn

    from rpdp.federation import Evaluation
    from rpdp.ledger import Ledger
    from rpdp.methods import Method
    from rpdp.planning import Planner, SiloPlan
    from rpdp.planning.allowances import Allowances
    from rpdp.statistics import EvaluationOutlook
    from rpdp.studies.study_data import SiloSource
    from rpdp.studies.study_file import MethodSettings, StudyFile

TUNED = "not covered: learning rate and clip norm were chosen by results on the silos' own test records"
FROM_DATA = (
    "not covered: ranges and levels of the schema were read from private data; declare them from knowledge, and remove "
    "from_data"
)
POOL = "all-records"
"""The only silo of a method that knows no silos."""

# Part of the fingerprint of every plan; "accuracy" stands for whatever is measured.
TESTED = "treated as public: the silos' test records, on which accuracy is measured (in simulations only)"


@dataclass(frozen=True)
class PreparedRun:
    """A federation before its first round.

    Attributes:
        spec: The study file.
        settings: The settings of the method.
        seed: The seed of a simulation; None for a real run.
        source: Data and loss.
        model: The model to start from.
        silos: The silos, ready to admit the plan.
        public: The public plan.
        evaluation: Test records and metrics, if there are any.
        private_evaluation: The plan of the private evaluation, and what it would find out, if the file asks for one.
        trial: Of a simulated trial of `rpdp tune` its name, from which its noise follows.
    """

    spec: StudyFile
    settings: MethodSettings
    seed: int | None
    source: Source
    model: nn.Module
    silos: list[Silo]
    public: PublicPlan
    evaluation: Evaluation | None
    private_evaluation: EvaluationOutlook | None = None
    trial: str = ""

    @cached_property
    def plans(self) -> Mapping[str, SiloPlan]:
        """The plan that each silo would reserve now, or has reserved for this run. Sensitive."""
        return {silo.name: silo.preview(self.spec.run.id or "", self.public) for silo in self.silos}


def build(
    spec: StudyFile,
    settings: MethodSettings,
    seed: int | None,
    ledgers: Mapping[str, Ledger] | None = None,
    device: str = "cpu",
    models: int | None = None,
    accounts: dict[str, MemoryAccount] | None = None,
) -> PreparedRun:
    """Build a federation, and refuse one that cannot run.

    With ledgers it is a real run: it has no seed, accuracy is not measured on the silos' own test records, and no
    refusal here depends on an account. `device` is the device on which silos train; the checks here run on the CPU.
    `models` says how many models the private evaluation compares; by default those of the run itself. Simulations that
    share lifetime budgets share `accounts`, by silo; those that are missing are added.
    """
    start = 0 if seed is None else seed
    source = load_source(spec, start)
    method = _method(spec, settings.method)
    if ledgers is not None and not method.is_protected:
        raise PrivacyRefusal(f"method {method.name} promises nothing: it is for simulations only; use method rpdp")
    enrolled = _enrolled(spec, source)
    budgets = load_budgets(spec, enrolled, start)
    model = make_model(spec, start)
    tests = {} if ledgers is not None else {name: held.test for name, held in source.silos.items()}
    is_tested = any(map(len, tests.values()))
    unchecked = [] if ledgers is None else _value_notes(model, source)
    notes = [*source.notes, *([TESTED] if is_tested else []), *unchecked]
    silos_in_plan = [POOL] if method.is_pooled else list(source.silos)
    base = _base_plan(spec, settings, silos_in_plan, notes, model)
    ceiling = spec.privacy.max_epsilon or base.curve.largest_cost
    known, remark = declared(spec, source.silos, ceiling)
    if method.is_pooled:
        known = replace(known, records=known.records * len(source.silos))
        together = pooled(source.silos)
        enrolled, budgets = {POOL: together}, {POOL: BudgetTable(together.ids, np.ones(len(together.ids)))}
    public = method.public(base if remark is None else base.with_note(remark), known, settings.level)
    everyone = np.concatenate([table.per_record().epsilon for table in budgets.values()])
    planner = method.planner(everyone, known, settings.level)
    measuring = _measuring(spec, enrolled, model)
    kept = {} if accounts is None else accounts
    held = {name: _account(name, public, len(each.train), ledgers, kept) for name, each in enrolled.items()}
    count = models or len(evaluated_rounds(spec))
    silos = _silos(spec, enrolled, budgets, _silo_class(method), public, planner, held, device, measuring, count)
    require_private(model)
    require_differentiable(model, source.loss, {silo.name: silo.records for silo in silos})
    evaluation = make_evaluation(spec, tests).checked(model) if is_tested else None
    private = None
    if measuring and method.is_protected:
        private = plan_private_evaluation(spec, public, measuring, count)
    return PreparedRun(spec, settings, seed, source, model, silos, public, evaluation, private)


def _enrolled(spec: StudyFile, source: Source) -> Mapping[str, SiloSource]:
    """The records that have budgets: those for training, and with private evaluation those for testing, too."""
    if spec.evaluation.share is None:
        return source.silos
    return {name: held.with_held_out() for name, held in source.silos.items()}


def _measuring(spec: StudyFile, enrolled: Mapping[str, SiloSource], model: nn.Module) -> dict[str, ModelCells]:
    """Every silo's own code for private evaluation; nothing if the file does not ask for it."""
    if spec.evaluation.share is None:
        return {}
    column = group_column(spec)
    return {
        name: ModelCells(held.train, model, {column.name: held.groups} if column and held.groups is not None else None)
        for name, held in enrolled.items()
    }


def _value_notes(model: nn.Module, source: Source) -> list[str]:
    """Return what could not be checked of a real run's model; one whose time depends on records' values is refused."""
    held = next(iter(source.silos.values()))
    return require_value_independent(model, source.loss, held.train)


@lru_cache(maxsize=64)
def noise_for(schedule: Schedule, epsilon: float, delta: float, accountant: Accountant) -> float:
    """Return the σ at which a record in every batch costs at most `epsilon`."""
    return calibrate_noise(schedule, epsilon=epsilon, delta=delta, accountant=accountant)


def public_plan(spec: StudyFile, model: nn.Module, silos: Sequence[str]) -> PublicPlan:
    """Return the plan of a study file for silos known only by their names, as in a deployment."""
    if spec.budgets.records_per_silo is None:
        raise InputError(
            f"{spec.path}: budgets.records_per_silo is missing: declare the nominal number of records of a silo; the "
            "real numbers stay with the silos"
        )
    require_private(model)
    base = _base_plan(spec, spec.settings("rpdp"), silos, [], model)
    known, _ = declared(spec, {}, spec.privacy.max_epsilon or base.curve.largest_cost)
    return _method(spec, "rpdp").public(base, known, None)


def _base_plan(
    spec: StudyFile, settings: MethodSettings, silos: Sequence[str], notes: Sequence[str], model: nn.Module
) -> PublicPlan:
    """Return the plan with everything but the normaliser, which each method sets itself."""
    privacy, schedule = spec.privacy, spec.public_schedule
    if spec.table is not None and spec.table.wants_scale:
        raise InputError(
            f'{spec.path}: table.scale="private" is asked for by rpdp train and rpdp tune alone; elsewhere remove '
            "it, or ask rpdp statistics and declare the ranges that it answers"
        )
    if spec.table is not None and spec.table.scale is not None:
        notes = [*notes, spec.table.scale.note]
    from_data = spec.table is not None and spec.table.schema.from_data
    sigma = privacy.noise_multiplier
    if sigma is None:
        assert privacy.max_epsilon is not None
        sigma = noise_for(schedule, privacy.max_epsilon, spec.delta, privacy.accountant)
    return PublicPlan(
        schedule,
        noise_multiplier=sigma,
        delta=spec.delta,
        clip_norm=settings.clip_norm,
        normaliser=1.0,
        weights=_weights(spec, silos),
        recipe=spec.recipe(settings.learning_rate),
        accountant=privacy.accountant,
        model_fingerprint=model_fingerprint(model),
        schema_fingerprint=spec.schema_fingerprint,
        notes=(*notes, *([TUNED] if settings.tuned else []), *([FROM_DATA] if from_data else [])),
        purpose=spec.run.purpose,
        study=spec.run.study,
        share=privacy.share,
        silos_per_person=spec.policy.silos_per_person,
        account=privacy.account,
        lifetime_delta=spec.lifetime_delta,
    )


def _weights(spec: StudyFile, silos: Sequence[str]) -> float | Mapping[str, float]:
    weights = spec.training.weights
    if weights is None or list(silos) == [POOL]:
        return 1.0
    if set(weights) != set(silos):
        raise InputError(f"{spec.path}: training.weights names {', '.join(weights)}; the silos are {', '.join(silos)}")
    return weights


def _method(spec: StudyFile, name: str) -> Method:
    """Return the method of this name. Only method rpdp uses `privacy.estimator`."""
    method = method_named(name)
    if name != "rpdp" or spec.privacy.estimator == "certified":
        return method
    planner = partial(assign_allowed, estimator=spec.privacy.estimator)
    return replace(method, make_planner=lambda everyone, known, level: planner)


def _silos(
    spec: StudyFile,
    enrolled: Mapping[str, SiloSource],
    budgets: Mapping[str, BudgetTable],
    kind: type[Silo],
    public: PublicPlan,
    planner: Planner,
    accounts: Mapping[str, Ledger | MemoryAccount],
    device: str,
    measuring: Mapping[str, ModelCells],
    models: int,
) -> list[Silo]:
    return [
        kind(
            name,
            held.train,
            budgets[name],
            policy=_policy(spec, name, public, accounts[name], models),
            account=accounts[name],
            planner=_for_requests(planner) if measuring else planner,
            schema_fingerprint=spec.schema_fingerprint,
            device=device,
            measured={"evaluation": measuring[name]} if measuring else None,
            held_out=held.held_out,
        )
        for name, held in enrolled.items()
    ]


def _account(
    silo: str,
    public: PublicPlan,
    records: int,
    ledgers: Mapping[str, Ledger] | None,
    accounts: dict[str, MemoryAccount],
) -> Ledger | MemoryAccount:
    if ledgers:
        return ledgers[silo]
    return accounts.setdefault(silo, simulated_account(public, records))


def _policy(spec: StudyFile, silo: str, public: PublicPlan, account: Ledger | MemoryAccount, models: int) -> Policy:
    if isinstance(account, MemoryAccount):
        return policy_of(spec, public, None, earlier=len(account.status().runs), models=models)
    return policy_of(spec, public, own_limits(spec, silo, account))


def _for_requests(planner: Planner) -> Planner:
    """The planner of a method for training; requests have weights, whose prices are exact, by every method."""

    def chosen(public: PublicPlan, ids: pa.ChunkedArray, allowed: Allowances) -> SiloPlan:
        return (planner if public.request is None else assign_allowed)(public, ids, allowed)

    return chosen


def _silo_class(method: Method) -> type[Silo]:
    return Silo if method.is_protected else UnprotectedSilo


def simulated_account(public: PublicPlan, records: int) -> MemoryAccount:
    """Return an account in memory of the kind that the plan asks for."""
    return MemoryAccount(records, account=public.account or "sums", silos_per_person=public.silos_per_person)


def policy_of(
    spec: StudyFile, public: PublicPlan, own: Mapping[str, Any] | None, *, earlier: int = 0, models: int = 1
) -> Policy:
    """Return the limits of the file, and in a real run of the silo's own one (`own`), which goes first.

    Where there is none, this plan is the limit, which only simulations allow, beside `earlier` runs and the evaluation
    of its models.

    A real run never gets an allowance from the study file: without the silo's own it can be continued, and no new run
    is admitted.
    """
    given = {name: value for name, value in vars(spec.policy).items() if value is not None}
    if own is not None:  # nobody but the silo itself allows a run to take a share
        given |= {"max_share_per_run": None, **own}
    runs = 2 if own is None and spec.evaluation.share is not None else 1  # of a simulation, also its evaluation
    limits = Policy.of(public)
    loosened = {"max_runs": earlier + runs, "max_rounds": max(limits.max_rounds, models)}
    return replace(limits, **{**loosened, **given})
