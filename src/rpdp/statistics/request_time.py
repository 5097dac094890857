"""How long a request can take a silo at most, measured on made-up records: `release_after` must be above it.

A request that is not done by its public time sits out. If a record could make the difference, everybody would see it
(privacy.md, rule 16). A server chooses what is asked for, and the model of an evaluation. So the longest request counts
that the silo lets pass. What columns add takes equally long whatever they hold. A model may be slow with some numbers,
and fail for every record: a block of n records then takes two runs of n, and two of each smaller half.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from rpdp.federation.cells import Cells
from rpdp.federation.exact_sums import ExactSums
from rpdp.federation.sums import PIECE
from rpdp.planning.request import MeasureSpec, Request
from rpdp.sampling import Secure
from rpdp.statistics.axis import Axis
from rpdp.statistics.column_source import MOST_ENTRIES, ColumnSource
from rpdp.statistics.columns import Columns, Levels, NumberRange
from rpdp.statistics.evaluation_cells import BLOCK, ModelCells
from rpdp.statistics.evaluation_measures import MOST_BINS
from rpdp.statistics.measures import HistogramMeasure, MomentsMeasure
from rpdp.training.round_time import MARGIN, median_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rpdp.federation.cells import CellSource
    from rpdp.statistics.measures import Measure


def slowest_request(source: CellSource, most_cells: int) -> float | None:
    """The seconds that a request of at most so many cells can take here, whatever records hold; None if unknown."""
    if isinstance(source, ColumnSource):
        return MARGIN * _of_columns(source.columns, most_cells)
    if isinstance(source, ModelCells):
        return MARGIN * _of_model(source, most_cells)
    return None


def _of_columns(columns: Columns, most_cells: int) -> float:
    """Seconds for all records and the widest request of these columns."""
    size = min(len(columns), PIECE)
    made = Columns(columns.declared, {name: np.zeros(size) for name in columns.declared})
    pieces, slowest = math.ceil(len(columns) / PIECE), 0.0
    for measure in _widest(columns, most_cells):
        times = min(MOST_ENTRIES // measure.entries, most_cells // measure.size)
        if times == 0:
            continue
        request = Request("everyone", (measure.spec,) * times)
        source, sums = ColumnSource(made), ExactSums(request)
        slowest = max(slowest, median_seconds(partial(_read, made, request)) + pieces * _seconds(source, request, sums))
    return slowest + _release(most_cells)


def _read(columns: Columns, request: Request) -> None:
    ColumnSource(columns).require(request)


def _seconds(source: ColumnSource, request: Request, sums: ExactSums) -> float:
    """Seconds to add up all that there is."""
    rows, nothing = np.arange(len(source)), torch.zeros(0)
    return median_seconds(
        lambda: sums.add(sums.contributions(source.cells(request, nothing, rows), np.ones(len(source))))
    )


def _widest(columns: Columns, most_cells: int) -> Iterator[Measure]:
    """The measures that take longest for a cell."""
    numbers = [(name, facts) for name, facts in columns.declared.items() if isinstance(facts, NumberRange)][:2]
    if numbers:
        names, facts = zip(*numbers, strict=True)
        yield MomentsMeasure(names, facts, 2, 4)
        bins = max(1, most_cells // MOST_ENTRIES - 1)
        name, one = numbers[0]
        yield HistogramMeasure((Axis(name, one, tuple(np.linspace(one.low, one.high, bins + 1).tolist())),))
    for name, levels in columns.declared.items():
        if isinstance(levels, Levels):
            yield HistogramMeasure((Axis(name, levels),))
            return


def _of_model(source: ModelCells, most_cells: int) -> float:
    """Seconds for all records and the slowest model, all records failing."""
    alone, together = source.seconds(1), source.seconds(BLOCK)
    # Seconds for m records, as a straight line through both measurements: fixed + each · m.
    each = max(together - alone, 0.0) / (BLOCK - 1)
    fixed = max(alone - each, 0.0)
    block = 2.0 * together + 2 * BLOCK * fixed + (math.log2(BLOCK) + 1) * BLOCK * each
    size, bins = min(len(source), PIECE), MOST_BINS if source.outputs <= 2 else 1
    request = Request("everyone", (MeasureSpec("any", 2 * bins),))
    cells = Cells(np.tile(np.arange(bins), (size, 1)), np.full((size, bins), bins**-0.5))
    sums = ExactSums(request)
    add = median_seconds(lambda: sums.add(sums.contributions(cells, np.ones(size))))
    return math.ceil(len(source) / BLOCK) * block + math.ceil(len(source) / PIECE) * add + _release(most_cells)


def _release(most_cells: int) -> float:
    """Seconds for the noise."""
    sums = ExactSums(Request("everyone", (MeasureSpec("any", most_cells),)))
    return median_seconds(lambda: sums.release(1.0, 1.0, Secure()))
