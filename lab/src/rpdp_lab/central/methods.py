"""The methods that are compared: what each promises, and how it runs on a case."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rpdp.sampling import Seeded
from rpdp_lab.central.case import sgd
from rpdp_lab.rivals.filter import FilterSettings, train_filtered
from rpdp_lab.rivals.idp_sgd import ScalePlan, sample_plan, train_scaled
from rpdp_lab.rivals.plain import train_plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from rpdp_lab.central.case import Case, CentralOutcome


def _scf(case: Case, seed: int) -> CentralOutcome:
    plan = case.scf_plan.assign(case.table(seed), estimator="scf")
    note = (
        f"the SCF fit would overspend by up to {plan.facts['violation']:.2f} times; "
        f"{plan.facts['records_cut_short']:,.0f} records ended early instead"
    )
    return replace(case.follow(plan, seed), note=note)


def _filter(case: Case, seed: int) -> CentralOutcome:
    choice, clip_norm = case.settings.filter, case.settings.clip_norm
    settings = FilterSettings(choice.steps, choice.noise_multiplier, clip_norm, len(case.train), case.delta)
    return case.timed(
        lambda: train_filtered(
            case.model(seed),
            case.loss,
            case.train,
            case.table(seed).epsilon,
            Seeded(seed),
            settings=settings,
            optimiser=sgd(choice.learning_rate),
        )
    )


def _scale(case: Case, seed: int) -> CentralOutcome:
    plan = ScalePlan.of(case.table(seed).epsilon, case.idp)
    return case.timed(
        lambda: train_scaled(case.model(seed), case.loss, case.train, plan, Seeded(seed), optimiser=case.optimiser)
    )


def _plain(case: Case, seed: int) -> CentralOutcome:
    return case.timed(
        lambda: train_plain(
            case.model(seed),
            case.loss,
            case.train,
            Seeded(seed),
            steps=case.settings.steps,
            sampling_probability=case.rate,
            normaliser=case.settings.expected_batch,
            optimiser=sgd(case.settings.plain_learning_rate),
        )
    )


Method = tuple[str, "Callable[[Case, int], CentralOutcome]"]
METHODS: dict[str, Method] = {
    "rPDP-SGD (certified)": (
        "per record, public settings",
        lambda case, seed: case.follow(case.rpdp_plan.assign(case.table(seed)), seed),
    ),
    "SCF under the accountant": ("per record, by ending records early", _scf),
    "Filter": ("per record, models only", _filter),
    "IDP-SGD Sample": (
        "per record, given σ",
        lambda case, seed: case.follow(sample_plan(case.table(seed), case.idp), seed),
    ),
    "IDP-SGD Scale": ("per record, given σ and clip norms", _scale),
    "uniform DP-SGD, minimum": (
        "the strictest ε for everybody",
        lambda case, seed: case.follow(case.uniform_plan, seed),
    ),
    "plain SGD": ("none", _plain),
}
