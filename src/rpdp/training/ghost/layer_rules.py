"""Layer rules: how each supported layer uses its parameters, given its input and output gradient.

Supported are Linear (with any number of middle dimensions), Conv1d/2d/3d, Embedding, LayerNorm, GroupNorm,
MultiheadAttention (see `attention`), RNN, LSTM and GRU (see `recurrent`). A rule applies to exactly these classes,
because a subclass may do something else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch.nn.functional as F
from torch import nn

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

    def inputs(self, arguments: tuple[Any, ...]) -> Tensor:
        """The input of a call with several arguments."""
        raise UnsupportedModelError(f"a layer is called with {len(arguments)} arguments, and its closed form has one")

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


class ConvolutionRule(Rule):
    """A convolution with stride, padding, dilation and groups."""

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
        if slot := self._of("weight"):
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


class NormRule(Rule):
    """LayerNorm and GroupNorm: weight times normalised input plus bias, per feature or channel."""

    eager = True

    def __init__(self, module: nn.LayerNorm | nn.GroupNorm, **slots: Slot | None) -> None:
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
        node: Any = output.grad_fn
        try:
            return node._saved_result1.detach(), node._saved_result2.detach()
        except AttributeError:
            return None

    def _scale_gradient(self, call: Call, gradient: Tensor, count: int) -> Tensor:
        """Σ gradient · normalised input."""
        module, inputs = self._module, call.inputs
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
        if isinstance(self._module, nn.GroupNorm):
            if values.shape[0] != count:
                raise UnsupportedModelError("a GroupNorm gets a number of rows that differs from the number of records")
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
    if kind in (nn.Conv1d, nn.Conv2d, nn.Conv3d):
        return ConvolutionRule(cast("nn.modules.conv._ConvNd", module), **slots)
    if kind is nn.Embedding:
        table = cast("nn.Embedding", module)
        simple = table.max_norm is None and not table.scale_grad_by_freq
        return EmbeddingRule(table, **slots) if simple else None
    if kind in (nn.LayerNorm, nn.GroupNorm):
        return NormRule(cast("nn.LayerNorm | nn.GroupNorm", module), **slots)
    return None
