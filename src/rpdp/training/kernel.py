"""The interface of all kernels: a kernel computes the sum of the clipped gradients of some records.

Clipping is record by record: record i contributes g_i · min(1, C / |g_i|) with C = L (1 − 1e-4). So adding or removing
a record moves the sum by at most the clip norm L (privacy.md, rules 5 and 15). A record contributes exactly zero if its
gradient, or the squared norm of it, is NaN or infinite (rule 12).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from rpdp.display import counts_repr
from rpdp.errors import InputError
from rpdp.sampling.keystream import KEY_BYTES
from rpdp.training.record_masks import MaskedRun

if TYPE_CHECKING:
    from rpdp.sampling import Randomness
    from rpdp.training.flat_model import FlatModel
    from rpdp.training.records import Records

CLIP_SLACK = 1e-4
"""Gradients are clipped at L (1 − CLIP_SLACK).

Norms, factors and sums are computed in float32. Their rounding errors are about 1e-6 of the clip norm for
well-conditioned layers, and `ghost.cancellation` bounds them by 8e-5. So a clipped gradient stays within L.
"""

SMALLEST_CLIP_NORM = 1e-10
"""The smallest clip norm that float32 can enforce.

The square of a float32 number below 1e-19 loses digits, and below 1e-23 it vanishes. Norms allow for that
(`lost_squares`) as long as the clip norm is well above 1e-19.
"""

PerRecordLoss = Callable[[Tensor, Tensor], Tensor]
"""A function of the model's output and the targets that returns one value per record.

For example `F.cross_entropy(..., reduction="none")`.
"""


Progress = Callable[[int], None]
"""Called with p when `total[p:]` is final, so that its noise can be added while the rest is computed."""


@dataclass(frozen=True)
class ClippedSum:
    """The result of a kernel. All of it is sensitive and stays in the silo: only the noisy sum may leave.

    Attributes:
        total: Flat sum of the clipped gradients.
        count: Number of records in the sum, including those that contribute zero.
        norms: Norm of each record's gradient before clipping; NaN or infinite where the gradient is.
    """

    total: Tensor
    count: int
    norms: Tensor

    __repr__ = counts_repr


class Kernel(ABC):
    """Computes sums of clipped per-record gradients of one model and one loss.

    Attributes:
        draws_masks: Whether model or loss draw masks (dropout). `make_kernel` finds out. Records then need masks.
    """

    name: ClassVar[str]

    def __init__(self, model: FlatModel, loss: PerRecordLoss) -> None:
        self.model = model
        self.loss = loss
        self.draws_masks = False

    def clipped_sum(self, records: Records, clip_norm: float) -> ClippedSum:
        """The clipped sum over these records, as a new flat tensor; zero for no records."""
        total = torch.zeros_like(self.model.values.data)
        norms = self.add_clipped_sum(records, clip_norm, total)
        return ClippedSum(total, len(records), norms)

    def add_clipped_sum(
        self, records: Records, clip_norm: float, total: Tensor, progress: Progress | None = None
    ) -> Tensor:
        """Add the clipped sum over these records to `total`; return the norms before clipping.

        A kernel that works from the end of `total` to its beginning reports to `progress` how far it is.

        | records | effect |
        |---|---|
        | none | `total` is unchanged, the model is not called |
        | one with a NaN or infinite gradient | it adds exactly zero; all other records are unaffected |
        """
        require_clip_norm(clip_norm)
        self.model.require_intact()
        if len(records) == 0:
            return self.model.values.new_zeros(0)
        return self._add(records, clip_norm * (1 - CLIP_SLACK), total, progress)

    def mask_key(self, randomness: Randomness) -> bytes | None:
        """A new key for the masks of one step, from the run's own randomness; None for a model without dropout."""
        return randomness.words(KEY_BYTES // 8).tobytes() if self.draws_masks else None

    def masked_run(self, records: Records) -> AbstractContextManager[object]:
        """A context in which model and loss draw the masks of these records."""
        if records.masks is not None:
            return MaskedRun(records.masks)
        if self.draws_masks:
            raise InputError(
                "the model has dropout, and these records have no masks: use "
                "records.select(drawn).masked(kernel.mask_key(randomness), drawn)"
            )
        return nullcontext()

    @abstractmethod
    def _add(self, records: Records, bound: float, total: Tensor, progress: Progress | None) -> Tensor:
        """Like `add_clipped_sum`, for at least one record, clipping at `bound`."""

    def record_losses(self, records: Records) -> Tensor:
        """Run model and loss on a batch; refuse anything but one value per record."""
        prepare = self.model.prepare
        with self.masked_run(records):
            output = self.model.module(*[prepare(tensor) for tensor in records.inputs])
            losses = self.loss(output, records.targets.to(self.model.device))
        require_record_losses(losses, len(records))
        if not losses.requires_grad:
            raise InputError(
                "the loss does not depend on any trainable parameter; check for torch.no_grad() or detach() in the "
                "model or the loss"
            )
        return losses


def require_clip_norm(clip_norm: float) -> None:
    """Refuse a clip norm that is not positive and finite, or too small for float32."""
    if not 0 < clip_norm < float("inf"):
        raise InputError(f"clip_norm={clip_norm} must be positive and finite")
    if clip_norm < SMALLEST_CLIP_NORM:
        raise InputError(
            f"clip_norm={clip_norm} must be at least {SMALLEST_CLIP_NORM}: float32 cannot tell smaller norms apart"
        )


def lost_squares(values: Tensor, terms: int) -> float:
    """The largest amount that a sum of `terms` squares can lose because small squares underflow.

    One factor of a gradient can be tiny and another huge, so that a square vanishes although the product does not, and
    finite weights can be chosen to make this happen. A norm that is used for clipping must not be below the true one,
    so this amount is added to it. Where nothing underflows, adding it changes no bit of the sum.
    """
    return terms * torch.finfo(values.dtype).tiny


def require_record_losses(losses: object, count: int) -> None:
    """Refuse a loss that does not return exactly one value per record, and say how to fix it."""
    if not isinstance(losses, Tensor):
        raise InputError(
            f"the loss returned {type(losses).__name__}; it must return a tensor with one value per record"
        )
    if losses.dim() == 0:
        raise InputError(
            "the loss returned a scalar; clipping needs one value per record, of shape (records,): use "
            "reduction='none' and do not average over the batch"
        )
    if losses.shape != (count,):
        raise InputError(
            f"the loss returned shape {tuple(losses.shape)} for {count} records; it must be ({count},), one value per "
            "record: average or sum over the other dimensions, and check that outputs and targets have the same shape"
        )


def clip_factors(squared_norms: Tensor, bound: float) -> tuple[Tensor, Tensor | None]:
    """min(1, bound / norm) per record, zero where the norm is NaN or infinite; and a mask of these records, if any."""
    factors = squared_norms.rsqrt().mul_(bound).clamp_(max=1.0)
    if math.isfinite(squared_norms.sum().item()):  # the usual case: a finite sum means that all are finite
        return factors, None
    bad = ~torch.isfinite(squared_norms)
    return factors.masked_fill_(bad, 0.0), bad
