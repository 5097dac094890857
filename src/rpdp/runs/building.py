"""From a run file, a method and a seed to a federation that is ready to run: the same way for every method.

Public settings come from the file and from what it declares; real budgets and records stay in the silos. Nothing is
released here, and everything that can be found wrong before the first round is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np

from rpdp.accounting import Accountant, Schedule, calibrate_noise
from rpdp.baselines.federated import method_named
from rpdp.errors import BudgetError, InputError, PrivacyRefusal
from rpdp.federation import Evaluation, Policy, model_fingerprint
from rpdp.planning import PublicPlan, Status, assign_allowed
from rpdp.runs.allowances import declared, load_budgets
from rpdp.runs.differentiable import require_differentiable
from rpdp.runs.sources import Source, load_source, make_model
from rpdp.training import require_private

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn

    from rpdp.baselines.federated import Method
    from rpdp.budgets import BudgetTable
    from rpdp.federation import Silo
    from rpdp.federation.silo import Planner
    from rpdp.planning import SiloPlan
    from rpdp.runs.runfile import MethodSettings, RunFile

TUNED = "not covered: learning rate and clip norm were chosen by results on the silos' own test records"
TESTED = "treated as public: the silos' test records, on which accuracy is measured (in simulations only)"


@dataclass(frozen=True)
class Built:
    """A federation before its first round.

    Attributes:
        spec: The run file.
        settings: Of the method.
        seed: Of the simulation.
        source: Data, loss and measure.
        model: Where training starts.
        silos: Ready to admit the plan.
        public: The plan.
        plans: What the silos are going to plan. Sensitive.
        evaluation: Test records, if there are any.
    """

    spec: RunFile
    settings: MethodSettings
    seed: int
    source: Source
    model: nn.Module
    silos: list[Silo]
    public: PublicPlan
    plans: Mapping[str, SiloPlan]
    evaluation: Evaluation | None


def build(spec: RunFile, settings: MethodSettings, seed: int) -> Built:
    """Put a federation together, and refuse what cannot run."""
    source = load_source(spec, seed)
    budgets = load_budgets(spec, source.silos, seed)
    model = make_model(spec, seed)
    base = _base_plan(spec, settings, source, model)
    ceiling = spec.privacy.max_epsilon or base.curve.largest_cost
    known, remark = declared(spec, source.silos, ceiling)
    method = _method(spec, settings.method)
    public = method.public(base if remark is None else base.with_note(remark), known, settings.level)
    everyone = np.concatenate([table.per_record().epsilon for table in budgets.values()])
    planner = method.planner(everyone, known, settings.level)
    silos = _silos(spec, source, budgets, method.silo, public, planner)
    require_private(model)
    require_differentiable(model, source.loss, {silo.name: silo.records for silo in silos})
    plans = {silo.name: _planned(silo, public, planner) for silo in silos}
    _require_somebody(plans, settings.method)
    tests = {name: held.test for name, held in source.silos.items()}
    evaluation = Evaluation(tests, source.correct) if any(map(len, tests.values())) else None
    return Built(spec, settings, seed, source, model, silos, public, plans, evaluation)


@lru_cache(maxsize=64)
def noise_for(schedule: Schedule, epsilon: float, delta: float, accountant: Accountant) -> float:
    """σ from the policy's ceiling."""
    return calibrate_noise(schedule, epsilon=epsilon, delta=delta, accountant=accountant)


def _base_plan(spec: RunFile, settings: MethodSettings, source: Source, model: nn.Module) -> PublicPlan:
    """The plan with everything but the normaliser, which each method has its own of."""
    privacy, schedule = spec.privacy, spec.public_schedule
    sigma = privacy.noise_multiplier
    if sigma is None:
        assert privacy.max_epsilon is not None
        sigma = noise_for(schedule, privacy.max_epsilon, spec.delta, privacy.accountant)
    tested = any(len(held.test) for held in source.silos.values())
    notes = [*source.notes, *([TESTED] if tested else []), *([TUNED] if settings.tuned else [])]
    return PublicPlan(
        schedule,
        noise_multiplier=sigma,
        delta=spec.delta,
        clip_norm=settings.clip_norm,
        normaliser=1.0,
        weights=_weights(spec, source),
        recipe=spec.recipe(settings.learning_rate),
        accountant=privacy.accountant,
        model_fingerprint=model_fingerprint(model),
        notes=tuple(notes),
    )


def _weights(spec: RunFile, source: Source) -> float | Mapping[str, float]:
    weights = spec.training.weights
    if weights is None:
        return 1.0
    if set(weights) != set(source.silos):
        raise InputError(
            f"{spec.path}: training.weights names {', '.join(weights)}; the silos are {', '.join(source.silos)}"
        )
    return weights


def _method(spec: RunFile, name: str) -> Method:
    """The method; `privacy.estimator` is ours to choose in method rpdp only."""
    method = method_named(name)
    if name != "rpdp" or spec.privacy.estimator == "certified":
        return method
    planner = partial(assign_allowed, estimator=spec.privacy.estimator)
    return replace(method, make_planner=lambda everyone, known, level: planner)


def _silos(
    spec: RunFile,
    source: Source,
    budgets: Mapping[str, BudgetTable],
    kind: type[Silo],
    public: PublicPlan,
    planner: Planner,
) -> list[Silo]:
    policy = Policy.of(public)
    if spec.privacy.lifetime_delta is not None:
        policy = replace(policy, lifetime_delta=spec.privacy.lifetime_delta)
    try:
        return [
            kind(name, held.train, budgets[name], policy=policy, record_ids=held.ids, planner=planner)
            for name, held in source.silos.items()
        ]
    except BudgetError as error:
        raise BudgetError(f"{spec.path}: budgets.files: {error}") from None


def _planned(silo: Silo, public: PublicPlan, planner: Planner) -> SiloPlan:
    """What the silo is going to plan when it admits the plan."""
    silo.policy.require(public, 0)
    return planner(public, silo.budgets.ids, silo.account.left(silo.budgets, silo.policy.lifetime_delta))


def _require_somebody(plans: Mapping[str, SiloPlan], method: str) -> None:
    """Refuse a run of noise: nobody can pay for a draw, and free draws (within δ) would not fill a batch either."""
    if any(bool((plan.cost > 0.0).any()) or plan.expected_batch >= 1.0 for plan in plans.values()):
        return
    short = sum(int((plan.status == Status.DELTA_TOO_SMALL).sum()) for plan in plans.values())
    total = sum(len(plan) for plan in plans.values())
    public = next(iter(plans.values())).public
    why = (
        f"the lifetime δ of {short:,} of {total:,} records is below the run's δ = {public.delta:g}: use a smaller "
        "privacy.delta, or a larger lifetime δ"
        if short
        else f"all {total:,} budgets are below what {public.schedule.describe()} at σ = {public.noise_multiplier:.4g} "
        "cost: use fewer rounds or local steps, more noise, or a lower level"
    )
    raise PrivacyRefusal(f"method {method}: no record could take part, nothing was released; {why}")
