"""An estimate from noisy sums: a value with its interval, and in words what it rests on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from scipy.special import ndtri

from rpdp.checks import require_number
from rpdp.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rpdp.planning.request import RequestEstimator

LEVEL = 0.95
"""How often an interval covers what it speaks of, unless another level is asked for."""


class Intervals(NamedTuple):
    """Values, the ends of their intervals, and their standard errors: one of each for every release and output."""

    value: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    error: NDArray[np.float64]


@dataclass(frozen=True)
class NoisyEstimate:
    """A number that was estimated from noisy sums.

    Attributes:
        name: What it is.
        value: The estimate.
        low: The lower end of its interval.
        high: The upper end.
        error: Its standard error.
        level: How often such intervals cover what they speak of, at least.
        estimator: "everyone" or "representative".
        method: How the interval was made.
        speaks_of: The records that the estimate is about.
        assumptions: What it takes for granted, in sentences.
    """

    name: str
    value: float
    low: float
    high: float
    error: float
    level: float
    estimator: RequestEstimator
    method: str
    speaks_of: str
    assumptions: tuple[str, ...]

    def __str__(self) -> str:
        interval = f"[{self.low:.5g}, {self.high:.5g}]"
        return f"{self.name}: {self.value:.5g} {interval} ({100 * self.level:g} %, {self.estimator})"

    @property
    def half_width(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2

    def plain(self) -> dict[str, Any]:
        """As plain values for JSON."""
        return {**asdict(self), "assumptions": list(self.assumptions)}


def normal_quantile(level: float) -> float:
    """The z of a two-sided interval that covers with this probability.

    >>> round(normal_quantile(0.95), 3)
    1.96
    """
    number = require_number("level", level)
    if not 0.5 <= number < 1.0:
        raise InputError(f"level={number} must be at least 0.5 and below 1")
    return float(ndtri((1.0 + number) / 2.0))
