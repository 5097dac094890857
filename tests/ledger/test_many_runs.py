"""How many runs a lifetime pays for: the steward's trial, each step priced again by another accountant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from scipy.stats import norm

from rpdp import BudgetTable, PublicPlan, Schedule, calibrate_noise
from rpdp.ledger import Ledger
from rpdp.planning import Allowance, assign_allowed
from tests.ledger import small

if TYPE_CHECKING:
    from pathlib import Path

    from rpdp.budgets import AccountKind

EPSILON, DELTA = 5.0, 1e-3
"""The lifetime budget of everybody."""

SCHEDULE = Schedule(rounds=6, local_steps=5, participations=4)
STEPS = 4 * 5
"""Noisy steps of one run that see a record with q = 1: exactly four joined rounds of five."""


def plan() -> PublicPlan:
    """A run that costs (1, 1e-4) alone at q = 1."""
    sigma = calibrate_noise(SCHEDULE, epsilon=1.0, delta=1e-4)
    return PublicPlan(SCHEDULE, noise_multiplier=sigma, delta=1e-4, clip_norm=1.0, normaliser=10.0, weights=1.0)


def whole_runs(directory: Path, account: AccountKind, most: int) -> int:
    """How many runs draw every record into every step, until the ledger refuses the next."""
    table, public = BudgetTable(["a", "b", "c"], [EPSILON] * 3), plan()
    allowance = Allowance(share=0.2)
    path = directory / f"{account}.db"
    made = Ledger.create(path, table, kind="production", lifetime_delta=DELTA, account=account)
    with made as ledger:
        for number in range(most):
            silo_plan = assign_allowed(public, table.ids, ledger.left(table, DELTA, allowance))
            if (silo_plan.q < 1.0).any():
                assert ledger.verify().findings == ()
                return number
            ledger.reserve(f"run-{number}", silo_plan, None, allowance)
            ledger.charge(f"run-{number}", 1, lambda: True, lambda: (1, 2, 4, 6))
    raise AssertionError(f"more than {most} runs")


def joint_epsilon(runs: int) -> float:
    """ε of all runs together at the lifetime δ: privacy losses of the same steps, composed by dp_accounting."""
    accountant = PLDAccountant()
    accountant.compose(SelfComposedDpEvent(GaussianDpEvent(plan().noise_multiplier), runs * STEPS))
    return float(accountant.get_epsilon(DELTA))


def exact_delta(runs: int, epsilon: float) -> float:
    """δ of all runs together in closed form: a Gaussian of sensitivity √(steps)/σ (Balle & Wang 2018)."""
    mu = np.sqrt(runs * STEPS) / plan().noise_multiplier
    return float(norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))


@pytest.fixture(scope="module")
def admitted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    directory = tmp_path_factory.mktemp("ledgers")
    return {account: whole_runs(directory, account, 40) for account in ("sums", "renyi")}


def test_a_renyi_account_admits_more_than_three_times_as_many_runs(admitted: dict[str, int]) -> None:
    assert admitted["sums"] == 5
    assert admitted["renyi"] >= 17


def test_all_runs_together_stay_within_the_lifetime_budget(admitted: dict[str, int]) -> None:
    """After every run, by two accountants that share nothing with the ledger.

    The control: with a third more runs than the filter admits, both say that the budget is exceeded.
    """
    for runs in range(1, admitted["renyi"] + 1):
        assert joint_epsilon(runs) <= EPSILON
        assert exact_delta(runs, EPSILON) <= DELTA
    beyond = admitted["renyi"] * 4 // 3
    assert joint_epsilon(beyond) > EPSILON
    assert exact_delta(beyond, EPSILON) > DELTA


def test_accounts_without_a_run_have_neither_its_epsilon_nor_its_delta(tmp_path: Path) -> None:
    table = small.budgets()
    with small.make(tmp_path, table) as ledger:
        ledger.reserve("run", small.plan(ledger, table), None)
        balances = ledger.balances(table.ids)
        assert (balances.booked_delta > 0).all()
        without = ledger.runs.accounts_without(["run"], balances)
        assert not without.booked.any()
        assert not without.booked_delta.any()
