"""Centralised rPDP-SGD: what it refuses, what it promises, and that its draws are those that were priced."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import dp_accounting
import dp_accounting.pld
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import Tensor, nn

from rpdp.accounting import Schedule
from rpdp.budgets import BudgetTable
from rpdp.errors import InputError, PlanError, PrivacyRefusal
from rpdp.planning import PublicPlan
from rpdp.sampling import Secure, Seeded
from rpdp.training import CentralResult, Records, train_central, uniform_plan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.planning import SiloPlan
    from rpdp.sampling import Randomness

RECORDS = 60
SILENT = -1.0  # a target without gradient
LEVELS = np.array([0.5, 2.0, 8.0])
FALSE_ALARM = 1e-4  # of each statistical test here; seeds are fixed, so a pass stays a pass


def loss(output: Tensor, targets: Tensor) -> Tensor:
    found = F.binary_cross_entropy_with_logits(output[:, 0], targets, reduction="none")
    return torch.where(targets == SILENT, 0.0, found)


def data(count: int = RECORDS) -> Records:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(count, 3, generator=generator)
    return Records.of(inputs, (inputs[:, 0] > 0).float())


def public(steps: int = 40, schedule: Schedule | None = None, sigma: float = 2.0) -> PublicPlan:
    return PublicPlan(
        schedule or Schedule(1, steps, participation=1.0),
        noise_multiplier=sigma,
        delta=1e-3,
        clip_norm=1.0,
        normaliser=10.0,
        weights=1.0,
    )


def budgets(count: int = RECORDS) -> BudgetTable:
    return BudgetTable([f"r{row}" for row in range(count)], np.resize(LEVELS, count))


def model() -> nn.Module:
    layer = nn.Linear(3, 1)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def optimiser(values: list[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(values, lr=0.5)


def train(
    plan: SiloPlan | None = None,
    randomness: Randomness | None = None,
    records: Records | None = None,
    module: nn.Module | None = None,
    record_ids: list[str] | None = None,
) -> CentralResult:
    return train_central(
        module or model(),
        loss,
        data() if records is None else records,
        plan or public().assign(budgets()),
        randomness or Seeded(3),
        optimiser=optimiser,
        record_ids=record_ids,
    )


@pytest.mark.parametrize("estimator", ["certified", "scf", "binary_search"])
def test_a_renyi_plan_is_within_every_budget_by_the_pld_accountant(estimator: str) -> None:
    rounds = Schedule(40, 1, participation=1.0)
    plan = replace(public(schedule=rounds), accountant="rdp").assign(budgets(), estimator=estimator)
    assert (plan.cost <= plan.budget).all()
    by_steps = [public(steps=int(steps)).curve.epsilon(float(q)) for steps, q in _parts(plan)]
    assert (np.array(by_steps) <= LEVELS).all()


def test_a_pld_plan_is_within_every_budget_by_the_accountant_of_others() -> None:
    """dp_accounting's own PLD, whose grid errs upwards by less than the tolerance here."""
    plan = public().assign(budgets())
    found = np.array([_dp_accounting(float(q), int(steps)) for steps, q in _parts(plan)])
    assert (found <= LEVELS * 1.01).all()
    assert (found >= LEVELS * 0.98).all()  # and the budget is used
    too_much = np.array([_dp_accounting(float(q) * 1.1, int(steps)) for steps, q in _parts(plan)])
    assert (too_much > LEVELS * 1.01).all()


def _parts(plan: SiloPlan) -> list[tuple[np.int32, np.float64]]:
    """Steps and q of one record of each level."""
    return list(zip(plan.active_rounds[:3] * plan.public.schedule.local_steps, plan.q[:3], strict=True))


def _dp_accounting(q: float, steps: int) -> float:
    accountant = dp_accounting.pld.PLDAccountant()
    step = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(2.0))
    accountant.compose(dp_accounting.SelfComposedDpEvent(step, steps))
    return float(accountant.get_epsilon(1e-3))


def pearson(draws: NDArray[np.int64], q: NDArray[np.float64], steps: int) -> float:
    """p-value of the squared standardised inclusion counts of all records."""
    score = (draws - q * steps) / np.sqrt(steps * q * (1 - q))
    return float(stats.chi2.sf((score**2).sum(), len(q)))


def test_records_are_drawn_as_often_as_the_plan_says() -> None:
    plan = public(steps=600, sigma=4.0).assign(budgets())
    result = train(plan)
    assert 0 < plan.q.min() < plan.q.max() < 1
    assert pearson(result.local.draws, plan.q, 600) > FALSE_ALARM
    assert result.local.expected_draws == pytest.approx(plan.q * 600)
    assert result.local.inclusion_ratio == pytest.approx(1.0, abs=0.1)
    assert sum(result.local.batch_sizes) == result.local.draws.sum()


def test_the_inclusion_test_rejects_other_probabilities() -> None:
    plan = public(steps=600, sigma=4.0).assign(budgets())
    draws = train(plan).local.draws
    assert pearson(draws, plan.q * 1.25, 600) < FALSE_ALARM
    assert pearson(draws, np.full(RECORDS, plan.q.mean()), 600) < FALSE_ALARM


