"""The reference kernel: plain autograd, one record at a time. It is slow, but correct for every model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rpdp.training.ghost.recurrent import records_first
from rpdp.training.kernel import Kernel, Progress, clip_factors

if TYPE_CHECKING:
    from torch import Tensor

    from rpdp.training.records import Records


class LoopKernel(Kernel):
    """Each record is a batch of its own, so nothing in model or loss can mix two of them."""

    name = "loop"

    def record_losses(self, records: Records) -> Tensor:
        """As the model computes them. Only the probe asks for several records at once."""
        with records_first(self.model.module):
            return super().record_losses(records)

    def _add(self, records: Records, bound: float, total: Tensor, progress: Progress | None) -> Tensor:
        squared_norms = []
        for record in records.chunks(1):
            gradients = torch.autograd.grad(self.record_losses(record).sum(), self.model.parameters, allow_unused=True)
            flat = torch.cat(
                [
                    total.new_zeros(size) if gradient is None else gradient.reshape(-1)
                    for gradient, size in zip(gradients, self.model.sizes, strict=True)
                ]
            )
            squared_norm = flat.square().sum()
            factor, bad = clip_factors(squared_norm, bound)
            if bad is None:
                total.add_(flat * factor)
            squared_norms.append(squared_norm)
        return torch.stack(squared_norms).sqrt_()
