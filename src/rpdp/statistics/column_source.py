"""A silo's columns as cells of a request: the code that answers runs of statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpdp.errors import InputError
from rpdp.federation.cells import NO_CELL, Cells
from rpdp.statistics.measures import read_measure

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from rpdp.planning.request import Request
    from rpdp.statistics.columns import Columns
    from rpdp.statistics.measures import Measure

MOST_ENTRIES = 1024
"""To so many cells a record may add in one request: mean, deviation and quantiles from 60 bins of 15 columns. Time and
memory grow with it. Without a limit a server could choose how long a silo works, and so whether it answers in time."""


class ColumnSource:
    """Answers requests of the measures in `rpdp.statistics.measures` over a silo's columns (see `CellSource`).

    A request is refused from its text and from what is declared, never from a value. A record's cells depend on that
    record alone, and their number is the same for all records.
    """

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._last: tuple[Request | None, list[Measure]] = (None, [])

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def columns(self) -> Columns:
        """The columns that it reads."""
        return self._columns

    def require(self, request: Request) -> None:
        """See `CellSource.require`."""
        measures = self._measures(request)
        for measure in measures:
            measure.require(self._columns)
        entries = sum(measure.entries for measure in measures)
        if entries > MOST_ENTRIES:
            raise InputError(
                f"a record would add to {entries:,} cells, but to {MOST_ENTRIES:,} at most; ask for less at a time"
            )

    def cells(self, request: Request, values: Tensor | None, rows: NDArray[np.int64]) -> Cells:
        """See `CellSource.cells`; no model has any influence."""
        index, value = [], []
        for measure, part in zip(self._measures(request), request.parts, strict=True):
            own, adds = measure.cells(self._columns, rows)
            index.append(np.where(own == NO_CELL, NO_CELL, own + part.start))
            value.append(adds)
        return Cells(np.concatenate(index, axis=1).astype(np.int64), np.concatenate(value, axis=1))

    def _measures(self, request: Request) -> list[Measure]:
        """The measures of a request. The last ones are kept: thousands of edges take longer to read than to use."""
        if self._last[0] is not request:
            self._last = request, [read_measure(spec) for spec in request.measures]
        return self._last[1]
