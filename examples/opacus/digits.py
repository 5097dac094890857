"""Digits (MNIST) in one place: data, model and public settings that both loops share.

Files come from the directory that RPDP_DATA names: `mnist/`. Nothing is downloaded.
"""

from __future__ import annotations

import gzip
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

if TYPE_CHECKING:
    from numpy.typing import NDArray

RECORDS = 20_000


@dataclass(frozen=True)
class Run:
    """What a loop is given: private records with their budgets, public settings, and test records."""

    dataset: TensorDataset
    budgets: NDArray[np.float64]
    test: TensorDataset
    epochs: int = 3
    steps: int = 50
    batch: float = 400
    sigma: float = 1.0
    clip: float = 1.0
    delta: float = 1e-5
    learning_rate: float = 0.5


def cnn() -> nn.Sequential:
    """The network of the MNIST example of Opacus: two convolutions, 26,010 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=8, stride=2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, stride=1),
        nn.Conv2d(16, 32, kernel_size=4, stride=2),
        nn.ReLU(),
        nn.MaxPool2d(2, stride=1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )


def images(split: str, first: int, last: int) -> TensorDataset:
    """Images of "train" or "t10k" with their labels. Mean and deviation are constants of the tutorial, not measured."""
    folder = Path(os.environ["RPDP_DATA"]) / "mnist"
    raw = gzip.decompress((folder / f"{split}-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((folder / f"{split}-labels-idx1-ubyte.gz").read_bytes())
    pixels = np.frombuffer(raw, np.uint8, offset=16).reshape(-1, 1, 28, 28)[first:last]
    values = (torch.from_numpy(pixels.astype(np.float32)) / 255 - 0.1307) / 0.3081
    return TensorDataset(
        values, torch.from_numpy(np.frombuffer(labels, np.uint8, offset=8)[first:last].astype(np.int64))
    )


def accuracy(model: nn.Module, test: TensorDataset) -> float:
    """The share of test records that the model gets right."""
    values, labels = test.tensors
    with torch.no_grad():
        right: Tensor = torch.cat([model(part).argmax(1) for part in values.split(1000)]) == labels
    return float(right.float().mean())
