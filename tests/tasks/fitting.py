"""Whether data, model and loss of a task fit together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from rpdp.tasks import FederatedData, Task


def assert_fits(entry: Task, data: FederatedData) -> None:
    part = next(iter(data.silos.values())).train.take(np.arange(4))
    losses = entry.loss(entry.model()(torch.from_numpy(part.features)), torch.from_numpy(part.labels))
    assert losses.shape == (4,)
    assert torch.isfinite(losses).all()
