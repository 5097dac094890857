"""Statistics with personal budgets: counts, means, histograms and more, from noisy sums that silos release once.

`Inquiry` puts statistics together into a request; `ColumnSource` answers it over a silo's columns; the inquiry turns
the released sums into `NoisyEstimate`s with intervals (privacy.md, section 9). For a released model `plan_evaluation`
makes the plan, `ModelCells` runs the model on held-out records, and `evaluate` turns sums into metrics. Names load on
first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpdp.lazy import lazy_names

if TYPE_CHECKING:
    from rpdp.statistics.answers import Answers as Answers
    from rpdp.statistics.answers import ask as ask
    from rpdp.statistics.axis import Axis as Axis
    from rpdp.statistics.budget_check import BudgetCheck as BudgetCheck
    from rpdp.statistics.budget_check import check_budgets as check_budgets
    from rpdp.statistics.column_source import ColumnSource as ColumnSource
    from rpdp.statistics.columns import Columns as Columns
    from rpdp.statistics.columns import Levels as Levels
    from rpdp.statistics.columns import NumberRange as NumberRange
    from rpdp.statistics.columns import declared_columns as declared_columns
    from rpdp.statistics.estimate import NoisyEstimate as NoisyEstimate
    from rpdp.statistics.evaluation_cells import ModelCells as ModelCells
    from rpdp.statistics.evaluation_measures import EvaluationMeasure as EvaluationMeasure
    from rpdp.statistics.evaluation_outlook import DeclaredTest as DeclaredTest
    from rpdp.statistics.evaluation_outlook import EvaluationOutlook as EvaluationOutlook
    from rpdp.statistics.evaluation_outlook import plan_evaluation as plan_evaluation
    from rpdp.statistics.evaluation_results import PrivateScore as PrivateScore
    from rpdp.statistics.evaluation_results import evaluate as evaluate
    from rpdp.statistics.expected_error import expected_estimates as expected_estimates
    from rpdp.statistics.inquiry import Inquiry as Inquiry
    from rpdp.statistics.named_statistics import axis_of as axis_of
    from rpdp.statistics.named_statistics import statistics_of as statistics_of
    from rpdp.statistics.noise_choice import DeclaredRecords as DeclaredRecords
    from rpdp.statistics.noise_choice import NoiseChoice as NoiseChoice
    from rpdp.statistics.noise_choice import RequestTerms as RequestTerms
    from rpdp.statistics.noise_choice import choose_noise as choose_noise
    from rpdp.statistics.noisy_sums import NoisySums as NoisySums
    from rpdp.statistics.private_columns import PrivateColumns as PrivateColumns
    from rpdp.statistics.private_columns import contingency_table as contingency_table
    from rpdp.statistics.private_columns import correlation as correlation
    from rpdp.statistics.private_columns import count as count
    from rpdp.statistics.private_columns import group_means as group_means
    from rpdp.statistics.private_columns import histogram as histogram
    from rpdp.statistics.private_columns import mean as mean
    from rpdp.statistics.private_columns import proportions as proportions
    from rpdp.statistics.private_columns import quantiles as quantiles
    from rpdp.statistics.private_columns import standard_deviation as standard_deviation
    from rpdp.statistics.private_columns import total as total
    from rpdp.statistics.private_columns import variance as variance
    from rpdp.statistics.statistic import Correlation as Correlation
    from rpdp.statistics.statistic import Count as Count
    from rpdp.statistics.statistic import Histogram as Histogram
    from rpdp.statistics.statistic import Mean as Mean
    from rpdp.statistics.statistic import Quantiles as Quantiles
    from rpdp.statistics.statistic import StandardDeviation as StandardDeviation
    from rpdp.statistics.statistic import Statistic as Statistic
    from rpdp.statistics.statistic import Sum as Sum
    from rpdp.statistics.statistic import Variance as Variance

_STATISTICS = "rpdp.statistics.statistic"
_HOME_OF = {
    "Answers": "rpdp.statistics.answers",
    "ask": "rpdp.statistics.answers",
    "PrivateColumns": "rpdp.statistics.private_columns",
    "count": "rpdp.statistics.private_columns",
    "total": "rpdp.statistics.private_columns",
    "mean": "rpdp.statistics.private_columns",
    "group_means": "rpdp.statistics.private_columns",
    "variance": "rpdp.statistics.private_columns",
    "standard_deviation": "rpdp.statistics.private_columns",
    "proportions": "rpdp.statistics.private_columns",
    "histogram": "rpdp.statistics.private_columns",
    "contingency_table": "rpdp.statistics.private_columns",
    "quantiles": "rpdp.statistics.private_columns",
    "correlation": "rpdp.statistics.private_columns",
    "statistics_of": "rpdp.statistics.named_statistics",
    "axis_of": "rpdp.statistics.named_statistics",
    "Axis": "rpdp.statistics.axis",
    "BudgetCheck": "rpdp.statistics.budget_check",
    "ColumnSource": "rpdp.statistics.column_source",
    "Columns": "rpdp.statistics.columns",
    "Correlation": _STATISTICS,
    "Count": _STATISTICS,
    "DeclaredRecords": "rpdp.statistics.noise_choice",
    "DeclaredTest": "rpdp.statistics.evaluation_outlook",
    "EvaluationMeasure": "rpdp.statistics.evaluation_measures",
    "EvaluationOutlook": "rpdp.statistics.evaluation_outlook",
    "Histogram": _STATISTICS,
    "Inquiry": "rpdp.statistics.inquiry",
    "Levels": "rpdp.statistics.columns",
    "Mean": _STATISTICS,
    "ModelCells": "rpdp.statistics.evaluation_cells",
    "NoiseChoice": "rpdp.statistics.noise_choice",
    "NoisyEstimate": "rpdp.statistics.estimate",
    "NoisySums": "rpdp.statistics.noisy_sums",
    "NumberRange": "rpdp.statistics.columns",
    "PrivateScore": "rpdp.statistics.evaluation_results",
    "Quantiles": _STATISTICS,
    "RequestTerms": "rpdp.statistics.noise_choice",
    "StandardDeviation": _STATISTICS,
    "Statistic": _STATISTICS,
    "Sum": _STATISTICS,
    "Variance": _STATISTICS,
    "check_budgets": "rpdp.statistics.budget_check",
    "choose_noise": "rpdp.statistics.noise_choice",
    "declared_columns": "rpdp.statistics.columns",
    "evaluate": "rpdp.statistics.evaluation_results",
    "expected_estimates": "rpdp.statistics.expected_error",
    "plan_evaluation": "rpdp.statistics.evaluation_outlook",
}

__all__ = [*_HOME_OF]
__getattr__ = lazy_names(__name__, _HOME_OF)
