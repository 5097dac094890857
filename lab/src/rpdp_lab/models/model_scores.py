"""Accuracy of trained models on test records. Imports torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from rpdp.tasks.models.losses import predicted_classes
from rpdp.training import Records

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.tasks.dataset import Dataset
    from rpdp.training import FlatModel

CHUNK = 1000


def records_of(dataset: Dataset) -> Records:
    """Features and labels as tensors."""
    features = np.ascontiguousarray(dataset.features, dtype=np.float32)
    return Records.of(torch.from_numpy(features), torch.from_numpy(dataset.labels))


def logits(model: FlatModel, records: Records) -> torch.Tensor:
    """The model's outputs for every record."""
    with torch.no_grad():
        parts = [model.module(model.prepare(chunk.inputs[0])).cpu() for chunk in records.chunks(CHUNK)]
    return torch.cat(parts)


def accuracy(model: FlatModel, records: Records) -> float:
    """Share of records that are classified correctly."""
    return float((predicted_classes(logits(model, records)) == records.targets).double().mean())


def accuracy_by_class(outputs: torch.Tensor, targets: torch.Tensor, classes: int) -> NDArray[np.float64]:
    """Share of each class's records that are classified correctly."""
    right = predicted_classes(outputs) == targets
    return np.array([float(right[targets == label].double().mean()) for label in range(classes)])
