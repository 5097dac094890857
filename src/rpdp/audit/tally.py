"""The observations of an audit, added up: enough for every test, in memory that does not grow with the steps.

For each canary its score, the log-likelihood ratio summed over the observations, and their plain sum. For each group a
histogram of single observations. Where the auditor sits inside the silo, also how often canaries were drawn. What is
added comes from outside: a watched silo, or bytes that a deployed silo has released. Nothing here depends on how it was
obtained, and only the coins are secret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpdp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rpdp.audit.canaries import Canaries
    from rpdp.audit.canary_law import CanaryLaw

BINS = 2**17
"""Of a histogram: a cell holds at most 6e-5 of the probability, less than what ten million observations resolve."""


class Tally:
    """The observations of one audited run, added up.

    Args:
        canaries: Whose coordinates are observed.
        laws: The law of an observation for each group, from the plan; all of the same σ and number of releases.
    """

    def __init__(self, canaries: Canaries, laws: Sequence[CanaryLaw]) -> None:
        if len(laws) != len(canaries.groups):
            raise InputError(f"{len(laws)} laws for {len(canaries.groups)} groups")
        self.canaries = canaries
        self.laws = tuple(laws)
        self.observations = 0
        self.scores = np.zeros(len(canaries))
        self.sums = np.zeros(len(canaries))
        self.draws: NDArray[np.int64] | None = None
        """Draws of each group's members in all steps; None where nobody could count them."""

        groups = len(laws)
        self.histograms = np.zeros((groups + 1, BINS), dtype=np.int64)
        """Single observations: a row for the members of each group, and one for all canaries that are out."""

        row = np.repeat(np.arange(groups), canaries.per_group)
        self._first_cell = np.where(canaries.taken, row, groups) * BINS
        low, high = laws[0].range
        self._low, self._cells_per_unit = low, BINS / (high - low)

    @property
    def edges(self) -> NDArray[np.float64]:
        """The upper ends of the cells of a histogram, but for the last, which has none."""
        return self._low + np.arange(1, BINS) / self._cells_per_unit

    def add(self, values: NDArray[np.float64]) -> None:
        """One observation of every canary, in units of the clip norm."""
        if values.shape != (len(self.canaries),):
            raise InputError(f"observations of shape {values.shape} for {len(self.canaries):,} canaries")
        if not np.isfinite(values).all():
            raise InputError("an observation is NaN or infinite: these are not the releases of a run that went through")
        self.observations += 1
        self.sums += values
        for group, law in enumerate(self.laws):
            rows = self.canaries.rows(group)
            self.scores[rows] += law.log_ratio(values[rows])
        cells = np.clip((values - self._low) * self._cells_per_unit, 0, BINS - 1).astype(np.int64)
        cells += self._first_cell
        self.histograms += np.bincount(cells, minlength=self.histograms.size).reshape(self.histograms.shape)

    def add_draws(self, owners: NDArray[np.int64]) -> None:
        """The canaries of the records that one step drew."""
        if self.draws is None:
            self.draws = np.zeros(len(self.laws), dtype=np.int64)
        self.draws += np.bincount(self.canaries.group_of(owners), minlength=len(self.laws))
