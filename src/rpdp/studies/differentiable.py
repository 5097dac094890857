"""A check that a model can be trained: its parameters must get a gradient from the loss."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch

from rpdp.errors import InputError, RpdpError
from rpdp.training import FlatModel
from rpdp.training.synthetic_records import synthetic_variants

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor, nn

    from rpdp.training import Records


def require_differentiable(
    model: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], silos: Mapping[str, Records]
) -> list[str]:
    """Return the names of parameters that the loss does not reach; refuse a model and loss that reach none or fail.

    Model and loss run on synthetic records of the silos' shapes and types, never on real ones: a real run must not stop
    because a record makes the model raise (privacy.md, rule 12). A model whose gradient is exactly zero on all of them
    (because of rounding or thresholds) is refused as well: no step could change it, but every step would be charged.
    """
    flat = FlatModel(copy.deepcopy(model))
    flat.module.eval()
    failures: list[str] = []
    reached = False
    for name, records in silos.items():
        for synthetic in synthetic_variants(records, 2):
            try:
                gradients = _gradients(flat, loss, synthetic)
            except RpdpError:
                raise
            except Exception as error:  # user code may raise anything
                text = (str(error) or "no message").splitlines()[0]
                failures.append(f"silo {name}: model and loss fail on made-up records: {type(error).__name__}: {text}")
                continue
            reached = True
            if any(gradient is not None and bool((gradient != 0).any()) for gradient in gradients.values()):
                return [one for one, gradient in gradients.items() if gradient is None]
    if not reached:
        raise InputError(failures[0])
    raise InputError(
        "the model is not differentiable: on made-up records of the data's shapes and types, no parameter gets a "
        "gradient other than zero from the loss (look for an argmax, rounding or detach)"
    )


def _gradients(flat: FlatModel, loss: Callable[[Tensor, Tensor], Tensor], records: Records) -> dict[str, Tensor | None]:
    losses = loss(flat.module(*[flat.prepare(tensor) for tensor in records.inputs]), records.targets)
    if not isinstance(losses, torch.Tensor):
        raise InputError(f"the loss returned {type(losses).__name__}; it must return one value per record")
    if not losses.requires_grad:
        return dict.fromkeys(flat.names)
    found = torch.autograd.grad(losses.sum(), flat.parameters, allow_unused=True)
    return dict(zip(flat.names, found, strict=True))
