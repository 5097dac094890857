"""Norms that can be trusted: what to do when a record's positions cancel.

Factors give a gradient as Σ_t l_t r_tᵀ. When its terms cancel, so that |g| is far below |l||r|, rounding
(relative to |l||r|) matters twice: the Gram form of |g|² loses digits, and so does the sum that is formed
from the same factors. Measured (tests/training/test_cancellation.py), the error of |g|² in Gram form stays
below GRAM_ERROR·u·|l|²|r|² with u the unit roundoff. So a record whose Gram form could be off by more than
GRAM_TOLERANCE gets its norm by the direct form; and beyond a cancellation of 1/√FLOOR ≈ 300 the gradient that
reaches the sum is itself mostly rounding, and the record is scaled as if its norm were √FLOOR·|l||r|: it then
moves the sum by at most L all the same. Both depend on that record alone.
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
"""Bound on the error of a squared norm in Gram form, in units of u·|l|²|r|²: four times the largest measured
(4.01, at 64 positions of 384 features)."""

GRAM_TOLERANCE = 1e-4
"""Largest relative error of a squared norm accepted from the Gram form: 5e-5 of the norm, half the slack. The
other half covers the rounding of the sum, 2e-6 where the Gram form is accepted."""

FLOOR_ROUNDINGS = 170.0
"""The floor of |g|²/(|l|²|r|²) in units of u: 1e-5 in float32, where rounding of the sum reaches 8e-5 of the
norm."""

DIRECT_BYTES = 64 * 2**20
"""Memory for direct gradients of the few records that need them."""


def total_norms(uses: Sequence[Use]) -> Tensor:
    """Squared norms over all parameters, safe against cancellation; NaN or infinite where a gradient is."""
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
        found = [use.per_record(some).square().sum(1) for some in torch.split(rows, step)]
        total += torch.cat(found)
    return total
