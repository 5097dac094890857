"""Records with budgets, every statistic of them, and simulated releases: exact sums, weights, noise; no silos."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rpdp.statistics import (
    Axis,
    Columns,
    ColumnSource,
    Correlation,
    Count,
    Histogram,
    Inquiry,
    Mean,
    Quantiles,
    StandardDeviation,
    Sum,
    Variance,
)
from rpdp.statistics.inquiry import noise_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rpdp.federation.cells import Cells
    from rpdp.planning import Request, RequestEstimator
    from rpdp.statistics import Statistic
    from rpdp.statistics.estimate import Intervals

    Floats = NDArray[np.float64]

RANGES = {"age": (40.0, 100.0), "pressure": (90.0, 230.0)}
LEVELS = {"sex": ("F", "M"), "type": ("a", "b", "c")}
_CHUNK = 250


@dataclass(frozen=True)
class World:
    """Records and their weights.

    Attributes:
        arrays: The values.
        weights: What records pay for, as weights of "representative".
        takes_part: Which records are above the floor of "everyone".
        is_correlated: Whether older records allow more.
    """

    arrays: dict[str, NDArray[np.generic]]
    weights: Floats
    takes_part: NDArray[np.bool_]
    is_correlated: bool

    @classmethod
    def make(cls, records: int = 1000, *, is_correlated: bool = False, seed: int = 1) -> World:
        """70 % of the records allow little, 20 % more, 10 % much."""
        rng = np.random.default_rng(seed)
        age = np.clip(rng.normal(70.0, 12.0, records), *RANGES["age"])
        pressure = np.clip(160.0 + 0.9 * (age - 70.0) + rng.normal(0.0, 25.0, records), *RANGES["pressure"])
        sex = rng.choice(LEVELS["sex"], records, p=[0.45, 0.55])
        kind = rng.choice(LEVELS["type"], records, p=[0.5, 0.3, 0.2])
        counts = np.rint(np.array([0.7, 0.2, 0.1]) * records).astype(int)
        weights = rng.permutation(np.repeat([0.05, 0.3, 1.0], counts))
        if is_correlated:
            # Of the third class are mostly old records with high budgets, so that every statistic depends on budgets.
            order = np.argsort(age + rng.normal(0.0, 2.0, records))
            weights = np.empty(records)
            weights[order] = np.repeat([0.05, 0.3, 1.0], counts)
            kind = np.where((weights > 0.1) & (rng.random(records) < 0.6), "c", kind)
            sex = np.where((weights > 0.1) & (rng.random(records) < 0.5), "F", sex)
        arrays = {"age": age, "pressure": pressure, "sex": sex, "type": kind}
        return cls(arrays, weights, weights > 0.1, is_correlated)

    @property
    def columns(self) -> Columns:
        """The columns of all records."""
        return Columns.of_arrays(self.arrays, ranges=RANGES, levels=LEVELS)

    def of(self, name: str, part: NDArray[np.bool_]) -> NDArray[np.generic]:
        """The values of some records."""
        return self.arrays[name][part]


def axis(name: str, bins: int = 24) -> Axis:
    """A column as an axis."""
    columns = World.make(10).columns
    edges = tuple(np.linspace(*RANGES[name], bins + 1)) if name in RANGES else ()
    return Axis(name, columns.declared[name], edges)


def _shares(values: NDArray[np.generic], levels: tuple[str, ...]) -> Floats:
    return np.array([(values == level).mean() for level in levels])


def statistics(records: float | None) -> dict[str, tuple[Statistic, Callable[[World, NDArray[np.bool_]], Floats]]]:
    """Every statistic, and its true value among some records."""
    from rpdp.statistics import NumberRange

    age, pressure = (NumberRange(*RANGES[name]) for name in ("age", "pressure"))

    def by_sex(world: World, part: NDArray[np.bool_]) -> Floats:
        values, sex = world.of("age", part), world.of("sex", part)
        return np.array([values[sex == level].astype(float).mean() for level in LEVELS["sex"]])

    def type_by_sex(world: World, part: NDArray[np.bool_]) -> Floats:
        kind, sex = world.of("type", part), world.of("sex", part)
        rows = [np.append(_shares(kind[sex == level], LEVELS["type"]), [np.nan] * 2) for level in LEVELS["sex"]]
        return np.concatenate(rows)

    def number(name: str, of: Callable[[Floats], float]) -> Callable[[World, NDArray[np.bool_]], Floats]:
        return lambda world, part: np.array([of(world.of(name, part).astype(float))])

    def quartiles(world: World, part: NDArray[np.bool_]) -> Floats:
        return np.asarray(np.quantile(world.of("age", part).astype(float), [0.25, 0.5, 0.75], method="inverted_cdf"))

    def correlation(world: World, part: NDArray[np.bool_]) -> Floats:
        age, pressure = (world.of(name, part).astype(float) for name in ("age", "pressure"))
        return np.array([np.corrcoef(age, pressure)[0, 1]])

    return {
        "count": (Count(), lambda world, part: np.array([float(part.sum())])),
        "sum": (Sum("age", age, records), number("age", np.sum)),
        "mean": (Mean("age", age), number("age", np.mean)),
        "group means": (Mean("age", age, axis("sex")), by_sex),
        "variance": (Variance("age", age), number("age", np.var)),
        "standard deviation": (StandardDeviation("pressure", pressure), number("pressure", np.std)),
        "proportions": (Histogram((axis("type"),), "all"), lambda w, p: _shares(w.of("type", p), LEVELS["type"])),
        "histogram": (
            Histogram((axis("age", 12),)),
            lambda w, p: np.histogram(w.of("age", p).astype(float), np.linspace(*RANGES["age"], 13))[0].astype(float),
        ),
        "quantiles": (Quantiles(axis("age")), quartiles),
        "contingency table": (Histogram((axis("sex"), axis("type")), "groups"), type_by_sex),
        "correlation": (Correlation(("age", "pressure"), (age, pressure)), correlation),
    }


def dense(cells: Cells, size: int) -> Floats:
    """Cells as a matrix of records × places."""
    matrix = np.zeros((len(cells), size))
    rows, entries = np.nonzero(cells.index >= 0)
    np.add.at(matrix, (rows, cells.index[rows, entries]), cells.value[rows, entries])
    return matrix


def contributions(world: World, request: Request) -> Floats:
    """What every record adds to each cell, before its weight."""
    source = ColumnSource(world.columns)
    source.require(request)
    return dense(source.cells(request, None, np.arange(len(source))), request.size)


def releases(
    world: World, inquiry: Inquiry, noise_multiplier: float, repetitions: int, rng: np.random.Generator
) -> Floats:
    """Noisy cells of many runs. Without correlation, every run draws anew who has which budget.

    For the check, the floor of "everyone" is one that all records are above.
    """
    matrix = contributions(world, inquiry.request)
    deviation = noise_multiplier * inquiry.request.norm
    if inquiry.estimator == "everyone":
        taken = np.ones(len(matrix)) if inquiry.for_check else world.takes_part.astype(float)
        exact = np.broadcast_to(taken @ matrix, (repetitions, matrix.shape[1]))
    elif world.is_correlated:
        exact = np.broadcast_to(world.weights @ matrix, (repetitions, matrix.shape[1]))
    else:
        drawn = (min(_CHUNK, repetitions - start) for start in range(0, repetitions, _CHUNK))
        exact = np.concatenate([rng.permuted(np.tile(world.weights, (count, 1)), axis=1) @ matrix for count in drawn])
    return exact + deviation * rng.standard_normal(exact.shape)


def simulated(
    world: World,
    statistic: Statistic,
    estimator: RequestEstimator,
    repetitions: int,
    *,
    noise_multiplier: float = 1.0,
    seed: int = 7,
    for_check: bool = False,
) -> Intervals:
    """The bounds of one statistic in many runs."""
    inquiry = Inquiry((statistic,), estimator, for_check=for_check)
    if for_check:
        noise_multiplier /= float(world.weights.min())  # then the least budget pays for weight 1
    cells = releases(world, inquiry, noise_multiplier, repetitions, np.random.default_rng(seed))
    measured: RequestEstimator = "representative" if for_check else estimator
    noise = noise_of(noise_multiplier * inquiry.request.norm, 0.95, measured)
    return inquiry.intervals(cells, noise)[0]
