"""Chooses the fastest kernel that is correct for a model and a loss."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from rpdp.training.affine_kernel import AffineKernel
from rpdp.training.ghost import GhostKernel, UnsupportedModelError
from rpdp.training.loop_kernel import LoopKernel
from rpdp.training.model_checks import require_private
from rpdp.training.model_probe import probe_pair, require_independent_records, require_repeatable
from rpdp.training.vmap_kernel import VmapKernel

if TYPE_CHECKING:
    from rpdp.training.flat_model import FlatModel
    from rpdp.training.kernel import Kernel, PerRecordLoss
    from rpdp.training.records import Records


class SlowKernelWarning(UserWarning):
    """The model has a layer without a closed form, so a slower kernel with the same result is used."""


def make_kernel(model: FlatModel, loss: PerRecordLoss, example: Records) -> Kernel:
    """Check model and loss, and return the fastest kernel for them. This releases nothing.

    The ghost kernel is used where it applies and agrees with plain autograd on two records. Otherwise `vmap`, or one
    record at a time, is used, with a `SlowKernelWarning` that says why.

    Args:
        model: The model to train.
        loss: A function of output and targets that returns one value per record.
        example: Some records of the data set. Only their shapes and types are used: the probe judges the code of model
            and loss on synthetic records.

    Raises:
        InputError: The data set is empty, or the loss does not return one value per record.
        PrivacyRefusal: The model is not fit for private training, or records influence each other.
    """
    require_private(model.module)
    model.require_finite()
    reference = LoopKernel(model, loss)
    pair = probe_pair(reference, example)
    draws_masks = require_repeatable(reference, pair)
    require_independent_records(reference, pair)
    kernel = _fastest(model, loss, pair, draws_masks)
    kernel.draws_masks = draws_masks
    return kernel


def _fastest(model: FlatModel, loss: PerRecordLoss, pair: Records, draws_masks: bool) -> Kernel:
    if not draws_masks and AffineKernel.supports(model, pair):
        return AffineKernel(model, loss)
    try:
        ghost = GhostKernel(model, loss)
        ghost.require_sound(pair)
    except UnsupportedModelError as reason:
        explanation = str(reason)
    else:
        return ghost
    try:
        kernel: Kernel = VmapKernel(model, loss)
        kernel.clipped_sum(pair, 1.0)
        name = "per-record gradients (torch.func.vmap)"
    except (RuntimeError, ValueError, NotImplementedError) as error:
        kernel, name = LoopKernel(model, loss), "one record at a time"
        explanation = f"{explanation}; vmap: {str(error).splitlines()[0]}"
    warnings.warn(f"{explanation}; falling back to {name}: slower, same result", SlowKernelWarning, stacklevel=4)
    return kernel
