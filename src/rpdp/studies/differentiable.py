"""A check that a model can be trained: its parameters must get a gradient from the loss."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch

from rpdp.errors import InputError, RpdpError
from rpdp.training import FlatModel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor, nn

    from rpdp.training import Records

TRIED = 8
"""How many records of a silo are tried, one by one, before the next silo."""


def require_differentiable(
    model: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], silos: Mapping[str, Records]
) -> list[str]:
    """Return the names of parameters that the loss does not reach; refuse a model and loss that reach none or fail.

    A model whose gradient is exactly zero on all of the first records (because of rounding or thresholds) is refused as
    well: no step could change it, but every step would be charged.
    """
    flat = FlatModel(copy.deepcopy(model))
    flat.module.eval()
    unreached: list[str] = []
    for name, records in silos.items():
        for record in records.rows(0, TRIED).chunks(1):
            gradients = _gradients(flat, loss, record, name)
            unreached = [one for one, gradient in gradients.items() if gradient is None]
            if any(gradient is not None and bool((gradient != 0).any()) for gradient in gradients.values()):
                return unreached
    raise InputError(
        "the model is not differentiable: on the first records of every silo, no parameter gets a gradient other than "
        "zero from the loss (look for an argmax, rounding or detach)"
    )


def _gradients(
    flat: FlatModel, loss: Callable[[Tensor, Tensor], Tensor], record: Records, silo: str
) -> dict[str, Tensor | None]:
    try:
        losses = loss(flat.module(*[flat.prepare(tensor) for tensor in record.inputs]), record.targets)
        if not isinstance(losses, torch.Tensor):
            raise InputError(f"the loss returned {type(losses).__name__}; it must return one value per record")
        if not losses.requires_grad:
            return dict.fromkeys(flat.names)
        found = torch.autograd.grad(losses.sum(), flat.parameters, allow_unused=True)
    except RpdpError:
        raise
    except Exception as error:
        text = (str(error) or "no message").splitlines()[0]
        raise InputError(f"silo {silo}: model and loss fail on a record: {type(error).__name__}: {text}") from error
    return dict(zip(flat.names, found, strict=True))
