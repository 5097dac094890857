"""A silo's columns as cells of a request: the code that answers runs of statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpdp.federation.cells import NO_CELL, Cells
from rpdp.statistics.measures import read_measure

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from rpdp.planning.request import Request
    from rpdp.statistics.columns import Columns
    from rpdp.statistics.measures import Measure


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

    def require(self, request: Request) -> None:
        """See `CellSource.require`."""
        for measure in self._measures(request):
            measure.require(self._columns)

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
