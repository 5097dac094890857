"""Statistics in one place: columns, the budgets of their records, and an account that every question is charged to.

    private = PrivateColumns(columns, budgets, known, RequestTerms(1e-5, share=0.1), seed=7)
    mean(private, "age"), mean(private, "age", by="sex"), proportions(private, "type")

Every call is a run with a price of its own: together it takes at most the share of `RequestTerms` of each record's
lifetime budget. What is asked in one `ask` shares one vector and one price.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rpdp.budgets import BudgetTable
from rpdp.checks import require_choice
from rpdp.display import counts_repr
from rpdp.errors import InputError
from rpdp.federation import Policy, Silo
from rpdp.ledger import MemoryAccount
from rpdp.planning.request import REQUEST_ESTIMATORS
from rpdp.statistics.answers import ask, bare_records
from rpdp.statistics.column_source import ColumnSource
from rpdp.statistics.estimate import LEVEL, NoisyEstimate
from rpdp.statistics.inquiry import Inquiry
from rpdp.statistics.named_statistics import (
    BINS,
    QUANTILE_BINS,
    axis_of,
    correlation_of,
    number_of,
)
from rpdp.statistics.named_statistics import proportions as proportions_of
from rpdp.statistics.noise_choice import choose_noise
from rpdp.statistics.statistic import Count, Histogram, Mean, Quantiles, StandardDeviation, Statistic, Sum, Variance

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import ArrayLike

    from rpdp.ledger import Account
    from rpdp.planning import RequestEstimator
    from rpdp.statistics.columns import Columns
    from rpdp.statistics.noise_choice import DeclaredRecords, NoiseChoice, RequestTerms

MOST_RUNS = 1_000_000


class PrivateColumns:
    """Columns whose records have budgets.

    Guarantee: all questions together take at most what each record's account allows; a question is charged before
    anything is released. With a seed everything is a simulation, which protects nobody.

    Args:
        columns: The columns.
        budgets: A lifetime budget for each record: a table, or ε in the order of the columns.
        known: What is publicly known of the records; the noise is chosen from it, and never from real budgets.
        terms: δ and the share of a lifetime budget that each question takes.
        estimator: "representative" or "everyone".
        floor: For "everyone": the least lifetime ε that takes part.
        account: Where questions are charged; by default an account in memory. Real runs need a production ledger.
        policy: The limits of a real run; by default those of each plan.
        seed: Fixes the noise of simulations; None for real runs.
        heads: For real runs: the file of the latest public heads of the ledger.
        level: The level of intervals.
    """

    def __init__(
        self,
        columns: Columns,
        budgets: BudgetTable | ArrayLike,
        known: DeclaredRecords,
        terms: RequestTerms,
        *,
        estimator: RequestEstimator = "representative",
        floor: float | None = None,
        account: Account | None = None,
        policy: Policy | None = None,
        seed: int | None = None,
        heads: str | Path | None = None,
        level: float = LEVEL,
    ) -> None:
        require_choice("estimator", estimator, REQUEST_ESTIMATORS)
        self.columns = columns
        self.budgets = budgets if isinstance(budgets, BudgetTable) else _table(budgets, len(columns))
        self.known, self.terms = known, terms
        self.estimator, self.floor, self.level = estimator, floor, level
        self.account = MemoryAccount(len(columns)) if account is None else account
        self._policy, self._seed, self._heads = policy, seed, heads
        self._asked = 0

    __repr__ = counts_repr

    def __len__(self) -> int:
        return len(self.columns)

    def planned(self, *statistics: Statistic) -> NoiseChoice:
        """The noise of such a question and the intervals to expect, from what is declared; nothing is spent."""
        inquiry = Inquiry(statistics, self.estimator)
        return choose_noise(inquiry, self.known, self.terms, floor=self.floor, level=self.level)

    def ask(self, *statistics: Statistic, run: str = "") -> list[NoisyEstimate]:
        """Ask for several statistics at once, at one price.

        Args:
            statistics: What is asked for.
            run: The id of a real run, by which the ledger knows it.
        """
        inquiry = Inquiry(statistics, self.estimator)
        public = self.terms.plan(inquiry.request, self.planned(*statistics).noise_multiplier)
        policy = replace(Policy.of(public), max_runs=MOST_RUNS) if self._policy is None else self._policy
        silo = Silo(
            "here",
            bare_records(len(self)),
            self.budgets,
            policy=policy,
            account=self.account,
            measured={"statistics": ColumnSource(self.columns)},
        )
        # The noise of a simulation follows from seed and plan: a question that is repeated needs another seed.
        seed = None if self._seed is None else self._seed * MOST_RUNS + self._asked
        if not run and seed is not None:
            run = f"question-{self._asked + 1}"
        self._asked += 1
        answers = ask(inquiry, public, [silo], seed=seed, run=run, heads=self._heads)
        return answers.estimates(level=self.level)


def _table(budgets: ArrayLike, count: int) -> BudgetTable:
    epsilon = np.asarray(budgets, dtype=np.float64)
    if epsilon.shape != (count,):
        raise InputError(f"budgets of shape {epsilon.shape} must be one ε for each of {count:,} records")
    return BudgetTable([str(place) for place in range(count)], epsilon)


def count(private: PrivateColumns, **run: Any) -> NoisyEstimate:
    """How many records are above the floor; "everyone" only."""
    return private.ask(Count(), **run)[0]


def total(private: PrivateColumns, column: str, *, records: float | None = None, **run: Any) -> NoisyEstimate:
    """The sum of a column; "representative" needs the declared number of records."""
    return private.ask(Sum(column, number_of(private.columns.declared, column), records), **run)[0]


def mean(private: PrivateColumns, column: str, **run: Any) -> NoisyEstimate:
    """The mean of a column."""
    return private.ask(Mean(column, number_of(private.columns.declared, column)), **run)[0]


def group_means(private: PrivateColumns, column: str, by: str, **run: Any) -> list[NoisyEstimate]:
    """The mean of a column in each group."""
    declared = private.columns.declared
    return private.ask(Mean(column, number_of(declared, column), axis_of(declared, by)), **run)


def variance(private: PrivateColumns, column: str, **run: Any) -> NoisyEstimate:
    """The variance of a column."""
    return private.ask(Variance(column, number_of(private.columns.declared, column)), **run)[0]


def standard_deviation(private: PrivateColumns, column: str, **run: Any) -> NoisyEstimate:
    """The standard deviation of a column."""
    return private.ask(StandardDeviation(column, number_of(private.columns.declared, column)), **run)[0]


def proportions(private: PrivateColumns, column: str, *, by: str | None = None, **run: Any) -> list[NoisyEstimate]:
    """The shares of a column's levels, within each group if one is named."""
    return private.ask(proportions_of(private.columns.declared, column, by=by), **run)


def histogram(private: PrivateColumns, column: str, *, bins: int = BINS, **run: Any) -> list[NoisyEstimate]:
    """Counts of bins or levels by "everyone", shares by "representative"."""
    return private.ask(Histogram((axis_of(private.columns.declared, column, bins=bins),)), **run)


def contingency_table(private: PrivateColumns, one: str, other: str, **run: Any) -> list[NoisyEstimate]:
    """Counts, or shares, of every pair of levels."""
    declared = private.columns.declared
    return private.ask(Histogram((axis_of(declared, one), axis_of(declared, other))), **run)


def quantiles(
    private: PrivateColumns,
    column: str,
    shares: tuple[float, ...] = (0.25, 0.5, 0.75),
    *,
    bins: int = QUANTILE_BINS,
    **run: Any,
) -> list[NoisyEstimate]:
    """Quantiles of a column, from a histogram of equal bins over its range."""
    return private.ask(Quantiles(axis_of(private.columns.declared, column, bins=bins), shares), **run)


def correlation(private: PrivateColumns, one: str, other: str, **run: Any) -> NoisyEstimate:
    """The correlation of two columns."""
    return private.ask(correlation_of(private.columns.declared, one, other), **run)[0]
