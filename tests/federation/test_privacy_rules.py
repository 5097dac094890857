"""Rules of privacy.md that a seeded bug has shown to need a test of their own: a silo and the public plan."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from rpdp import BudgetTable
from rpdp.errors import PrivacyRefusal
from rpdp.federation import Policy, Server, Silo
from rpdp.ledger import MemoryAccount
from rpdp.planning import assign_allowed
from rpdp.sampling import Secure
from tests.federation.world import (
    FEATURES,
    RUN,
    Spy,
    admit,
    admitted,
    announced,
    make_ids,
    make_public,
    make_records,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from rpdp import PublicPlan, SiloPlan
    from rpdp.planning import Allowances, Planner


class ProductionAccount(MemoryAccount):
    """An account of real runs, as far as a silo can tell."""

    is_simulation = False


def test_local_steps_release_by_the_public_settings(spy: Spy) -> None:
    """Nobody is drawn, so that each step releases noise alone: of deviation σ L / B, and fresh.

    2,000 coordinates, seed 1: the deviation to 8 %, five standard errors.
    """
    public = make_public(4, 100, noise_multiplier=3.0, clip_norm=0.5, normaliser=7.0)
    silo = admitted("a", public, q=0.0)
    for number in range(1, 5):
        silo.answer(announced(public, number))
    released = np.array(spy.take())
    assert released.shape == (400, FEATURES + 1)
    assert abs(released.std() / (1.5 / 7.0) - 1.0) < 0.08
    assert len(np.unique(released, axis=0)) == 400


def test_a_round_sat_out_is_never_trained_however_often_it_is_announced() -> None:
    """With real coins: a silo that flips again would join at the second or third announcement."""
    public = make_public(8, 1, participation=0.5)
    silo = admitted("a", public, account=ProductionAccount(12), randomness=Secure(), planner=assign_allowed)
    first = [silo.answer(announced(public, number)) for number in range(1, 9)]
    for number, answer in enumerate(first, start=1):
        for _ in range(30):
            again = silo.answer(announced(public, number))
            assert (again is None) == (answer is None)


def test_a_round_without_updates_is_over() -> None:
    """To announce it again would raise the true rate of participation."""
    public = make_public(3, 1, participation=0.1)
    server = Server(RUN, public, torch.zeros(FEATURES + 1), ["a", "b"])
    for number in (1, 2, 3):
        assert {told.round for told in server.announce().values()} == {number}
        assert server.collect([]) == {}
        assert server.round == number
    assert server.is_done


@pytest.mark.parametrize("share", [0.996, 0.999999])
def test_a_planner_cannot_understate_by_a_little(share: float) -> None:
    """A probability has one price, so nothing below it passes. (Seen: half a percent was let through.)"""
    public = make_public()

    def planner(asked: PublicPlan, ids: pa.ChunkedArray, left: Allowances) -> SiloPlan:
        plan = assign_allowed(asked, ids, left)
        return replace(plan, cost=plan.cost * share)

    def silo(made: Planner) -> Silo:
        budgets = BudgetTable(make_ids(12, "a"), np.linspace(0.5, 3.0, 12))
        account = ProductionAccount(12)
        return Silo("a", make_records(12), budgets, policy=Policy.of(public), account=account, planner=made)

    with pytest.raises(PrivacyRefusal, match="lower costs than its probabilities have"):
        admit(silo(planner), public, randomness=Secure())
    admit(silo(assign_allowed), public, randomness=Secure())


def test_one_record_below_its_price_is_enough_to_refuse_a_plan() -> None:
    public = make_public()

    def planner(asked: PublicPlan, ids: pa.ChunkedArray, left: Allowances) -> SiloPlan:
        plan = assign_allowed(asked, ids, left)
        return replace(plan, q=np.append(plan.q[:-1], 1.0))

    budgets = BudgetTable(make_ids(12, "a"), np.full(12, 3.0))
    silo = Silo(
        "a", make_records(12), budgets, policy=Policy.of(public), account=ProductionAccount(12), planner=planner
    )
    with pytest.raises(PrivacyRefusal, match="lower costs than its probabilities have"):
        admit(silo, public, randomness=Secure())
    assert silo.account.status().runs == ()
