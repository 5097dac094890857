"""The kernel for a model that is a single linear layer (logistic regression): a closed form without hooks.

For tiny models, overhead dominates: with 14 parameters the hooks of the ghost kernel alone would cost as much as the
step. Here the graph starts at the output of the layer, so autograd differentiates only the loss. Everything else is
three small products.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import nn

from rpdp.training.kernel import Kernel, PerRecordLoss, Progress, clip_factors, lost_squares, require_record_losses

if TYPE_CHECKING:
    from torch import Tensor

    from rpdp.training.flat_model import FlatModel
    from rpdp.training.records import Records


class AffineKernel(Kernel):
    """Clipped sums of one `nn.Linear` with any per-record loss: |g|² = |l|² (|x|² + 1)."""

    name = "affine"

    @staticmethod
    def supports(model: FlatModel, records: Records) -> bool:
        """Whether the model is a single trainable linear layer on one feature vector per record."""
        layer = model.module
        return (
            type(layer) is nn.Linear
            and not layer._forward_hooks
            and not layer._forward_pre_hooks
            and len(model) == sum(value.numel() for value in layer.parameters())
            and len(records.inputs) == 1
            and records.inputs[0].dim() == 2
        )

    def __init__(self, model: FlatModel, loss: PerRecordLoss) -> None:
        super().__init__(model, loss)
        self._weight, *bias = model.views(model.values.data)
        self._bias = bias[0] if bias else None

    def _add(self, records: Records, bound: float, total: Tensor, progress: Progress | None) -> Tensor:
        weight, bias, device = self._weight, self._bias, self.model.device
        inputs = records.inputs[0].to(device)
        output = F.linear(inputs, weight, bias).requires_grad_()
        losses = self.loss(output, records.targets.to(device))
        require_record_losses(losses, len(records))
        (left,) = torch.autograd.grad(losses.sum(), output)
        squared_inputs = (inputs * inputs).sum(1).add_(lost_squares(inputs, inputs.shape[1]))
        if bias is not None:
            squared_inputs += 1
        squared_norms = squared_inputs.mul_((left * left).sum(1).add_(lost_squares(left, left.shape[1])))
        factors, bad = clip_factors(squared_norms, bound)
        if bad is not None:  # a factor of zero is not enough: zero times infinity would be NaN
            left, inputs = (value.masked_fill(bad.unsqueeze(1), 0.0) for value in (left, inputs))
        weighted = left * factors.unsqueeze(1)
        split = weight.numel()
        total[:split].view(weight.shape).addmm_(weighted.t(), inputs)
        if bias is not None:
            total[split:].add_(weighted.sum(0))
        return squared_norms.sqrt_()
