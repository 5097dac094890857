"""A measured number over several seeds: its mean and standard deviation."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation (n − 1); a single value has no deviation.

    >>> str(Spread.of([0.90, 0.92])), Spread.of([0.9]).text(4)
    ('0.910 ± 0.014', '0.9000')
    """

    mean: float
    deviation: float | None

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Spread | None:
        """The spread of these values, without those that are not defined; None if there are none."""
        known = [value for value in values if value is not None]
        if not known:
            return None
        return cls(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None)

    def text(self, digits: int) -> str:
        """Mean ± deviation with so many decimals."""
        mean = f"{self.mean:.{digits}f}"
        return mean if self.deviation is None else f"{mean} ± {self.deviation:.{digits}f}"

    def __str__(self) -> str:
        return self.text(3)
