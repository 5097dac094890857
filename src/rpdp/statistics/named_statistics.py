"""Statistics of declared columns by name: what people ask for, from the names of columns and public facts alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from rpdp.checks import require_count
from rpdp.errors import InputError
from rpdp.setting_fields import nearest
from rpdp.statistics.axis import Axis
from rpdp.statistics.columns import Levels, NumberRange
from rpdp.statistics.statistic import (
    Correlation,
    Histogram,
    Mean,
    Quantiles,
    StandardDeviation,
    Statistic,
    Sum,
    Variance,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rpdp.statistics.columns import Declared

BINS = 12
QUANTILE_BINS = 60
MOST_BINS = 100_000

OfNumbers = Literal["mean", "sd", "variance", "sum", "histogram", "quantiles"]
OF_NUMBERS: tuple[OfNumbers, ...] = ("mean", "sd", "variance", "sum", "histogram", "quantiles")


def axis_of(declared: Mapping[str, Declared], column: str, *, bins: int = BINS) -> Axis:
    """A column as cells: its levels, or so many bins of equal width over its range."""
    facts = _facts(declared, column)
    if isinstance(facts, Levels):
        return Axis(column, facts)
    edges = np.linspace(facts.low, facts.high, require_count("bins", bins, most=MOST_BINS) + 1)
    return Axis(column, facts, tuple(edges.tolist()))


def number_of(declared: Mapping[str, Declared], column: str) -> NumberRange:
    """The range of a column of numbers."""
    facts = _facts(declared, column)
    if isinstance(facts, Levels):
        raise InputError(f"column {column!r} has levels ({', '.join(facts.levels)}); ask for its proportions")
    return facts


def statistics_of(
    declared: Mapping[str, Declared],
    column: str,
    wanted: Sequence[OfNumbers] = ("mean", "sd", "histogram"),
    *,
    by: str | None = None,
    bins: int = BINS,
    quantile_bins: int = QUANTILE_BINS,
    records: float | None = None,
) -> list[Statistic]:
    """What is asked of one column: these statistics of a number, the proportions of levels; by group, if one is named.

    Args:
        declared: What is public of all columns.
        column: The column.
        wanted: What to ask of a number. By group: its mean, variance or standard deviation.
        by: A column whose levels are the groups.
        bins: The bins of a histogram.
        quantile_bins: The bins from which quantiles are read.
        records: The declared number of records, for a sum by "representative".
    """
    if by is not None and isinstance(_facts(declared, by), NumberRange):
        raise InputError(f"by={by!r} is a number; groups are the levels of a column")
    if isinstance(_facts(declared, column), Levels):
        return [proportions(declared, column, by=by)]
    facts, group = number_of(declared, column), None if by is None else axis_of(declared, by)
    made: dict[str, Statistic] = {
        "mean": Mean(column, facts, group),
        "sd": StandardDeviation(column, facts, group),
        "variance": Variance(column, facts, group),
        "sum": Sum(column, facts, records),
        "histogram": Histogram((axis_of(declared, column, bins=bins),)),
        "quantiles": Quantiles(axis_of(declared, column, bins=quantile_bins)),
    }
    for name in wanted:
        if name not in made:
            raise InputError(f"{name!r} is not a statistic of numbers{nearest(name, list(made))}")
    grouped = ("mean", "sd", "variance")
    return [made[name] for name in wanted if by is None or name in grouped]


def proportions(declared: Mapping[str, Declared], column: str, *, by: str | None = None) -> Histogram:
    """The shares of a column's levels, or of its bins; within each group, if one is named."""
    if by is None:
        return Histogram((axis_of(declared, column),), "all")
    return Histogram((axis_of(declared, by), axis_of(declared, column)), "groups")


def correlation_of(declared: Mapping[str, Declared], one: str, other: str) -> Correlation:
    """The correlation of two numbers."""
    return Correlation((one, other), (number_of(declared, one), number_of(declared, other)))


def _facts(declared: Mapping[str, Declared], column: str) -> Declared:
    if column not in declared:
        raise InputError(f"{column!r} is not a declared column{nearest(column, list(declared))}")
    return declared[column]
