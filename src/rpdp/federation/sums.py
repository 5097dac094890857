"""The local part of a round of statistics or evaluation: one vector of noisy sums (privacy.md, section 9).

Nobody is sampled: the release is Σ w_j · x_j + N(0, s²L²) in every cell, over all records whose weight is above 0.
Without any it is noise alone. Records are asked for in pieces by their position, whoever takes part, so that neither
time nor the batches of a model depend on that. A withdrawal takes effect from the next piece on.

If the source raises, the record is found by halving the piece, and all others contribute as if it were not there. That
takes at most 2n − 1 calls for a piece of n records; as in training, `release_after` must leave time for it.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from rpdp.display import counts_repr
from rpdp.federation.exact_sums import ExactSums
from rpdp.training import BadRecordWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray
    from torch import Tensor

    from rpdp.federation.cells import CellSource
    from rpdp.federation.exact_sums import Contributions
    from rpdp.federation.local_training import SamplingPlan
    from rpdp.federation.messages import Announcement
    from rpdp.planning.request import Request
    from rpdp.sampling import Randomness

PIECE = 1024
"""How many positions are asked for at once: the widest request then takes 150 MB."""


@dataclass(frozen=True)
class SumsWork:
    """Statistics and evaluation: the update is the vector of noisy sums (a `LocalWork`).

    Args:
        source: The silo's own code.
        request: What it is asked for; the source has let it pass.
        rows: The records that may take part in runs of this purpose: rising positions.
        announced: A flat model for evaluation; empty for statistics.
    """

    source: CellSource
    request: Request
    rows: NDArray[np.int64]
    announced: Tensor

    __repr__ = counts_repr

    @property
    def name(self) -> str:
        """There is one way to add up."""
        return "sums"

    @property
    def released(self) -> Tensor:
        """A vector with a float64 number for each cell."""
        return torch.empty(self.request.size, dtype=torch.float64)

    @property
    def takes_correction(self) -> bool:
        """Nothing is trained."""
        return False

    def run(
        self,
        plan: SamplingPlan,
        announcement: Announcement,
        switched_off: Callable[[], NDArray[np.int64]],
        randomness: Randomness,
    ) -> tuple[Tensor, NDArray[np.int64]]:
        """Return the noisy sums, and for each record whether it took part."""
        weights = np.where(plan.active_rounds >= announcement.round, plan.q, 0.0)
        took_part = np.zeros(len(weights), dtype=np.int64)
        adding = _Adding(self, announcement.values, weights)
        weights[switched_off()] = 0.0  # here, too, for a silo none of whose records may take part
        for rows in pieces_by_position(self.rows):
            weights[switched_off()] = 0.0
            took_part[rows] = weights[rows] > 0.0
            adding.add(rows)
        if adding.failed:
            warnings.warn(
                "the code of a measure failed on a record; it contributes zero", BadRecordWarning, stacklevel=2
            )
        # By the plan as well: in a simulation two requests of one seed have noise of their own, as real ones have.
        noise = randomness.child("sums", announcement.plan, "noise")
        return torch.from_numpy(adding.sums.release(plan.public.noise_multiplier, self.request.norm, noise)), took_part


class _Adding:
    """The sums of one round, as far as they are added up. `weights` may change between two pieces."""

    def __init__(self, work: SumsWork, values: Tensor, weights: NDArray[np.float64]) -> None:
        self._work = work
        self._values = values
        self._weights = weights
        self.sums = ExactSums(work.request)
        self.failed = False

    def add(self, rows: NDArray[np.int64]) -> None:
        """Add what these records contribute; a record for which the source fails on its own adds zero."""
        found = self._contributions(rows)
        if found is not None:
            self.sums.add(found)
        elif len(rows) == 1:
            self.failed = True
        else:
            self.add(rows[: len(rows) // 2])
            self.add(rows[len(rows) // 2 :])

    def _contributions(self, rows: NDArray[np.int64]) -> Contributions | None:
        """What these records contribute; None if the source fails, or returns anything but cells for each of them."""
        try:
            cells = self._work.source.cells(self._work.request, self._values, rows)
            return self.sums.contributions(cells, self._weights[rows]) if len(cells) == len(rows) else None
        except Exception:  # the silo's own code may raise anything, and a record may have caused it
            return None


def pieces_by_position(rows: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Rising positions in pieces: those below `PIECE`, and so on. Another record moves none to another piece."""
    if len(rows):
        borders = np.arange(PIECE, int(rows[-1]) + 1, PIECE)
        yield from (part for part in np.split(rows, np.searchsorted(rows, borders)) if len(part))
