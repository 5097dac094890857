"""The methods that are compared: what each promises, and how it runs on a pooled task."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rpdp.sampling import Seeded
from rpdp_lab.central.pooled_task import sgd
from rpdp_lab.rivals.filter import FilterSettings, train_filtered
from rpdp_lab.rivals.idp_sgd import ScalePlan, sample_plan, train_scaled
from rpdp_lab.rivals.plain_sgd import train_plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from rpdp_lab.central.pooled_task import CentralOutcome, PooledTask
    from rpdp_lab.rivals.filter import FilterResult


def _scf(pooled: PooledTask, seed: int) -> CentralOutcome:
    plan = pooled.scf_plan.assign(pooled.table(seed), estimator="scf")
    note = (
        f"the SCF fit would overspend by up to {plan.facts['violation']:.2f} times; "
        f"{plan.facts['records_cut_short']:,.0f} records ended early instead"
    )
    return replace(pooled.follow(plan, seed), note=note)


def run_filter(
    pooled: PooledTask, seed: int, noise_multiplier: float | None = None, device: str = "cpu"
) -> FilterResult:
    """Filter with the settings of the task, or with another σ."""
    choice, clip_norm = pooled.settings.filter, pooled.settings.clip_norm
    sigma = choice.noise_multiplier if noise_multiplier is None else noise_multiplier
    return train_filtered(
        pooled.model(seed),
        pooled.loss,
        pooled.train,
        pooled.table(seed).epsilon,
        Seeded(seed),
        settings=FilterSettings(choice.steps, sigma, clip_norm, len(pooled.train), pooled.delta),
        optimiser=sgd(choice.learning_rate),
        device=device,
    )


def _scale(pooled: PooledTask, seed: int) -> CentralOutcome:
    plan = ScalePlan.of(pooled.table(seed).epsilon, pooled.idp)
    return pooled.timed(
        lambda: train_scaled(
            pooled.model(seed), pooled.loss, pooled.train, plan, Seeded(seed), optimiser=pooled.optimiser
        )
    )


def _plain(pooled: PooledTask, seed: int) -> CentralOutcome:
    return pooled.timed(
        lambda: train_plain(
            pooled.model(seed),
            pooled.loss,
            pooled.train,
            Seeded(seed),
            steps=pooled.settings.steps,
            sampling_probability=pooled.rate,
            normaliser=pooled.settings.expected_batch,
            optimiser=sgd(pooled.settings.plain_learning_rate),
        )
    )


Method = tuple[str, "Callable[[PooledTask, int], CentralOutcome]"]
METHODS: dict[str, Method] = {
    "rPDP-SGD (certified)": (
        "per record, public settings",
        lambda pooled, seed: pooled.follow(pooled.rpdp_plan.assign(pooled.table(seed)), seed),
    ),
    "SCF under the accountant": ("per record, by ending records early", _scf),
    "Filter": ("per record, models only", lambda pooled, seed: pooled.timed(lambda: run_filter(pooled, seed))),
    "IDP-SGD Sample": (
        "per record, given σ",
        lambda pooled, seed: pooled.follow(sample_plan(pooled.table(seed), pooled.idp), seed),
    ),
    "IDP-SGD Scale": ("per record, given σ and clip norms", _scale),
    "uniform DP-SGD, minimum": (
        "the strictest ε for everybody",
        lambda pooled, seed: pooled.follow(pooled.uniform_plan, seed),
    ),
    "plain SGD": ("none", _plain),
}
