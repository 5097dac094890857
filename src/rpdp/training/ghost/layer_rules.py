"""Layer rules: how each supported layer uses its parameters, given its input and output gradient.

Supported are Linear (with any number of middle dimensions; also the Conv1D of `transformers`), Conv1d/2d/3d and their
transposes, Embedding, EmbeddingBag, LayerNorm, RMSNorm, GroupNorm, InstanceNorm, MultiheadAttention (see `attention`),
RNN, LSTM and GRU (see `recurrent`). A rule applies to exactly these classes, because a subclass may do something else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules.instancenorm import _InstanceNorm

from rpdp.training.ghost.convolution import ConvolutionUse, geometry
from rpdp.training.ghost.parameter_uses import DirectUse, FactorUse, IndexUse, Use
from rpdp.training.ghost.recorder import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from torch import Tensor

    from rpdp.training.ghost.recorder import Call


@dataclass(frozen=True)
class Slot:
    """A parameter, or a block of its rows (the packed projections of attention)."""

    parameter: nn.Parameter
    start: int = 0
    stop: int | None = None

    @property
    def key(self) -> tuple[int, int, int | None]:
        """The key by which uses are grouped."""
        return id(self.parameter), self.start, self.stop

    def part(self, values: Tensor) -> Tensor:
        """The rows of this slot in a tensor with the parameter's shape."""
        return values if self.stop is None and self.start == 0 else values[self.start : self.stop]


