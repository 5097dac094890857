"""The fallback kernel for models without closed forms: per-record gradients with `torch.func.vmap`."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch
from torch.func import functional_call, grad, vmap

from rpdp.training.kernel import Kernel, PerRecordLoss, Progress, clip_factors, require_record_losses

if TYPE_CHECKING:
    from torch import Tensor

    from rpdp.training.flat_model import FlatModel
    from rpdp.training.records import Records

GRADIENT_BYTES = 64 * 2**20
"""Memory for per-record gradients: enough to keep two cores busy, small compared with a model's activations."""


class VmapKernel(Kernel):
    """Inside the model every record is a batch of one, so no two records can mix.

    Records are processed in chunks to bound the memory.
    """

    name = "vmap"

    def __init__(self, model: FlatModel, loss: PerRecordLoss) -> None:
        super().__init__(model, loss)
        self._chunk = max(1, GRADIENT_BYTES // (len(model) * model.values.element_size()))
        arguments = (None, 0, 0)
        self._gradients = vmap(grad(self._record_loss), in_dims=arguments, randomness="different")

    def _record_loss(self, parameters: dict[str, Tensor], inputs: tuple[Tensor, ...], target: Tensor) -> Tensor:
        output = functional_call(self.model.module, parameters, tuple(value.unsqueeze(0) for value in inputs))
        losses = self.loss(output, target.unsqueeze(0))
        require_record_losses(losses, 1)
        return losses.squeeze(0)

    def _add(self, records: Records, bound: float, total: Tensor, progress: Progress | None) -> Tensor:
        return torch.cat([self._add_chunk(chunk, bound, total) for chunk in records.chunks(self._chunk)])

    def _add_chunk(self, records: Records, bound: float, total: Tensor) -> Tensor:
        parameters = dict(zip(self.model.names, [value.detach() for value in self.model.parameters], strict=True))
        inputs = tuple(tensor.to(self.model.device) for tensor in records.inputs)
        with (
            warnings.catch_warnings(),
            self.masked_run(records),
        ):  # `SlowKernelWarning` has already said that this kernel is slow
            warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
            by_name = self._gradients(parameters, inputs, records.targets.to(self.model.device))
        flat = torch.cat([by_name[name].reshape(len(records), -1) for name in self.model.names], dim=1)
        squared_norms = flat.square().sum(1)
        factors, bad = clip_factors(squared_norms, bound)
        if bad is not None:  # a factor of zero is not enough: zero times infinity would be NaN
            flat = flat.masked_fill_(bad.unsqueeze(1), 0.0)
        total.addmv_(flat.t(), factors)
        return squared_norms.sqrt()
