"""What statistics know of a run: the released cells of all silos, added, and the deviation of their noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rpdp.checks import require_least
from rpdp.display import counts_repr
from rpdp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rpdp.planning.public_plan import PublicPlan
    from rpdp.planning.request import Request


@dataclass(frozen=True, eq=False)
class NoisySums:
    """The noisy sums of a request over all silos that released them. Everything here is public.

    Attributes:
        request: What was asked.
        cells: The sum of each cell.
        deviation: The standard deviation of the noise of each cell: of all silos together.
        silos: The silos that released.
    """

    request: Request
    cells: NDArray[np.float64]
    deviation: float
    silos: tuple[str, ...]

    __repr__ = counts_repr

    def __post_init__(self) -> None:
        if self.cells.shape != (self.request.size,):
            raise InputError(f"cells of shape {self.cells.shape} must be the {self.request.size:,} of the request")
        require_least("deviation", self.deviation, 0.0)

    @classmethod
    def of(cls, public: PublicPlan, by_silo: Mapping[str, NDArray[np.float64]]) -> NoisySums:
        """Add what silos released (rounds × cells): each silo's average over the rounds that it answered."""
        if public.request is None:
            raise InputError("this run had no request, so it released no sums")
        one = public.noise_multiplier * public.request.norm
        total, variance, answered = np.zeros(public.request.size), 0.0, []
        for silo, rounds in by_silo.items():
            given = np.atleast_2d(rounds)
            given = given[np.isfinite(given).all(axis=1)]
            if len(given):
                total += given.mean(axis=0)
                variance += one**2 / len(given)
                answered.append(silo)
        if not answered:
            raise InputError("no silo released its sums, so there is nothing to estimate")
        return cls(public.request, total, math.sqrt(variance), tuple(answered))
