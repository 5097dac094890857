"""Privacy budgets: the table of what each record allows, and budget distributions for simulations."""

from __future__ import annotations

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
    "AUTHORS",
    "PAPER",
    "PARAMETER_SETS",
    "BoundedMixGauss",
    "BoundedPareto",
    "BudgetTable",
    "Distribution",
    "RecordBudgets",
    "ThreeLevels",
    "distribution",
]
