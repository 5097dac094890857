"""Plain SGD on Poisson draws: no clipping, no noise, no promise; the upper end of a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpdp.checks import require_count, require_fraction, require_positive
from rpdp.errors import InputError
from rpdp.federation.unprotected import mean_gradient
from rpdp.sampling import PoissonSampler
from rpdp.training import CentralResult, FlatModel, LocalView

if TYPE_CHECKING:
    import torch
    from torch import nn

    from rpdp.sampling import Randomness
    from rpdp.training import OptimiserFactory, PerRecordLoss, Records


def train_plain(
    module: nn.Module,
    loss: PerRecordLoss,
    records: Records,
    randomness: Randomness,
    *,
    steps: int,
    sampling_probability: float,
    normaliser: float,
    optimiser: OptimiserFactory,
    device: torch.device | str = "cpu",
) -> CentralResult:
    """Train `module` in place. **Promises nothing**: the model may reveal any record.

    Each step draws every record with the same probability and divides the sum of their gradients by `normaliser`.
    """
    require_count("steps", steps)
    require_positive("normaliser", normaliser)
    if len(records) == 0:
        raise InputError("the data set is empty: there is no record to train on")
    q = np.full(len(records), require_fraction("sampling_probability", sampling_probability))
    model = FlatModel(module, device)
    made = optimiser([model.values])
    sampler, local = PoissonSampler(q), LocalView(q * steps)
    for number in range(steps):
        drawn = sampler.draw(randomness.child("step", number, "draw"))
        model.values.grad = mean_gradient(model, loss, records.select(drawn), normaliser)
        made.step()
        local.add(drawn, model.values.new_zeros(0), float("inf"))
    model.require_finite()
    return CentralResult(model, randomness.is_simulation, local)
