"""A model with all trainable parameters in one flat tensor: one buffer to sum into, add noise to and optimise.

The parameters of the model become views of the flat tensor. So the model and any `torch.optim` optimiser of `values`
always agree, without copying.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import nn

from rpdp.errors import InputError, PrivacyRefusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

DTYPES = (torch.float32, torch.float64)


class FlatModel:
    """A model whose trainable parameters live, in their usual order, in the flat tensor `values`.

    Frozen parameters (`requires_grad=False`) stay where they are and take no part. Make one `FlatModel` per
    model, after moving the model to its device. A second one, or a later `model.to(...)`, would move the parameters
    elsewhere; `require_intact` detects that.

    Args:
        module: The model. It is changed in place (its parameters become views) and moved to `device`.
        device: Where to train: "cpu", "cuda", …
        channels_last: Whether image inputs run channels-last. The default is to do so for models with `Conv2d` and
            without `GroupNorm`: measured on a CPU, it makes a small CNN twice as fast, but not a ResNet with GroupNorm.
    """

    def __init__(
        self, module: nn.Module, device: torch.device | str = "cpu", *, channels_last: bool | None = None
    ) -> None:
        module.to(device)
        named = [(name, value) for name, value in module.named_parameters() if value.requires_grad]
        _require_flattenable(named)
        self.module = module
        self.names = [name for name, _ in named]
        self.parameters = [value for _, value in named]
        self.shapes = [value.shape for value in self.parameters]
        self.sizes = [value.numel() for value in self.parameters]
        self.values = nn.Parameter(torch.cat([value.detach().reshape(-1) for value in self.parameters]))
        for parameter, view in zip(self.parameters, self.views(self.values.data), strict=True):
            parameter.data = view
        self.channels_last = _prefers_channels_last(module) if channels_last is None else channels_last
        self._addresses = [parameter.data_ptr() for parameter in self.parameters]
        self._switches: list[tuple[bool, ...]] | None = None

    @property
    def device(self) -> torch.device:
        """The device of parameters, gradients and batches."""
        return self.values.device

    def __len__(self) -> int:
        """The number of trainable parameters."""
        return self.values.numel()

    def views(self, flat: Tensor) -> list[Tensor]:
        """The parts of a flat tensor as views, each with the shape of its parameter."""
        return [part.view(shape) for part, shape in zip(torch.split(flat, self.sizes), self.shapes, strict=True)]

    def prepare(self, tensor: Tensor) -> Tensor:
        """An input on the device of the model; image batches also in the memory format of the model."""
        tensor = tensor.to(self.device)
        if self.channels_last and tensor.dim() == 4 and tensor.is_floating_point():
            return _channels_last(tensor)
        return tensor

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """A context in which the module is in eval mode; afterwards every layer is in the mode that it was in.

        `module.train()` would be wrong afterwards: it would switch on a dropout layer that the user had switched off,
        and the kernel, chosen when it was off, gives it no masks of its own.
        """
        modes = [(layer, layer.training) for layer in self.module.modules()]
        self.module.eval()
        try:
            yield
        finally:
            for layer, training in modes:
                layer.training = training

    def note_switches(self) -> None:
        """Note which layers train, and which of them drop something: a kernel was chosen, and checked, for these."""
        self._switches = [_switches_of(layer) for layer in self.module.modules()]

    def require_intact(self) -> None:
        """Refuse a model that is not the one that was checked.

        Its parameters must be views of the flat tensor, or updates would not reach the model. No layer may have been
        switched on since the kernel was chosen: dropout that was off then has no masks of its own.
        """
        if self._switches is not None:
            now = [_switches_of(layer) for layer in self.module.modules()]
            pairs = zip(self._switches, now, strict=False)
            if len(now) != len(self._switches) or any(
                new > old for one in pairs for old, new in zip(*one, strict=True)
            ):
                raise PrivacyRefusal(
                    "a layer of the model was added, or switched on (train(), or a dropout probability above 0), after "
                    "the model was checked; nothing was released. Call model.train(), and set probabilities, before "
                    "the kernel or the trainer is made"
                )
        for parameter, address in zip(self.parameters, self._addresses, strict=True):
            if parameter.data_ptr() != address:
                raise InputError(
                    "the parameters were moved or replaced after FlatModel was made (model.to, load_state_dict with "
                    "assign=True, or a second FlatModel); make a new FlatModel from the model as it is now"
                )

    def require_finite(self) -> None:
        """Refuse a model with NaN or infinite parameters. They are public, so stopping the run reveals no record."""
        if not math.isfinite(self.values.data.sum().item()):
            raise PrivacyRefusal(
                "the model has a NaN or infinite parameter; nothing was released. Lower the learning rate or start "
                "from finite values"
            )


def _switches_of(layer: nn.Module) -> tuple[bool, ...]:
    """Whether a layer trains, and whether it drops something, under the names that torch's layers have for that."""
    own = layer.__dict__
    return (layer.training, *(isinstance(own.get(name), int | float) and own[name] > 0 for name in ("p", "dropout")))


def _require_flattenable(named: list[tuple[str, nn.Parameter]]) -> None:
    """Refuse models without trainable parameters, or with parameters that do not fit in one tensor."""
    if not named:
        raise InputError(
            "the model has no trainable parameter: all are frozen; set requires_grad=True on those to train"
        )
    for name, value in named:
        if isinstance(value, nn.parameter.UninitializedParameter):
            raise InputError(f"parameter {name} is not initialised yet: call the model once on an example first")
        if value.dtype not in DTYPES:
            raise InputError(
                f"parameter {name} has type {value.dtype}; it must be float32 or float64, because clipping in fewer "
                "bits does not bound the sensitivity. Use model.float()"
            )
    kinds = {(value.dtype, value.device): name for name, value in named}
    if len(kinds) > 1:
        found = ", ".join(f"{name} {kind} on {device}" for (kind, device), name in kinds.items())
        raise InputError(
            f"the parameters have several number types or devices: {found}; convert them to one with "
            "model.to(device, dtype)"
        )


def _channels_last(images: Tensor) -> Tensor:
    """The images in channels-last format.

    With one channel, both formats have the same bytes and `contiguous` would change nothing, so the strides are set.
    """
    if images.shape[1] > 1 or not images.is_contiguous():
        return images.contiguous(memory_format=torch.channels_last)
    _, _, height, width = images.shape
    return images.as_strided(images.shape, (height * width, 1, width, 1), images.storage_offset())


def _prefers_channels_last(module: nn.Module) -> bool:
    layers = list(module.modules())
    return any(isinstance(layer, nn.Conv2d) for layer in layers) and not any(
        isinstance(layer, nn.GroupNorm) for layer in layers
    )
