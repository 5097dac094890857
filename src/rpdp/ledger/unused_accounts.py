"""Accounts that nothing has been booked in: what a study can plan with, before there is a ledger."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rpdp.ledger.memory import MemoryAccount
from rpdp.planning import Allowance, FittingRuns, LifetimeAllowances, fitting_runs

if TYPE_CHECKING:
    from rpdp.budgets import AccountKind, BudgetTable
    from rpdp.planning import PublicPlan


def unused_accounts(
    budgets: BudgetTable,
    allowance: Allowance,
    *,
    account: AccountKind,
    lifetime_delta: float,
    silos_per_person: int = 1,
) -> LifetimeAllowances:
    """What one run with this allowance, and all such runs, may take of new accounts for these budgets.

    Args:
        budgets: The lifetime budgets.
        allowance: The allowance of one run.
        account: The kind of account: "renyi" or "sums".
        lifetime_delta: The δ over all runs for records without a δ of their own.
        silos_per_person: In how many silos of the federation a person may ever have an account.
    """
    unused = MemoryAccount(len(budgets), account=account, silos_per_person=silos_per_person)
    return LifetimeAllowances(
        one_run=unused.left(budgets, lifetime_delta, allowance),
        left=unused.left(budgets, lifetime_delta, replace(allowance, share=1.0)),
    )


def runs_that_fit(
    public: PublicPlan,
    budgets: BudgetTable,
    *,
    share: float,
    account: AccountKind = "renyi",
    lifetime_delta: float | None = None,
    silos_per_person: int = 1,
) -> FittingRuns:
    """How many runs of a plan these lifetime budgets pay for, if each run takes at most a share of them.

    Args:
        public: The plan of every run.
        budgets: The lifetime budgets, declared or real. A number of runs chosen from real budgets is not covered.
        share: The largest share of a lifetime budget that one run may take.
        account: The kind of account: "renyi" or "sums".
        lifetime_delta: The δ over all runs for records without one of their own; by default the δ of the plan.
        silos_per_person: In how many silos of the federation a person may ever have an account.

    >>> from rpdp import BudgetTable, PublicPlan, Schedule
    >>> schedule = Schedule(15, 50, participation=0.5)
    >>> public = PublicPlan(
    ...     schedule, noise_multiplier=10.748, delta=1e-4, clip_norm=1.0, normaliser=64.0, weights=1.0
    ... )
    >>> found = runs_that_fit(public, BudgetTable(["a", "b"], [1.0, 5.0]), share=0.05)
    >>> found.runs_in_full, found.q.round(3).tolist()
    (20, [0.035, 0.143])
    """
    kept = public.delta if lifetime_delta is None else lifetime_delta
    accounts = unused_accounts(
        budgets, Allowance(share=share), account=account, lifetime_delta=kept, silos_per_person=silos_per_person
    )
    distinct, records = accounts.distinct()
    return fitting_runs(public, distinct, records=records)
