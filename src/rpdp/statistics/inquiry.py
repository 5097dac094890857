"""An inquiry: statistics that are asked for together. They share one vector, one noise and one price."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rpdp.checks import require_choice
from rpdp.errors import InputError
from rpdp.planning.request import REQUEST_ESTIMATORS, Request, RequestEstimator
from rpdp.statistics.estimate import LEVEL, Intervals, NoisyEstimate, normal_quantile
from rpdp.statistics.intervals import Noise

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from rpdp.statistics.measures import Measure
    from rpdp.statistics.noisy_sums import NoisySums
    from rpdp.statistics.statistic import Statistic

SPEAKS_OF: dict[RequestEstimator, str] = {
    "everyone": "the records above the public floor: those whose budget pays for weight 1",
    "representative": "all records, and the population that they are a sample of",
}
INDEPENDENT = "values do not depend on budgets"
SPREAD = "the sampling spread of the weights is bounded by Σw² ≤ Σw, so no private number enters the interval"


@dataclass(frozen=True)
class Inquiry:
    """Statistics and the estimator by which they are asked for.

    Attributes:
        statistics: What is asked for. Those that need the same measure share it.
        estimator: "everyone" or "representative".
        for_check: Whether "everyone" also measures what the check of its agreement with "representative" needs.
    """

    statistics: tuple[Statistic, ...]
    estimator: RequestEstimator
    for_check: bool = False

    def __post_init__(self) -> None:
        require_choice("estimator", self.estimator, REQUEST_ESTIMATORS)
        object.__setattr__(self, "statistics", tuple(self.statistics))
        if not self.statistics:
            raise InputError("an inquiry needs at least one statistic")

    @property
    def _measured_as(self) -> RequestEstimator:
        return "representative" if self.for_check else self.estimator

    @property
    def measures(self) -> tuple[Measure, ...]:
        """All measures, each once: what another one holds as well is left out."""
        every = tuple(dict.fromkeys(each.measure(self._measured_as) for each in self.statistics))
        return tuple(one for one in every if not any(other != one and other.serves(one) for other in every))

    @property
    def request(self) -> Request:
        """What silos are asked."""
        return Request(self.estimator, tuple(measure.spec for measure in self.measures))

    def intervals(self, cells: NDArray[np.float64], noise: Noise) -> list[Intervals]:
        """The numbers of every statistic, from the noisy cells of one release or of many (last axis: the cells)."""
        placed = list(zip(self.measures, self.request.parts, strict=True))
        found = []
        for statistic in self.statistics:
            own = statistic.measure(self._measured_as)
            measure, part = next((measure, part) for measure, part in placed if measure.serves(own))
            found.append(statistic.intervals(self._measured_as, measure, cells[..., part], noise))
        return found

    def estimates(self, released: NoisySums, *, level: float = LEVEL) -> list[NoisyEstimate]:
        """All numbers with their intervals, in the order of the statistics."""
        if released.request != self.request:
            raise InputError("these sums were released for another request; give the inquiry that it was made from")
        noise = Noise(released.deviation, normal_quantile(level), self._measured_as == "representative")
        found = []
        for statistic, bounds in zip(self.statistics, self.intervals(released.cells, noise), strict=True):
            found += self._named(statistic, bounds, level)
        return found

    def grouped(self, estimates: Sequence[NoisyEstimate]) -> list[tuple[Statistic, list[NoisyEstimate]]]:
        """Estimates of this inquiry, by the statistic that they belong to."""
        rest, found = list(estimates), []
        for statistic in self.statistics:
            count = len(statistic.labels(self._measured_as))
            found.append((statistic, rest[:count]))
            rest = rest[count:]
        return found

    def _named(self, statistic: Statistic, bounds: Intervals, level: float) -> list[NoisyEstimate]:
        ways = self._measured_as
        estimator = (INDEPENDENT, SPREAD) if ways == "representative" else ()
        return [
            NoisyEstimate(
                name=label,
                value=float(bounds.value[place]),
                low=float(bounds.low[place]),
                high=float(bounds.high[place]),
                error=float(bounds.error[place]),
                level=level,
                estimator=self.estimator,
                method=statistic.method(ways),
                speaks_of=SPEAKS_OF[ways],
                assumptions=(*estimator, *statistic.assumptions(ways)),
            )
            for place, label in enumerate(statistic.labels(ways))
        ]


def noise_of(deviation: float, level: float, estimator: RequestEstimator) -> Noise:
    """The noise of releases by an estimator, for intervals of a level."""
    return Noise(deviation, normal_quantile(level), estimator == "representative")
