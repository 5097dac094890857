"""Privacy budgets: the table of what each record allows, and budget distributions for simulations."""

from __future__ import annotations

from rpdp.budgets.account_kinds import ACCOUNT_KINDS, MOST_SILOS_PER_PERSON, AccountKind
from rpdp.budgets.distributions import (
    AUTHORS,
    PAPER,
    PARAMETER_SETS,
    BoundedMixGauss,
    BoundedPareto,
    Distribution,
    ThreeLevels,
    distribution,
)
from rpdp.budgets.table import BudgetTable, RecordBudgets

__all__ = [
    "ACCOUNT_KINDS",
    "AUTHORS",
    "MOST_SILOS_PER_PERSON",
    "PAPER",
    "PARAMETER_SETS",
    "AccountKind",
    "BoundedMixGauss",
    "BoundedPareto",
    "BudgetTable",
    "Distribution",
    "RecordBudgets",
    "ThreeLevels",
    "distribution",
]