def test_same_seed_same_model_other_seed_another() -> None:
    first, second, other = train(), train(), train(randomness=Seeded(4))
    assert torch.equal(first.values, second.values)
    assert not torch.equal(first.values, other.values)


def test_a_step_does_not_depend_on_how_many_follow() -> None:
    """Streams are keyed by step: the first 10 draws of a run are those of a run that ends there."""
    q = public(steps=20).assign(budgets()).q
    short = _with_q(public(steps=10).assign(budgets()), q)
    long = public(steps=20).assign(budgets())
    assert train(long).local.batch_sizes[:10] == train(short).local.batch_sizes


def _with_q(plan: SiloPlan, q: NDArray[np.float64]) -> SiloPlan:
    return replace(plan, q=np.asarray(q))


def test_seeded_is_a_simulation_secure_is_not() -> None:
    assert train(randomness=Seeded(1)).is_simulation
    first, second = train(randomness=Secure()), train(randomness=Secure())
    assert not first.is_simulation
    assert not torch.equal(first.values, second.values)


def test_it_learns_when_budgets_are_generous() -> None:
    table = BudgetTable([f"r{row}" for row in range(RECORDS)], np.full(RECORDS, 500.0))
    records = data()
    result = train(public(steps=100, sigma=0.5).assign(table), records=records)
    right = ((result.model.module(records.inputs[0])[:, 0] > 0) == records.targets.bool()).float().mean()
    assert right > 0.85


def test_a_nan_record_contributes_nothing_and_is_drawn_all_the_same() -> None:
    records, plan = data(), public().assign(budgets())
    damaged = records.inputs[0].clone()
    damaged[5] = float("nan")
    result = train(plan, records=Records.of(damaged, records.targets))
    silent = records.targets.clone()
    silent[5] = SILENT
    expected = train(plan, records=Records.of(records.inputs[0], silent))
    assert result.local.draws[5] > 0
    assert result.local.draws.tolist() == expected.local.draws.tolist()
    assert torch.equal(result.values, expected.values)
    assert not torch.equal(result.values, train(plan).values)


def test_nothing_but_nan_still_releases_noise() -> None:
    records = data()
    result = train(records=Records.of(torch.full_like(records.inputs[0], float("nan")), records.targets))
    assert torch.isfinite(result.values).all()
    assert result.values.abs().max() > 0


def test_a_record_whose_rounds_are_over_is_never_drawn_again() -> None:
    plan = public(schedule=Schedule(30, 2, participation=1.0)).assign(budgets())
    active = np.where(np.arange(RECORDS) % 3 == 2, 5, 30).astype(np.int32)
    cut = replace(plan, q=np.ones(RECORDS), active_rounds=active)
    result = train(cut)
    assert result.local.draws.tolist() == (2 * active).tolist()
    assert result.local.batch_sizes == [RECORDS] * 10 + [RECORDS * 2 // 3] * 50


def test_uniform_dp_sgd_gives_every_record_the_same() -> None:
    plan = uniform_plan(public(), RECORDS, 2.0)
    assert np.unique(plan.q).size == 1
    assert 1.99 <= plan.cost[0] <= 2.0
    assert len(train(plan).local.batch_sizes) == 40
    with pytest.raises(InputError, match="epsilon=-1"):
        uniform_plan(public(), RECORDS, -1.0)


@pytest.mark.parametrize(
    "schedule",
    [
        Schedule(4, 10, participation=0.5),
        Schedule(4, 10, participations=2),
        Schedule(4, 10, participation=1.0, max_participations=3),
    ],
)
def test_a_schedule_that_sits_out_is_refused(schedule: Schedule) -> None:
    with pytest.raises(PlanError, match="takes every step"):
        train(public(schedule=schedule).assign(budgets()))


def test_records_that_the_plan_does_not_cover_are_refused() -> None:
    with pytest.raises(PlanError, match="60 records and a plan for 59"):
        train(public().assign(budgets(59)))
    with pytest.raises(InputError, match="empty"):
        train(records=data(0))
    ids = [f"r{row}" for row in range(RECORDS)]
    train(public(steps=2).assign(budgets()), record_ids=ids)
    with pytest.raises(PlanError, match=r"record 2 is 'r3', but the plan has 'r2' there \(2 such"):
        train(record_ids=[*ids[:2], "r3", "r2", *ids[4:]])
    with pytest.raises(PlanError, match="59 record ids for 60 records"):
        train(record_ids=ids[1:])


def test_a_plan_over_budget_is_refused() -> None:
    plan = public().assign(budgets())
    with pytest.raises(PrivacyRefusal, match="60 costs above their budget"):
        train(replace(plan, cost=plan.budget * 1.01))


def test_bad_models_and_losses_are_refused_before_anything_is_released() -> None:
    broken = model()
    with torch.no_grad():
        next(broken.parameters()).fill_(float("nan"))
    with pytest.raises(PrivacyRefusal, match="NaN or infinite parameter"):
        train(module=broken)
    with pytest.raises(PrivacyRefusal, match="BatchNorm"):
        train(module=nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1)))
    with pytest.raises(InputError, match="scalar"):
        train_central(
            model(),
            lambda output, targets: loss(output, targets).mean(),
            data(),
            public().assign(budgets()),
            Seeded(1),
            optimiser=optimiser,
        )
