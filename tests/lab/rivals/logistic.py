"""What the tests of the rivals train: logistic regression from zero, on records made here."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rpdp.sampling import Randomness, Secure, Seeded
from rpdp.training import Records

FEATURES = 3


def loss(output: Tensor, targets: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(output[:, 0], targets, reduction="none")


def data(count: int) -> Records:
    """Records whose label is the sign of the first feature."""
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(count, FEATURES, generator=generator)
    return Records.of(inputs, (inputs[:, 0] > 0).float())


def model() -> nn.Linear:
    """At zero, where every gradient is (½ − label)·(inputs, 1)."""
    layer = nn.Linear(FEATURES, 1)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def optimiser(values: list[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(values, lr=1.0)


def randomness(seed: int, *, secure: bool) -> Randomness:
    return Secure() if secure else Seeded(seed)
