"""What an inquiry would find out, before anything is spent: the intervals that sums without noise would have.

Nothing of the data is known then, so records are taken to spread evenly over ranges, declared levels and groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpdp.checks import require_positive
from rpdp.statistics.columns import Levels
from rpdp.statistics.estimate import LEVEL, NoisyEstimate
from rpdp.statistics.measures import CountMeasure, HistogramMeasure, MomentsMeasure, RunningMeasure, SumMeasure
from rpdp.statistics.noisy_sums import NoisySums

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.statistics.axis import Axis
    from rpdp.statistics.inquiry import Inquiry
    from rpdp.statistics.measures import Measure

_POINTS = 101
"""So many values stand for a range."""


def expected_estimates(
    inquiry: Inquiry, *, total_weight: float, noise_multiplier: float, silos: int = 1, level: float = LEVEL
) -> list[NoisyEstimate]:
    """Estimates with intervals as wide as are to be expected; their values mean nothing.

    Args:
        inquiry: The statistics.
        total_weight: Σw over all silos: how many records take part, by "everyone".
        noise_multiplier: s.
        silos: How many silos add their own noise.
        level: The level of the intervals.
    """
    require_positive("total_weight", total_weight)
    request = inquiry.request
    cells = total_weight * np.concatenate([_of_one_record(measure) for measure in inquiry.measures])
    deviation = require_positive("noise_multiplier", noise_multiplier) * request.norm * float(np.sqrt(silos))
    return inquiry.estimates(NoisySums(request, cells, deviation, ("expected",)), level=level)


def _of_one_record(measure: Measure) -> NDArray[np.float64]:
    """The mean cells of a record whose values are spread evenly."""
    if isinstance(measure, CountMeasure):
        return np.ones(1)
    if isinstance(measure, SumMeasure):
        return np.array([measure.facts.middle / measure.facts.bound])
    if isinstance(measure, MomentsMeasure):
        grid = np.meshgrid(*[np.linspace(-1.0, 1.0, _POINTS)] * len(measure.columns))
        cells = measure.of_values(*(each.ravel() for each in grid)).mean(axis=0)
        groups = np.ones(1) if measure.by is None else _shares(measure.by)
        return np.outer(groups, cells).ravel()
    if isinstance(measure, RunningMeasure):
        return measure.of_shares(_shares(measure.axis)[: measure.bins])
    assert isinstance(measure, HistogramMeasure)
    shares = [_shares(axis) for axis in measure.axes]
    return shares[0] if len(shares) == 1 else np.outer(*shares).ravel()


def _shares(axis: Axis) -> NDArray[np.float64]:
    """The share of each cell of an axis: by the widths of bins, or equal for all declared levels."""
    declared = np.ones(len(axis.facts.levels)) if isinstance(axis.facts, Levels) else np.diff(np.asarray(axis.edges))
    return np.concatenate([declared / declared.sum(), np.zeros(len(axis.labels) - len(declared))])