Norm = nn.LayerNorm | nn.RMSNorm | nn.GroupNorm | _InstanceNorm
_NORMS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
_CONVOLUTIONS = (
    *(nn.Conv1d, nn.Conv2d, nn.Conv3d),
    *(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
)
_REVERSED_LINEAR = "transformers.pytorch_utils.Conv1D"
"""By name: `transformers` is not imported for it."""

SlotUse = tuple[Slot, Use]


class Rule:
    """How one layer uses its parameters. `slots` lists the trainable ones; each call uses each of them once."""

    eager = False
    """Whether uses are small and made during the backward pass, so that input and gradient can be freed at once."""

    def __init__(self, **slots: Slot | None) -> None:
        self._slots = {name: slot for name, slot in slots.items() if slot is not None and slot.parameter.requires_grad}

    @property
    def slots(self) -> list[Slot]:
        """The trainable parameters of the layer."""
        return list(self._slots.values())

    def remember(self, output: Tensor) -> tuple[Tensor, Tensor] | None:
        """Statistics of the forward pass to keep in addition to the input."""
        return None

    def uses(self, call: Call, gradient: Tensor, count: int) -> Iterator[SlotUse]:
        """The uses of every trainable parameter in one call, for `count` records."""
        raise NotImplementedError

    def _of(self, name: str) -> Slot | None:
        return self._slots.get(name)


class LinearRule(Rule):
    """y = x Wᵀ + b at every position."""

    def uses(self, call: Call, gradient: Tensor, count: int) -> Iterator[SlotUse]:
        """Positions are all dimensions between the first and the last."""
        left = by_position(gradient, count)
        if slot := self._of("weight"):
            yield slot, FactorUse(left, by_position(call.inputs, count))
        if slot := self._of("bias"):
            yield slot, DirectUse(left.sum(1) if left.shape[1] > 1 else left[:, 0])


class ReversedLinearRule(Rule):
    """y = x W + b: the Conv1D of `transformers`, whose weight has the inputs in its rows."""

    def uses(self, call: Call, gradient: Tensor, count: int) -> Iterator[SlotUse]:
        """As for a linear layer, with the factors exchanged."""
        right = by_position(gradient, count)
        if slot := self._of("weight"):
            yield slot, FactorUse(by_position(call.inputs, count), right)
        if slot := self._of("bias"):
            yield slot, DirectUse(right.sum(1))


class ConvolutionRule(Rule):
    """A convolution with stride, padding, dilation and groups, or a transposed one."""

    def __init__(self, module: nn.modules.conv._ConvNd, **slots: Slot | None) -> None:
        super().__init__(**slots)
        self._module = module

    def uses(self, call: Call, gradient: Tensor, count: int) -> Iterator[SlotUse]:
        """Positions are output pixels. Several rows per record are not supported."""
        module, inputs = self._module, call.inputs
        if inputs.shape[0] != count or inputs.dim() != len(module.kernel_size) + 2:
            raise UnsupportedModelError("a convolution gets a number of rows that differs from the number of records")
        if module.padding_mode != "zeros":
            pads = module._reversed_padding_repeated_twice
            inputs = F.pad(inputs, pads, mode=module.padding_mode)
        if (slot := self._of("weight")) and module.transposed:
            # The transpose of the convolution that leads from the output back to the input: same weight, other roles.
            shape = geometry(module, tuple(gradient.shape[2:]), tuple(inputs.shape[2:]))
            yield slot, ConvolutionUse(gradient, inputs, shape)
        elif slot:
            shape = geometry(module, tuple(inputs.shape[2:]), tuple(gradient.shape[2:]))
            yield slot, ConvolutionUse(inputs, gradient, shape)
        if slot := self._of("bias"):
            yield slot, DirectUse(gradient.sum(tuple(range(2, gradient.dim()))))


class EmbeddingRule(Rule):
    """Rows of a table. The row `padding_idx` never gets a gradient."""

    def __init__(self, module: nn.Embedding, **slots: Slot | None) -> None:
        super().__init__(**slots)
        self._padding = module.padding_idx
        self._rows = module.num_embeddings

    def uses(self, call: Call, gradient: Tensor, count: int) -> Iterator[SlotUse]:
        """Positions are look-ups."""
        index = by_position(call.inputs.unsqueeze(-1), count).squeeze(-1)
        right = by_position(gradient, count)
        if self._padding is not None:
            right = right.masked_fill((index == self._padding).unsqueeze(-1), 0.0)
        yield self._slots["weight"], IndexUse(index, right, self._rows)


class BagRule(Rule):
    """Sums or means of rows of a table. The row `padding_idx` never gets a gradient and does not count."""

    def __init__(self, module: nn.EmbeddingBag, **slots: Slot | None) -> None:
        super().__init__(**slots)
        self._module = module

    def uses(self, call: Call, gradient: Tensor, count: int) -> Iterator[SlotUse]:
        """Positions are look-ups: every row of a bag gets the gradient of the bag."""
        index = call.inputs
        if index.dim() != 2 or index.shape[0] % count:
            raise UnsupportedModelError("an EmbeddingBag gets bags of several lengths: records must come first")
        real = torch.ones_like(index, dtype=gradient.dtype)
        if self._module.padding_idx is not None:
            real = (index != self._module.padding_idx).to(gradient.dtype)
        if self._module.mode == "mean":
            real = real / real.sum(1, keepdim=True).clamp(min=1.0)
        right = gradient.unsqueeze(1) * real.unsqueeze(2)
        index, right = index.reshape(count, -1), right.reshape(count, -1, right.shape[2])
        yield self._slots["weight"], IndexUse(index, right, self._module.num_embeddings)


class NormRule(Rule):
    """Weight times normalised input plus bias, per feature (LayerNorm, RMSNorm) or channel (the other two)."""

    eager = True

    def __init__(self, module: Norm, **slots: Slot | None) -> None:
        super().__init__(**slots)
        self._module = module

    def uses(self, call: Call, gradient: Tensor, count: int) -> Iterator[SlotUse]:
        """Per-record gradients are vectors, so they are summed over positions and kept."""
        if slot := self._of("weight"):
            yield slot, DirectUse(self._scale_gradient(call, gradient, count))
        if slot := self._of("bias"):
            yield slot, DirectUse(self._reduce(gradient, count))

    def remember(self, output: Tensor) -> tuple[Tensor, Tensor] | None:
        """Mean and inverse deviation of every group, which the forward pass has already computed."""
        if not isinstance(self._module, nn.LayerNorm | nn.GroupNorm):
            return None
        node: Any = output.grad_fn
        try:
            return node._saved_result1.detach(), node._saved_result2.detach()
        except AttributeError:
            return None

    def _scale_gradient(self, call: Call, gradient: Tensor, count: int) -> Tensor:
        """Σ gradient · normalised input."""
        module, inputs = self._module, call.inputs
        if isinstance(module, nn.RMSNorm):
            normalised = F.rms_norm(inputs, module.normalized_shape, None, module.eps)
            return self._reduce(normalised.mul_(gradient), count)
        if isinstance(module, _InstanceNorm):
            return self._reduce(F.instance_norm(inputs, eps=module.eps).mul_(gradient), count)
        if isinstance(module, nn.LayerNorm):
            if call.extra is None:
                normalised = F.layer_norm(inputs, module.normalized_shape, None, None, module.eps)
            else:
                normalised = (inputs - call.extra[0]).mul_(call.extra[1])
            return self._reduce(normalised.mul_(gradient), count)
        if call.extra is None:
            normalised = F.group_norm(inputs, module.num_groups, None, None, module.eps)
            return self._reduce(normalised.mul_(gradient), count)
        mean, inverse = (
            value.repeat_interleave(module.num_channels // module.num_groups, dim=1) for value in call.extra
        )
        centred = inputs - mean.view(*mean.shape, *[1] * (inputs.dim() - 2))
        return self._reduce(centred.mul_(gradient), count).mul_(inverse)

    def _reduce(self, values: Tensor, count: int) -> Tensor:
        if isinstance(self._module, nn.GroupNorm | _InstanceNorm):
            if values.shape[0] != count:
                kind = type(self._module).__name__
                raise UnsupportedModelError(f"{kind} gets a number of rows that differs from the number of records")
            return values.sum(tuple(range(2, values.dim()))) if values.dim() > 2 else values
        features = len(self._module.normalized_shape)
        return by_position(values.flatten(-features), count).sum(1)


def by_position(values: Tensor, count: int) -> Tensor:
    """(records · copies, …, features) → (records, positions, features)."""
    if values.dim() < 2 or values.shape[0] % count:
        raise UnsupportedModelError(f"a layer sees {values.shape[0]} rows for {count} records: records must come first")
    return values.reshape(count, -1, values.shape[-1])


def rule_for(module: nn.Module, strays: Collection[int] = ()) -> Rule | None:
    """The rule of a layer, or None if there is none for exactly this class with these options.

    Args:
        module: The layer.
        strays: Ids of parameters that the rule shall leave out.
    """
    kind: Any = type(module)
    slots = {name: Slot(value) for name, value in module.named_parameters(recurse=False) if id(value) not in strays}
    if set(slots) - {"weight", "bias"} or module._forward_hooks or module._forward_pre_hooks:
        return None
    if kind in (nn.Linear, nn.modules.linear.NonDynamicallyQuantizableLinear):
        return LinearRule(**slots)
    if f"{kind.__module__}.{kind.__name__}" == _REVERSED_LINEAR:
        return ReversedLinearRule(**slots)
    if kind in _CONVOLUTIONS:
        return ConvolutionRule(cast("nn.modules.conv._ConvNd", module), **slots)
    if kind is nn.Embedding:
        table = cast("nn.Embedding", module)
        simple = table.max_norm is None and not table.scale_grad_by_freq
        return EmbeddingRule(table, **slots) if simple else None
    if kind is nn.EmbeddingBag:
        bag = cast("nn.EmbeddingBag", module)
        simple = bag.max_norm is None and not bag.scale_grad_by_freq and bag.mode != "max"
        return BagRule(bag, **slots) if simple else None
    if kind in _NORMS and not getattr(module, "track_running_stats", False):
        return NormRule(cast("Norm", module), **slots)
    return None
