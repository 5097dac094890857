"""Reliable norms when the terms of a record's gradient cancel.

Factors give a gradient as Σ_t l_t r_tᵀ. When its terms cancel, |g| is far below |l||r|. Rounding errors are relative
to |l||r|, so they then matter twice: the Gram form of |g|² loses digits, and so does the sum that is formed from the
same factors. The measured error of |g|² in Gram form (tests/training/test_cancellation.py) stays below
GRAM_ERROR·u·|l|²|r|², where u is the unit roundoff. A record whose Gram form could be off by more than GRAM_TOLERANCE
therefore gets its norm from the direct form. Beyond a cancellation of 1/√FLOOR ≈ 300, the gradient that reaches the sum
is itself mostly rounding error. The record is then scaled as if its norm were √FLOOR·|l||r|, so it still moves the sum
by at most L. Both decisions depend on that record alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rpdp.training.ghost.parameter_uses import DirectUse, Norms, share_grams

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from rpdp.training.ghost.parameter_uses import Use

GRAM_ERROR = 16.0
"""Bound on the error of a squared norm in Gram form, in units of u·|l|²|r|².

It is four times the largest measured error (4.01, with 64 positions of 384 features).
"""

GRAM_TOLERANCE = 1e-4
"""Largest relative error of a squared norm that is accepted from the Gram form.

It corresponds to 5e-5 of the norm, half of the clipping slack. The other half covers the rounding of the sum, which is
2e-6 where the Gram form is accepted.
"""

FLOOR_ROUNDINGS = 170.0
"""The floor of |g|²/(|l|²|r|²) in units of u: 1e-5 in float32, where rounding of the sum reaches 8e-5 of the norm."""

DIRECT_BYTES = 64 * 2**20
"""Memory for the direct gradients of the few records that need them."""


def total_norms(uses: Sequence[Use]) -> Tensor:
    """Squared norms over all parameters, reliable despite cancellation; NaN or infinite where a gradient is."""
    share_grams(uses)
    parts = [use.norms() for use in uses]
    squared = torch.stack([part.squared for part in parts]).sum(0)
    scale = torch.stack([part.scale for part in parts]).sum(0)
    roundoff = torch.finfo(squared.dtype).eps / 2
    doubtful = squared < scale * (GRAM_ERROR * roundoff / GRAM_TOLERANCE)
    if bool(doubtful.any()):
        rows = doubtful.nonzero().squeeze(1)
        squared = squared.index_copy(0, rows, _direct_norms(uses, parts, rows))
    return torch.maximum(squared, scale * (FLOOR_ROUNDINGS * roundoff))


def _direct_norms(uses: Sequence[Use], parts: Sequence[Norms], rows: Tensor) -> Tensor:
    """The squared norms of a few records by materialising their gradients, parameter by parameter."""
    total = parts[0].squared.new_zeros(len(rows))
    for use, part in zip(uses, parts, strict=True):
        if isinstance(use, DirectUse):
            total += part.squared[rows]
            continue
        size = use.per_record(rows[:1]).numel() * total.element_size()
        step = max(1, DIRECT_BYTES // size)
        squared = [use.per_record(some).square().sum(1) for some in torch.split(rows, step)]
        total += torch.cat(squared)
    return total
