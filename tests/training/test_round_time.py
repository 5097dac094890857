"""The slowest round that any records can cause is bounded by what is measured."""

from __future__ import annotations

import time
import warnings

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rpdp.sampling import Seeded
from rpdp.tasks.models.losses import binary_loss
from rpdp.training import BadRecordWarning, FlatModel, Kernel, NoisyStep, Records, StepSettings, make_kernel
from rpdp.training.round_time import slowest_round

STEPS = 4


def failing(output: Tensor, targets: Tensor) -> Tensor:
    losses = binary_loss(output, targets.clamp(max=1))
    if (targets > 1).any():
        raise MemoryError
    return losses


def seconds(kernel: Kernel, records: Records) -> float:
    """A round in which all records are drawn in every step."""
    settings, failed = StepSettings(1.0, 1.0, 1.0), set[int]()
    optimiser = torch.optim.SGD([kernel.model.values], lr=0.0)
    began = time.perf_counter()
    for number in range(STEPS):
        NoisyStep(kernel, optimiser, settings, Seeded(number), failed)(records, np.arange(len(records)))
    return time.perf_counter() - began


@pytest.mark.parametrize("count", [60, 1500])
def test_rounds_with_bad_records_are_within_the_measured_bound(count: int) -> None:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(count, 20, generator=generator)
    usual = torch.zeros(count, dtype=torch.int64)
    kernel = make_kernel(FlatModel(nn.Linear(20, 1)), failing, Records.of(inputs, usual))
    before = kernel.model.values.data.clone()
    # The largest of three, and below the smallest of five: the machine may be busy with something else meanwhile.
    bound = max(slowest_round(kernel, Records.of(inputs, usual), STEPS, Seeded(1)) for _ in range(3))
    assert torch.equal(kernel.model.values.data, before)
    seconds(kernel, Records.of(inputs, usual))  # whatever torch does only once
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BadRecordWarning)
        for bad in (0, 1, count):
            targets = torch.where(torch.arange(count) < bad, 7, usual)
            found = min(seconds(kernel, Records.of(inputs, targets)) for _ in range(5))
            assert found < bound, bad
        not_numbers = Records.of(torch.full_like(inputs, float("nan")), usual)
        assert min(seconds(kernel, not_numbers) for _ in range(5)) < bound


def test_more_steps_and_more_records_take_longer() -> None:
    records = Records.of(torch.zeros(2000, 20), torch.zeros(2000, dtype=torch.int64))
    kernel = make_kernel(FlatModel(nn.Linear(20, 1)), binary_loss, records)
    few, more, most = (
        slowest_round(kernel, records.rows(0, count), steps, Seeded(1))
        for count, steps in ((100, 2), (2000, 2), (2000, 200))
    )
    assert few < more < most
