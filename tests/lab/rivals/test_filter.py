"""Filter: norm budgets are sound and tight, nobody exceeds one, records drop out, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from rpdp_lab.rivals.filter import Conversion, FilterResult, FilterSettings, train_filtered
from scipy import stats

from rpdp.accounting import Accountant, PrivacyCurve, Schedule
from rpdp.errors import BudgetError, InputError, PlanError
from rpdp.training import Records
from tests.lab.rivals.logistic import data, loss, model, optimiser, randomness

RECORDS = 50
EPSILON = np.resize([0.5, 2.0, 20.0], RECORDS)
SETTINGS = FilterSettings(steps=30, noise_multiplier=5.0, clip_norm=1.0, normaliser=RECORDS, delta=1e-3)


def train(
    settings: FilterSettings = SETTINGS, records: Records | None = None, *, seed: int = 1, secure: bool = False
) -> FilterResult:
    return train_filtered(
        model(),
        loss,
        data(RECORDS) if records is None else records,
        EPSILON,
        randomness(seed, secure=secure),
        settings=settings,
        optimiser=optimiser,
    )


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
@pytest.mark.parametrize("conversion", ["renyi", "gaussian"])
@pytest.mark.parametrize("steps", [1, 40])
def test_a_record_that_spends_its_norm_budget_costs_its_epsilon(
    conversion: Conversion, accountant: Accountant, steps: int
) -> None:
    """Equal norms in all steps are the ordinary Gaussian mechanism, which our two accountants price independently."""
    settings = replace(SETTINGS, conversion=conversion)
    for epsilon in (0.3, 2.0, 11.8):
        norm = np.sqrt(settings.norm_budgets([epsilon])[0] / steps)
        sigma = settings.noise_multiplier * settings.clip_norm / norm
        schedule = Schedule(1, steps, participation=1.0)
        curve = PrivacyCurve(schedule, noise_multiplier=float(sigma), delta=1e-3, accountant=accountant)
        cost = curve.epsilon(1.0)
        if accountant == "pld" or conversion == "renyi":
            assert cost <= epsilon * (1 + 2e-3)
        if (accountant, conversion) in (("pld", "gaussian"), ("rdp", "renyi")):
            assert cost >= epsilon * (1 - 5e-3)  # and nothing is given away


def test_the_gaussian_budget_is_that_of_the_closed_form() -> None:
    mu = np.sqrt(SETTINGS.norm_budgets([2.0])[0]) / 5.0
    delta = stats.norm.cdf(mu / 2 - 2 / mu) - np.exp(2.0) * stats.norm.cdf(-mu / 2 - 2 / mu)
    assert delta == pytest.approx(1e-3, rel=1e-6)
    assert SETTINGS.norm_budgets([2.0]) > replace(SETTINGS, conversion="renyi").norm_budgets([2.0])


def test_nobody_exceeds_a_norm_budget_and_the_strict_drop_out_first() -> None:
    result = train()
    assert (result.spent <= result.norm_budgets).all()
    active = result.local.batch_sizes
    assert active[0] == RECORDS
    assert active == sorted(active, reverse=True)
    assert active[-1] < RECORDS
    mean_steps = [result.local.draws[level::3].mean() for level in range(3)]
    assert mean_steps[0] < mean_steps[1] <= mean_steps[2] == SETTINGS.steps


def test_what_is_charged_is_at_least_what_was_added() -> None:
    """One step from zero weights: the gradient of a record is known, ½ (x, 1)."""
    records = data(RECORDS)
    result = train(replace(SETTINGS, steps=1))
    norms = 0.5 * (records.inputs[0].double().square().sum(1) + 1).sqrt().numpy()
    charged = np.sqrt(result.spent)
    assert (charged >= np.minimum(norms, 1.0 - 1e-4)).all()
    assert charged == pytest.approx(np.minimum(norms, 1.0), rel=2e-4)


def test_after_everybody_dropped_out_only_noise_is_released() -> None:
    result = train(replace(SETTINGS, noise_multiplier=0.05))
    assert result.local.batch_sizes[-1] == 0
    assert len(result.local.batch_sizes) == SETTINGS.steps
    assert torch.isfinite(result.model.values).all()


def test_small_pieces_give_the_same_run() -> None:
    one, other = train(), train(replace(SETTINGS, micro_batch=7))
    assert one.local.batch_sizes == other.local.batch_sizes
    assert torch.allclose(one.model.values, other.model.values, rtol=1e-5)


def test_a_nan_record_adds_nothing_and_pays_the_most() -> None:
    records = data(RECORDS)
    damaged = records.inputs[0].clone()
    damaged[2] = float("nan")
    result = train(replace(SETTINGS, steps=4), Records.of(damaged, records.targets))
    assert torch.isfinite(result.model.values).all()
    assert result.spent[2] == pytest.approx(4.0)


def test_same_seed_same_model_and_simulation_flag() -> None:
    assert torch.equal(train().model.values, train().model.values)
    assert not torch.equal(train().model.values, train(seed=2).model.values)
    assert train().is_simulation
    assert not train(secure=True).is_simulation


def test_bad_input_is_refused() -> None:
    with pytest.raises(PlanError, match="49 records"):
        train(records=data(49))
    with pytest.raises(InputError, match="empty"):
        train(records=data(0))
    with pytest.raises(BudgetError, match="positive finite"):
        SETTINGS.norm_budgets([1.0, -1.0])
    with pytest.raises(InputError, match="conversion='zcdp'"):
        replace(SETTINGS, conversion="zcdp")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="noise_multiplier"):
        replace(SETTINGS, noise_multiplier=0.0)
