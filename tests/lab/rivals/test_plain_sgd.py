"""Plain SGD: the mean gradient of a Poisson draw, and nothing else."""

from __future__ import annotations

import pytest
import torch
from rpdp_lab.rivals.plain_sgd import train_plain
from torch import Tensor, nn

from rpdp.errors import InputError
from rpdp.sampling import Seeded
from rpdp.training import CentralResult, Records


def loss(output: Tensor, targets: Tensor) -> Tensor:
    return 0.5 * (output[:, 0] - targets).square()


def data(count: int = 40) -> Records:
    inputs = torch.randn(count, 2, generator=torch.Generator().manual_seed(1))
    return Records.of(inputs, inputs @ torch.tensor([1.0, -2.0]) + 3.0)


def train(records: Records, *, steps: int = 300, rate: float = 0.5) -> CentralResult:
    return train_plain(
        nn.Linear(2, 1),
        loss,
        records,
        Seeded(1),
        steps=steps,
        sampling_probability=rate,
        normaliser=rate * 40,
        optimiser=lambda values: torch.optim.SGD(values, lr=0.2),
    )


def test_it_finds_the_exact_solution() -> None:
    assert train(data()).values == pytest.approx([1.0, -2.0, 3.0], abs=1e-4)


def test_empty_draws_leave_the_model_as_it_is() -> None:
    result = train(data(), rate=1e-9, steps=3)
    assert result.local.batch_sizes == [0, 0, 0]
    assert torch.isfinite(result.values).all()


def test_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match="empty"):
        train(data(0))
    with pytest.raises(InputError, match="sampling_probability"):
        train(data(), rate=1.5)
    with pytest.raises(InputError, match="steps=0"):
        train(data(), steps=0)
