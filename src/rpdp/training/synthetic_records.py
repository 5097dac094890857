"""Records made of public numbers, with the shapes and types of real ones: what model and loss are checked on.

A check that ran on real records could fail because of one of them, and everybody who sees that the run did not start
would learn something about it (privacy.md, rules 12 and 16). Shapes and types of the tensors are public, so checks use
those and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rpdp.training.records import Records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

_GOLDEN = 0.6180339887498949
"""The multiples of this number, modulo 1, fill the interval from 0 to 1 evenly and without a pattern."""


def synthetic_like(
    example: Records, count: int, low: float = 0.0, high: float = 1.0, whole: int | None = None
) -> Records:
    """`count` records: floating-point numbers between `low` and `high`, whole numbers 0 and 1 or all equal `whole`."""
    tensors = [_filled(tensor, count, low, high, whole) for tensor in (*example.inputs, example.targets)]
    return Records(tuple(tensors[:-1]), tensors[-1])


def synthetic_variants(example: Records, count: int) -> Iterator[Records]:
    """Several sets of records: model and loss should be fine with one of them, whatever their numbers mean."""
    for low, high in ((0.0, 1.0), (-2.0, 2.0)):
        for whole in (None, 0, 1):  # class 1, or word 1, may not exist
            yield synthetic_like(example, count, low, high, whole)


def _filled(tensor: Tensor, count: int, low: float, high: float, whole: int | None) -> Tensor:
    shape = (count, *tensor.shape[1:])
    numbers = torch.arange(1, 1 + torch.Size(shape).numel(), dtype=torch.float64).mul_(_GOLDEN).remainder_(1.0)
    if tensor.is_floating_point() or tensor.is_complex():
        return numbers.mul_(high - low).add_(low).reshape(shape).to(tensor.device, tensor.dtype)
    if whole is not None:
        return torch.full(shape, whole, dtype=tensor.dtype, device=tensor.device)
    return numbers.ge_(0.5).reshape(shape).to(tensor.device, tensor.dtype)
