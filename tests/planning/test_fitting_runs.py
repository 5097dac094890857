"""How many runs of one kind fit into accounts: what is counted is what accounts admit, run after run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from rpdp import BudgetTable, PublicPlan, Schedule, runs_that_fit
from rpdp.ledger import MemoryAccount, unused_accounts
from rpdp.planning import (
    LEAST_SHARE,
    LEAST_SIGNAL,
    Allowance,
    FittingRuns,
    assign_allowed,
    fitting_runs,
    floor_of_signal,
    signal_of_run,
    signal_of_silos,
)

if TYPE_CHECKING:
    from rpdp.budgets import AccountKind

DELTA = 1e-4
KINDS = pytest.mark.parametrize("account", ["sums", "renyi"])


def table(epsilon: list[float], **columns: Any) -> BudgetTable:
    return BudgetTable([f"r{number}" for number in range(len(epsilon))], epsilon, **columns)


def admitted(
    public: PublicPlan, budgets: BudgetTable, account: AccountKind, allowance: Allowance, most: int = 60
) -> Any:
    """The probabilities of the runs that an account admits one after another; a row for each run."""
    kept = MemoryAccount(len(budgets), account=account)
    rows = []
    for number in range(most):
        plan = assign_allowed(public, budgets.ids, kept.left(budgets, DELTA, allowance))
        kept.reserve(f"run {number}", plan, None, allowance)
        rows.append(plan.q)
    return np.array(rows)


@KINDS
@pytest.mark.parametrize("share", [1.0, 0.37, 0.2, 0.03])
def test_the_count_is_what_an_account_admits(account: AccountKind, share: float, public: PublicPlan) -> None:
    """Deterministic. Budgets from too small for a run to larger than a run can use up."""
    budgets = table([0.01, 0.5, 1.0, 2.0, 8.0, 60.0])
    allowance = Allowance(share=share)
    found = fitting_runs(public, unused_accounts(budgets, allowance, account=account, lifetime_delta=DELTA))
    seen = admitted(public, budgets, account, allowance)
    in_full = ((seen >= found.q) & (found.q > 0.0)).sum(axis=0)
    always = found.q == 1.0  # drawn in every step, such a record may be so from a smaller δ as well
    np.testing.assert_array_equal(np.minimum(found.in_full, len(seen))[~always], in_full[~always])
    assert (np.minimum(found.in_full, len(seen)) <= in_full).all()
    for run in range(1, len(seen) + 1):
        # Of a run after the one that takes the rest, only crumbs of the planner's slack are not counted.
        counted, admitted_q = found.probabilities(run)[~always], seen[run - 1][~always]
        np.testing.assert_allclose(counted, admitted_q, atol=0.1 * found.q.max())
        assert found.expected_batch(run) <= seen[run - 1].sum() * (1.0 + 1e-9)
    assert (found.last_q <= found.q).all()


@KINDS
def test_never_more_than_fit(account: AccountKind, public: PublicPlan) -> None:
    """With a reserve, a ceiling and own δ; and the first run that is not counted does not fit in full."""
    budgets = table([0.5, 1.0, 4.0, 8.0], delta=np.array([1e-5, 1e-4, 5e-5, 1e-4]))
    allowance = Allowance(share=0.2, reserved={"evaluation": 0.3}, max_epsilon=1.0)
    found = fitting_runs(public, unused_accounts(budgets, allowance, account=account, lifetime_delta=DELTA))
    seen = admitted(public, budgets, account, allowance)
    in_full = ((seen >= found.q) & (found.q > 0.0)).sum(axis=0)
    np.testing.assert_array_equal(np.minimum(found.in_full, len(seen)), in_full)
    assert found.runs_in_full == 3  # of 70 % of the budgets, a fifth each


def test_the_table_of_a_lifetime() -> None:
    """privacy.md, section 7: q per run at the MNIST setting, within 2 %; and all of these runs fit in full."""
    public = PublicPlan(
        Schedule(15, 50, participation=0.5),
        noise_multiplier=10.748,
        delta=1e-4,
        clip_norm=1.0,
        normaliser=64.0,
        weights=1.0,
    )
    expected = {
        "sums": {5: (0.0336, 0.143, 0.265), 20: (0.0085, 0.037, 0.069), 100: (0.0017, 0.0074, 0.014)},
        "renyi": {5: (0.0689, 0.280, 0.492), 20: (0.0350, 0.143, 0.252), 100: (0.0158, 0.064, 0.114)},
    }
    kinds: tuple[AccountKind, ...] = ("sums", "renyi")
    for account in kinds:
        for runs, q in expected[account].items():
            found = runs_that_fit(public, table([1.0, 5.0, 10.0]), share=1.0 / runs, account=account)
            np.testing.assert_allclose(found.q, q, rtol=0.02)
            assert found.runs_in_full == runs
            assert found.in_full.tolist() == [runs] * 3


def test_equal_accounts_are_one_row(public: PublicPlan) -> None:
    budgets = table([2.0, 1.0, 2.0, 2.0])
    found = runs_that_fit(public, budgets, share=0.1)
    assert (found.lifetime.tolist(), found.records.tolist()) == ([1.0, 2.0], [1, 3])
    one_by_one = fitting_runs(
        public, unused_accounts(budgets, Allowance(share=0.1), account="renyi", lifetime_delta=DELTA)
    )
    assert found.signal_to_noise() == pytest.approx(one_by_one.signal_to_noise(), rel=1e-12)
    own = runs_that_fit(public, table([2.0, 2.0], delta=np.array([1e-4, 1e-6])), share=0.1, account="sums")
    assert len(own) == 2


def made(**changes: Any) -> FittingRuns:
    values: dict[str, Any] = {
        "lifetime": np.array([1.0, 2.0, 3.0]),
        "records": np.array([10, 20, 5]),
        "q": np.array([0.1, 0.2, 0.0]),
        "cost": np.array([0.1, 0.1, 0.0]),
        "in_full": np.array([2, 4, 0]),
        "last_q": np.array([0.05, 0.0, 0.0]),
        "noise_multiplier": 2.0,
    }
    return FittingRuns(**{**values, **changes})


def test_the_signal_falls_from_run_to_run() -> None:
    found = made()
    assert [found.signal_to_noise(run) for run in range(1, 7)] == pytest.approx([2.5, 2.5, 2.25, 2.0, 0.0, 0.0])
    assert (found.runs_in_full, found.runs_in_part) == (2, 4)
    assert [found.runs_with_signal(least) for least in (3.0, 2.5, 2.1, 1.0)] == [0, 2, 3, 4]


def test_nobody_can_take_part() -> None:
    found = made(q=np.zeros(3), in_full=np.zeros(3, dtype=np.int64), last_q=np.zeros(3))
    assert (found.runs_in_full, found.runs_in_part, found.signal_to_noise()) == (0, 0, 0.0)
    assert found.runs_with_signal(1.0) == found.runs_with_signal(0.0) == 0


def test_the_signal_of_a_run_and_of_silos() -> None:
    schedule = Schedule(6, 5, participations=4)
    assert signal_of_run(0.5, schedule) == pytest.approx(0.5 * 20**0.5)
    assert signal_of_silos([3.0, 4.0]) == 5.0
    assert (LEAST_SIGNAL, LEAST_SHARE) == (1.0, 0.1)
    assert [floor_of_signal(unused) for unused in (0.0, 10.0, 100.0)] == [1.0, 1.0, 10.0]


def test_what_is_left_is_what_counts(public: PublicPlan) -> None:
    """Half of an account gives half of the runs, with the probability of an unused one."""
    budgets = table([1.0, 4.0])
    whole = unused_accounts(budgets, Allowance(share=0.1), account="renyi", lifetime_delta=DELTA)
    half = replace(whole, left=replace(whole.left, amount=0.5 * whole.left.amount))
    before, after = fitting_runs(public, whole), fitting_runs(public, half)
    assert (before.runs_in_full, after.runs_in_full) == (10, 5)
    np.testing.assert_array_equal(after.q, before.q)


@KINDS
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_the_rest_of_used_up_accounts_is_below_the_floor(
    account: AccountKind, share: float, public: PublicPlan
) -> None:
    """What planning leaves of an account that a few runs used up pays for less than a tenth of the signal."""
    found = runs_that_fit(public, table([1.0, 2.0, 5.0]), share=share, account=account)
    assert found.runs_in_full == round(1.0 / share)
    assert found.signal_to_noise(found.runs_in_full + 1) < LEAST_SHARE * found.signal_to_noise()
