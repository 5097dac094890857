"""The longest request that a silo lets pass: a record must not be able to make a request late."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from torch import nn

from rpdp.federation.exact_sums import ExactSums
from rpdp.planning import Request
from rpdp.statistics import ColumnSource, ModelCells
from rpdp.statistics.column_source import MOST_ENTRIES
from rpdp.statistics.evaluation_measures import EvaluationMeasure
from rpdp.statistics.measures import MomentsMeasure
from rpdp.statistics.request_time import slowest_request
from rpdp.training import FlatModel, Records
from tests.federation.requests import Bins
from tests.statistics.stumbling import Stumbling
from tests.statistics.world import World, statistics

CELLS = 4_000
SCORES = Request("everyone", (EvaluationMeasure.for_metrics(["auc"], classes=2).spec(),))


def added_up(source: ColumnSource | ModelCells, request: Request, values: torch.Tensor) -> float:
    """Seconds for all records."""
    sums, rows = ExactSums(request), np.arange(len(source))
    began = time.perf_counter()
    sums.add(sums.contributions(source.cells(request, values, rows), np.ones(len(source))))
    return time.perf_counter() - began


def test_a_wide_request_of_columns_is_within_the_measured_time() -> None:
    source = ColumnSource(World.make(500).columns)
    measure = statistics(None)["correlation"][0].measure("representative")
    assert isinstance(measure, MomentsMeasure)
    request = Request("everyone", (measure.spec,) * (MOST_ENTRIES // measure.entries))
    slowest = slowest_request(source, CELLS)
    assert slowest is not None
    assert min(added_up(source, request, torch.zeros(0)) for _ in range(3)) < slowest


@pytest.mark.parametrize("every", [1, 3])
def test_an_evaluation_with_failing_records_is_within_the_measured_time(every: int) -> None:
    inputs = torch.ones(600, 2)
    inputs[::every] = 13.0
    source = ModelCells(Records.of(inputs, torch.zeros(600, dtype=torch.int64)), Stumbling())
    values = torch.zeros(len(FlatModel(Stumbling()).values))
    slowest = slowest_request(source, CELLS)
    assert slowest is not None
    failing = min(added_up(source, SCORES, values) for _ in range(3))
    assert failing < slowest
    if every == 1:  # that records fail takes long, so the bound has to count it
        assert failing > 3.0 * 3 * source.seconds(256)


def test_more_cells_take_longer_and_other_code_is_not_known() -> None:
    source = ModelCells(Records.of(torch.ones(9, 2), torch.zeros(9, dtype=torch.int64)), nn.Linear(2, 1))
    few, many = slowest_request(source, 10), slowest_request(source, 1_000_000)
    assert few is not None
    assert many is not None
    assert few < many
    assert slowest_request(Bins(9), CELLS) is None


def test_a_measurement_leaves_the_model_as_it_was() -> None:
    source = ModelCells(Records.of(torch.ones(9, 2), torch.zeros(9, dtype=torch.int64)), nn.Linear(2, 1))
    before = source._model.values.data.clone()
    source.seconds(4)
    assert torch.equal(source._model.values.data, before)
