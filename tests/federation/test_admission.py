"""What a silo admits: plans inside its policy, its own model, budgets for exactly its records."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import nn

from rpdp import BudgetTable, PublicPlan
from rpdp.errors import BudgetError, InputError, PlanError, PrivacyRefusal
from rpdp.federation import Policy, Silo, Update, model_fingerprint
from rpdp.ledger import MemoryAccount
from rpdp.planning import MeasureSpec, Request, SiloPlan, assign_allowed
from rpdp.sampling import Secure as SecureRandomness
from rpdp.sampling import Seeded
from rpdp.tasks.models.linear import logistic_regression
from rpdp.training import Records
from tests.federation.world import (
    FEATURES,
    RUN,
    admit,
    admitted,
    announced,
    chosen,
    make_ids,
    make_model,
    make_public,
    make_records,
    make_silo,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from rpdp.planning import Planner, Purpose

PUBLIC = make_public()


class ProductionAccount(MemoryAccount):
    """What a durable ledger will say of itself."""

    is_simulation = False


def assert_untouched(silo: Silo) -> None:
    assert silo.account.status().runs == ()
    with pytest.raises(PrivacyRefusal, match="no run was admitted"):
        silo.answer(announced(PUBLIC, 1))


def test_a_plan_beyond_the_policy_is_refused_and_nothing_reserved() -> None:
    silo = make_silo("a", PUBLIC, policy=replace(Policy.of(PUBLIC), max_rounds=3))
    with pytest.raises(PrivacyRefusal, match="rounds=4"):
        admit(silo, PUBLIC)
    assert_untouched(silo)


@pytest.mark.parametrize("purpose", ["evaluation", "statistics"])
def test_training_cannot_take_what_is_reserved_for_another_purpose_by_its_name(purpose: Purpose) -> None:
    """The plan comes from the server. If its word counted, 0.9 of every budget would be open to training."""
    policy = replace(Policy.of(PUBLIC), reserved={purpose: 0.9})
    silo = Silo("a", make_records(2), BudgetTable(["a", "b"], [1.0, 4.0]), policy=policy)
    with pytest.raises(InputError, match=f"purpose='{purpose}' with request=None"):
        replace(PUBLIC, purpose=purpose)
    asked = PublicPlan.of_request(
        Request("everyone", (MeasureSpec("count", 1),)), noise_multiplier=1.0, delta=1e-3, purpose=purpose
    )
    with pytest.raises(PrivacyRefusal, match=f"purpose='{purpose}' is not one that it answers"):
        admit(silo, asked)
    assert_untouched(silo)
    plan = admit(silo, PUBLIC)
    assert (plan.cost <= 0.1 * silo.budgets.epsilon * (1.0 + 1e-12)).all()


def test_runs_count_against_the_policy() -> None:
    silo = admitted("a", PUBLIC)
    with pytest.raises(PrivacyRefusal, match=r"runs=2 \(policy: at most 1\)"):
        silo.admit("second", PUBLIC, make_model(), lambda output, targets: output[:, 0], Seeded(1))


def test_a_second_run_is_planned_from_what_is_left() -> None:
    policy = replace(Policy.of(PUBLIC), max_runs=3, lifetime_delta=3 * PUBLIC.delta)
    budgets = BudgetTable(["a", "b"], [1.0, 4.0])
    silo = Silo("a", make_records(2), budgets, policy=policy)
    costs = []
    for number in range(3):
        plan = silo.admit(f"run {number}", PUBLIC, make_model(), lambda output, targets: output[:, 0], Seeded(1))
        costs.append(plan.cost)
    assert costs[0] == pytest.approx([1.0, 4.0], rel=0.01)
    assert (np.sum(costs, axis=0) <= budgets.epsilon).all()
    assert (costs[1] < 0.011 * budgets.epsilon).all()


def test_records_whose_delta_is_used_up_sit_out() -> None:
    policy = replace(Policy.of(PUBLIC), max_runs=2)
    silo = make_silo("a", PUBLIC, policy=policy)
    silo.account.reserve("before", admitted("a", PUBLIC).plan, None)
    ours = Silo("a", silo.records, silo.budgets, policy=policy, account=silo.account)
    assert admit(ours, PUBLIC).left_out == len(silo.records)


def test_a_silo_without_a_weight_is_refused() -> None:
    public = replace(PUBLIC, weights={"north": 1.0})
    silo = make_silo("south", public)
    with pytest.raises(PrivacyRefusal, match="no weight for silo 'south', only for north"):
        admit(silo, public)
    assert_untouched(silo)


def test_the_plans_model_must_be_the_model_at_hand() -> None:
    public = replace(PUBLIC, model_fingerprint=model_fingerprint(make_model()))
    assert admitted("a", public).plan.public == public
    silo = make_silo("a", public)
    with pytest.raises(PrivacyRefusal, match="silo a: the plan is for another model"):
        admit(silo, public, model=nn.Linear(FEATURES, 1, bias=False))
    assert_untouched(silo)


def test_fingerprints_of_models_see_the_architecture_and_not_the_values() -> None:
    def fingerprint(*layers: nn.Module, frozen: bool = False) -> str:
        model = nn.Sequential(*layers)
        if frozen:
            next(model.parameters()).requires_grad_(False)
        return model_fingerprint(model)

    original = fingerprint(nn.Linear(3, 2), nn.ReLU())
    assert fingerprint(nn.Linear(3, 2), nn.ReLU()) == original
    others = {
        fingerprint(nn.Linear(3, 3), nn.ReLU()),
        fingerprint(nn.Linear(3, 2), nn.Tanh()),
        fingerprint(nn.Linear(3, 2).double(), nn.ReLU()),
        fingerprint(nn.Linear(3, 2), nn.ReLU(), frozen=True),
    }
    assert len(others | {original}) == 5


@pytest.mark.parametrize(
    ("randomness", "account", "words"),
    [
        (Seeded(1), ProductionAccount(12), "simulation randomness with a production account"),
        (SecureRandomness(), MemoryAccount(12), "production randomness with a simulation account"),
    ],
    ids=["seeded in production", "secure in a simulation"],
)
def test_seeds_and_production_never_meet(
    randomness: Seeded | SecureRandomness, account: MemoryAccount, words: str
) -> None:
    silo = make_silo("a", PUBLIC, account=account)
    with pytest.raises(PrivacyRefusal, match=words):
        admit(silo, PUBLIC, randomness=randomness)
    assert_untouched(silo)


def production_silo(planner: Planner = assign_allowed) -> Silo:
    budgets = BudgetTable(make_ids(12, "a"), np.full(12, 3.0))
    account = ProductionAccount(12)
    return Silo("a", make_records(12), budgets, policy=Policy.of(PUBLIC), account=account, planner=planner)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda plan: replace(plan, q=np.ones(12)), "lower costs than its probabilities have"),
        (lambda plan: replace(plan, public=replace(PUBLIC, noise_multiplier=0.1)), "other settings"),
        (lambda plan: replace(plan, ids=plan.ids[::-1]), "other records"),
    ],
    ids=["cheaper than true", "less noise", "other order"],
)
def test_what_a_planner_made_is_checked(made: Callable[[SiloPlan], SiloPlan], words: str) -> None:
    silo = production_silo(lambda *arguments: made(assign_allowed(*arguments)))
    with pytest.raises(PrivacyRefusal, match=words):
        admit(silo, PUBLIC, randomness=SecureRandomness())
    assert_untouched(silo)


def test_production() -> None:
    """Secure randomness and a production account: fresh noise in every silo, the same bytes for the same round."""
    silos = [production_silo() for _ in range(2)]
    for silo in silos:
        admit(silo, PUBLIC, randomness=SecureRandomness())
    first, second = (silo.answer(announced(PUBLIC, 1)) for silo in silos)
    assert isinstance(first, Update)
    assert isinstance(second, Update)
    assert not torch.equal(first.change, second.change)
    again = silos[0].answer(announced(PUBLIC, 1))
    assert isinstance(again, Update)
    assert again.to_bytes() == first.to_bytes()


def test_the_model_at_hand_is_not_changed() -> None:
    model = make_model()
    silo = make_silo("a", PUBLIC, q=1.0)
    admit(silo, PUBLIC, model=model)
    assert silo.answer(announced(PUBLIC, 1)) is not None
    assert all((value == 0.0).all() for value in model.parameters())


def test_a_model_that_is_not_fit_for_private_training_is_refused_before_anything_is_reserved() -> None:
    silo = make_silo("a", PUBLIC)
    with pytest.raises(PrivacyRefusal, match="BatchNorm"):
        admit(silo, PUBLIC, model=nn.Sequential(nn.BatchNorm1d(FEATURES), nn.Linear(FEATURES, 1)))
    with pytest.raises(InputError, match="silo a: the loss returned a scalar"):
        admit(silo, PUBLIC, loss=lambda output, targets: output.mean())
    assert_untouched(silo)


# Budgets and records

IDS = make_ids(3)
EPSILON = [1.0, 2.0, 3.0]


def matched(ids: list[str], epsilon: list[float], record_ids: list[str] | None = None) -> Silo:
    return Silo("a", make_records(3), BudgetTable(ids, epsilon), policy=Policy.of(PUBLIC), record_ids=record_ids or IDS)


def test_budgets_in_another_order_are_matched_by_id() -> None:
    silo = matched(["r2", "r0", "r1"], [3.0, 1.0, 2.0])
    assert silo.budgets.epsilon.tolist() == EPSILON
    plan = admit(silo, PUBLIC)
    assert plan.ids.to_pylist() == IDS
    assert plan.budget.tolist() == EPSILON
    assert (np.diff(plan.q) > 0).all()


@pytest.mark.parametrize(
    ("ids", "record_ids", "words"),
    [
        (["r0", "r1"], IDS, "silo a: 1 of 3 records have no budget, the first is 'r2'"),
        (["r0", "r1", "x"], IDS, "silo a: 1 of 3 records have no budget, the first is 'r2'"),
        (["r0", "r1", "r2", "r9"], IDS, "silo a: 1 budgets belong to no record, the first is 'r9'"),
        (["r0", "r1", "r2"], ["r0", "r1", "r1"], "silo a: record id 'r1' occurs in row 2 and again in row 3"),
        (["r0", "r1", "r2"], ["r0", "r1"], "silo a: 2 record ids for 3 records"),
    ],
    ids=["missing", "other", "spare", "duplicate", "too few ids"],
)
def test_budgets_must_fit_the_records(ids: list[str], record_ids: list[str], words: str) -> None:
    with pytest.raises(InputError, match=words) as refusal:
        matched(ids, [1.0] * len(ids), record_ids)
    assert isinstance(refusal.value, BudgetError) or "record ids" in words


@pytest.mark.parametrize("count", [2, 4])
def test_without_ids_there_must_be_as_many_budgets_as_records(count: int) -> None:
    with pytest.raises(PlanError, match=f"silo a: 3 records and {count} budgets"):
        Silo("a", make_records(3), BudgetTable(make_ids(count), [1.0] * count), policy=Policy.of(PUBLIC))


def test_no_record_and_no_name_are_refused() -> None:
    budgets = BudgetTable(["x"], [1.0])
    with pytest.raises(InputError, match="silo a: it has no records"):
        Silo("a", Records.of(torch.zeros(0, FEATURES), torch.zeros(0)), budgets, policy=Policy.of(PUBLIC))
    with pytest.raises(InputError, match="needs a name"):
        Silo("", make_records(1), budgets, policy=Policy.of(PUBLIC))


def test_one_record_is_enough() -> None:
    silo = Silo("a", make_records(1), BudgetTable(["x"], [2.0]), policy=Policy.of(PUBLIC))
    plan = admit(silo, PUBLIC)
    assert 0.0 < plan.q[0] < 1.0
    update = silo.answer(announced(PUBLIC, 1))
    assert update is not None
    assert bool((update.change != 0.0).all())


def test_a_silo_in_which_nobody_may_be_drawn_still_releases_noise() -> None:
    """All budgets below what the plan costs: the server cannot tell from an update whether records take part."""
    silo = Silo(
        "a", make_records(5), BudgetTable(make_ids(5), [1e-9] * 5), policy=Policy.of(PUBLIC), planner=chosen(0.0)
    )
    assert admit(silo, PUBLIC).left_out == 5
    update = silo.answer(announced(PUBLIC, 1))
    assert update is not None
    assert update.change.shape == (FEATURES + 1,)
    assert bool((update.change != 0.0).all())
    assert silo.account.status().runs[0].run == RUN


def test_another_number_of_features_is_noticed_at_admission() -> None:
    silo = make_silo("a", PUBLIC)
    with pytest.raises((InputError, RuntimeError)):
        admit(silo, PUBLIC, model=logistic_regression(FEATURES + 1))
    assert_untouched(silo)
