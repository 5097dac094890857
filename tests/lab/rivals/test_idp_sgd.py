"""IDP-SGD: sampling rates and clip norms keep every record within its budget, and average as published."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from rpdp_lab.rivals.idp_sgd import IdpSettings, ScalePlan, noise_for_rate, sample_plan, train_scaled

from rpdp.accounting import Accountant, PrivacyCurve, Schedule
from rpdp.budgets import BudgetTable
from rpdp.errors import BudgetError, InputError, PlanError
from rpdp.planning import TUNED_ON_BUDGETS
from rpdp.training import CLIP_SLACK, CentralResult, Records
from tests.lab.rivals.logistic import data, loss, model, optimiser, randomness

RECORDS = 100
EPSILON = np.repeat([1.0, 2.0, 3.0], [54, 37, 9])
SETTINGS = IdpSettings(steps=50, sampling_rate=0.1, delta=1e-3, clip_norm=0.5, normaliser=10.0)


def train(plan: ScalePlan, records: Records | None = None, *, seed: int = 1, secure: bool = False) -> CentralResult:
    return train_scaled(
        model(),
        loss,
        data(RECORDS) if records is None else records,
        plan,
        randomness(seed, secure=secure),
        optimiser=optimiser,
    )


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_sample_reaches_the_mean_rate_within_every_budget(accountant: Accountant) -> None:
    settings = replace(SETTINGS, accountant=accountant)
    plan = sample_plan(BudgetTable([str(row) for row in range(RECORDS)], EPSILON), settings)
    assert (plan.cost <= EPSILON).all()
    assert plan.q.mean() == pytest.approx(0.1, rel=0.03)
    assert plan.q[0] < plan.q[60] < plan.q[99]
    assert plan.estimator == "binary_search"
    assert TUNED_ON_BUDGETS in plan.public.notes
    other = PrivacyCurve(settings.schedule, noise_multiplier=plan.public.noise_multiplier, delta=1e-3)
    assert (other.epsilon(plan.q) <= EPSILON).all()


@pytest.mark.parametrize(("rate", "accountant"), [(0.002, "rdp"), (0.1, "rdp"), (0.1, "pld"), (0.9, "rdp")])
def test_the_noise_is_the_smallest_that_gives_the_rate(rate: float, accountant: Accountant) -> None:
    schedule = Schedule(1, 50, participation=1.0)
    sigma = noise_for_rate(EPSILON, rate, schedule, 1e-3, accountant)
    curves = [
        PrivacyCurve(schedule, noise_multiplier=value, delta=1e-3, accountant=accountant)
        for value in (sigma, sigma / 1.02)
    ]
    enough, too_little = [float(curve.sampling_probability(EPSILON).mean()) for curve in curves]
    assert too_little < rate <= enough


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_scale_keeps_every_record_within_its_budget(accountant: Accountant) -> None:
    plan = ScalePlan.of(EPSILON, replace(SETTINGS, accountant=accountant))
    assert (plan.cost() <= EPSILON).all()
    assert (plan.cost("pld") <= EPSILON).all()
    assert (plan.cost() >= 0.98 * EPSILON).all()


def test_scale_averages_as_published() -> None:
    plan = ScalePlan.of(EPSILON, SETTINGS)
    assert plan.clip_norms.mean() == pytest.approx(0.5)
    noise = plan.noise_multiplier * SETTINGS.clip_norm
    assert noise / plan.clip_norms == pytest.approx(plan.noise_multipliers)
    assert plan.clip_norms[0] < plan.clip_norms[60] < plan.clip_norms[99]


def test_each_record_is_clipped_at_its_own_norm() -> None:
    """One step, everybody drawn, hardly any noise: the release is the sum of gradients clipped one by one."""
    settings = replace(SETTINGS, steps=1, sampling_rate=1.0)
    plan = replace(ScalePlan.of(EPSILON, settings), noise_multiplier=1e-9)
    records = data(RECORDS)
    result = train(plan, records)
    gradients = (0.5 - records.targets)[:, None] * torch.cat([records.inputs[0], torch.ones(RECORDS, 1)], 1)
    bounds = torch.from_numpy(plan.clip_norms).float() * (1 - CLIP_SLACK)
    factors = (bounds / gradients.norm(dim=1)).clamp(max=1.0)
    assert torch.allclose(result.values, -(gradients * factors[:, None]).sum(0) / 10.0, rtol=1e-4, atol=1e-5)


def test_draws_seeds_and_simulation_flag() -> None:
    plan = ScalePlan.of(EPSILON, SETTINGS)
    first = train(plan)
    assert torch.equal(first.values, train(plan).values)
    assert not torch.equal(first.values, train(plan, seed=2).values)
    deviation = np.sqrt(50 * RECORDS * 0.1 * 0.9)
    assert abs(first.local.draws.sum() - 500) < 4.5 * deviation  # false alarm 7e-6
    assert first.is_simulation
    assert not train(plan, secure=True).is_simulation


def test_a_nan_record_does_not_stop_the_run() -> None:
    records = data(RECORDS)
    damaged = records.inputs[0].clone()
    damaged[2] = float("inf")
    assert torch.isfinite(train(ScalePlan.of(EPSILON, SETTINGS), Records.of(damaged, records.targets)).values).all()


def test_bad_input_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = ScalePlan.of(EPSILON, SETTINGS)
    with pytest.raises(PlanError, match="99 records and a plan for 100"):
        train(plan, data(99))
    with pytest.raises(InputError, match="empty"):
        train(plan, data(0))
    with pytest.raises(BudgetError, match="positive finite"):
        ScalePlan.of([1.0, 0.0], SETTINGS)
    with pytest.raises(InputError, match="sampling_rate"):
        replace(SETTINGS, sampling_rate=0.0)
    monkeypatch.setattr("rpdp_lab.rivals.idp_sgd.LARGEST_NOISE", 2.0)
    with pytest.raises(InputError, match="no σ up to 2"):
        noise_for_rate([1.0], 0.99, Schedule(1, 50, participation=1.0), 1e-3, "rdp")
