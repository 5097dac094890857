"""Feature scaling, by declared public ranges or by a silo's own mean and deviation.

The promise covers only the first. A mean or deviation of private records changes when a record is added or removed, and
it enters every released update (privacy.md, rule 13). Data scaled that way carry a note.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rpdp.errors import InputError
from rpdp.tasks.dataset import FederatedData, SiloData

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

NOT_COVERED_BY_SILO = "standardised by silo, with its training mean and deviation: not covered by the promise"
SCALED_BY_RANGES = "features scaled by declared public ranges"
SCALED_PIXELS = "pixels scaled by their public range"


@dataclass(frozen=True)
class PublicRange:
    """The declared range of a feature: low becomes −1, high becomes +1, and values outside are clipped."""

    feature: str
    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise InputError(f"range of {self.feature}: low={self.low} must be below high={self.high}")


def scale_by_ranges(features: NDArray[Any], ranges: Sequence[PublicRange]) -> NDArray[np.float32]:
    """Features mapped linearly from their declared ranges to [−1, 1] and clipped there.

    >>> scale_by_ranges(np.array([[50.0], [90.0]]), [PublicRange("age", 20, 80)]).tolist()
    [[0.0], [1.0]]
    """
    if features.shape[1] != len(ranges):
        raise InputError(f"{features.shape[1]} features and {len(ranges)} ranges: give one range per feature")
    low = np.array([item.low for item in ranges])
    high = np.array([item.high for item in ranges])
    scaled: NDArray[np.float64] = np.clip(2 * (features - low) / (high - low) - 1, -1, 1)
    return scaled.astype(np.float32)


def scale_pixels(pixels: NDArray[Any], largest: float) -> NDArray[np.float32]:
    """Pixels 0 … largest mapped to [−1, 1]. The range comes from the file format and is no statistic of the images."""
    return pixels.astype(np.float32) * np.float32(2 / largest) - np.float32(1)


def standardise_by_silo(data: FederatedData) -> FederatedData:
    """Standardise each silo's features by mean and deviation of its training records. Not covered by the promise.

    A feature that is constant in the training records of a silo is only centred.
    """
    return replace(data, silos={name: _standardise(silo) for name, silo in data.silos.items()})


def _standardise(silo: SiloData) -> SiloData:
    mean = silo.train.features.mean(axis=0)
    deviation = silo.train.features.std(axis=0, ddof=1)
    deviation = np.where(deviation > 0, deviation, 1.0)

    def scaled(features: NDArray[Any]) -> NDArray[np.float32]:
        return np.asarray((features - mean) / deviation, dtype=np.float32)

    return SiloData(
        silo.train.with_features(scaled(silo.train.features), NOT_COVERED_BY_SILO),
        silo.test.with_features(scaled(silo.test.features), NOT_COVERED_BY_SILO),
    )
