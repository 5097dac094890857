"""Budget distributions: the three of the paper, with the parameters of its text and of its published files.

A distribution describes how strict people are. Use one in simulations, and to choose public settings before any real
budget is seen. The text of the paper and the authors' files differ (Pareto shape, mixture deviations); both parameter
sets are available by name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Protocol

import numpy as np

from rpdp.checks import require_count, require_number, require_positive
from rpdp.errors import BudgetError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

BOUNDS = (0.1, 10.0)
_SUM_TOLERANCE = 1e-9


class Distribution(Protocol):
    """A distribution from which budgets can be drawn."""

    def sample(self, records: int, seed: int) -> NDArray[np.float64]:
        """Draw one budget per record; the same seed gives the same budgets."""
        ...


@dataclass(frozen=True)
class ThreeLevels:
    """A few fixed levels in exact proportions (up to rounding to whole records)."""

    levels: tuple[float, ...] = (0.1, 1.0, 5.0)
    shares: tuple[float, ...] = (0.7, 0.2, 0.1)

    def sample(self, records: int, seed: int) -> NDArray[np.float64]:
        """Exactly `shares` of the records at each level, in random order."""
        generator = _generator(seed)
        for level in self.levels:
            require_positive("levels", level)
        budgets = np.repeat(np.asarray(self.levels), _exact_counts(self.shares, len(self.levels), records))
        return generator.permutation(budgets)


@dataclass(frozen=True)
class BoundedPareto:
    """lower + scale (U^(−1/shape) − 1), clipped to the bounds. With scale = lower it is the classical Pareto."""

    shape: float = 1.0
    lower: float = 0.1
    scale: float = 0.1
    bounds: tuple[float, ...] = BOUNDS

    def sample(self, records: int, seed: int) -> NDArray[np.float64]:
        """Independent draws."""
        require_count("records", records)
        for name in ("shape", "lower", "scale"):
            require_positive(name, getattr(self, name))
        lomax = _generator(seed).pareto(self.shape, records)
        return np.clip(self.lower + self.scale * lomax, *_checked_bounds(self.bounds))


@dataclass(frozen=True)
class BoundedMixGauss:
    """A mixture of Gaussians in exact proportions (up to rounding to whole records), clipped to the bounds."""

    means: tuple[float, ...] = (0.1, 1.0, 5.0)
    deviations: tuple[float, ...] = (0.01**0.5, 0.05**0.5, 0.5**0.5)
    shares: tuple[float, ...] = (0.7, 0.2, 0.1)
    bounds: tuple[float, ...] = BOUNDS

    def sample(self, records: int, seed: int) -> NDArray[np.float64]:
        """Exactly `shares` of the records from each Gaussian, in random order."""
        if len(self.deviations) != len(self.means):
            raise BudgetError(f"{len(self.deviations)} deviations for {len(self.means)} means; give one for each")
        for mean in self.means:
            require_number("means", mean)
        for deviation in self.deviations:
            require_positive("deviations", deviation)
        component = np.repeat(np.arange(len(self.means)), _exact_counts(self.shares, len(self.means), records))
        generator = _generator(seed)
        component = generator.permutation(component)
        budgets = generator.normal(np.asarray(self.means)[component], np.asarray(self.deviations)[component])
        return np.clip(budgets, *_checked_bounds(self.bounds))


PAPER: dict[str, Distribution] = {
    "ThreeLevels": ThreeLevels(),
    "BoundedPareto": BoundedPareto(),
    "BoundedMixGauss": BoundedMixGauss(),
}
"""The parameters in the paper's text."""

AUTHORS: dict[str, Distribution] = {
    "ThreeLevels": ThreeLevels(),
    "BoundedPareto": BoundedPareto(shape=4.0, lower=0.1, scale=1.0),
    "BoundedMixGauss": BoundedMixGauss(deviations=(0.05, 0.1, 0.5)),
}
"""The parameters in the authors' published files."""

PARAMETER_SETS = {"paper": PAPER, "authors": AUTHORS}


def distribution(
    name: str, parameters: str = "paper", overrides: Mapping[str, tuple[float, ...]] | None = None
) -> Distribution:
    """The distribution of this name from a parameter set ("paper" or "authors"), with some parameters replaced.

    >>> distribution("ThreeLevels", overrides={"levels": (1.0, 3.0, 10.0)})
    ThreeLevels(levels=(1.0, 3.0, 10.0), shares=(0.7, 0.2, 0.1))
    """
    family = PARAMETER_SETS[_known("parameters", parameters, list(PARAMETER_SETS))]
    chosen = family[_known("distribution", name, list(family))]
    changes: dict[str, float | tuple[float, ...]] = {}
    for key, values in (overrides or {}).items():
        _known(f"parameter of {name}", key, [field.name for field in fields(chosen)])  # type: ignore[arg-type]
        scalar = isinstance(getattr(chosen, key), float)
        if scalar and len(values) != 1:
            raise BudgetError(f"{key} of {name} is one number, got {len(values)}: {values}")
        changes[key] = values[0] if scalar else tuple(values)
    return replace(chosen, **changes)  # type: ignore[type-var]


def _known(what: str, name: str, names: list[str]) -> str:
    if name in names:
        return name
    close = get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise BudgetError(f"unknown {what} {name!r}{hint} (known: {', '.join(names)})")


def _exact_counts(shares: tuple[float, ...], parts: int, records: int) -> NDArray[np.int64]:
    """The number of records in each part: its exact share, rounded by largest remainder."""
    require_count("records", records)
    weights = np.asarray(shares, dtype=np.float64)
    if len(weights) != parts or (weights < 0).any() or not abs(weights.sum() - 1.0) <= _SUM_TOLERANCE:
        raise BudgetError(f"shares={shares} must be {parts} numbers that are not negative and add up to 1")
    exact = weights / weights.sum() * records
    counts: NDArray[np.int64] = np.floor(exact + 1e-9).astype(np.int64)  # 0.7 · 10 is 7, not 6.999…
    order = np.argsort(counts - exact, kind="stable")
    counts[order[: records - int(counts.sum())]] += 1
    return counts


def _generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(require_count("seed", seed, least=0))


def _checked_bounds(bounds: tuple[float, ...]) -> tuple[float, float]:
    if len(bounds) != 2 or not 0 < bounds[0] < bounds[1] < math.inf:
        raise BudgetError(f"bounds={bounds} must be two positive, finite numbers, the smaller one first")
    return bounds[0], bounds[1]
