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
    from torch import nn

    from rpdp.training.flat_model import FlatModel
    from rpdp.training.kernel import Kernel, PerRecordLoss
    from rpdp.training.records import Records


_ACCEPTED = "rpdp_one_record_at_a_time"
"""Where a module says that it may run one record at a time; copies of the module say it, too."""


class SlowKernelWarning(UserWarning):
    """The model has a layer without a closed form, so a slower way with the same result is used."""


class OneRecordAtATimeWarning(SlowKernelWarning):
    """The model, or a layer of it, runs one record at a time, and nobody accepted that."""


def make_kernel(model: FlatModel, loss: PerRecordLoss, example: Records) -> Kernel:
    """Check model and loss, and return the fastest kernel for them. This releases nothing.

    The ghost kernel is used where it applies and agrees with plain autograd on two records. A layer without a closed
    form runs once more for each record, in `vmap` or one by one. A model for which that does not work either runs in
    `vmap`, or one record at a time, as a whole. A `SlowKernelWarning` says which, and why.

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
    model.note_switches()
    return kernel


def accept_one_record_at_a_time(module: nn.Module) -> nn.Module:
    """Accept that a model, or a layer of it, runs record by record: `make_kernel` no longer warns of that.

    It is slow: a step takes as long as one forward and backward pass for each drawn record.
    """
    module.__dict__[_ACCEPTED] = True
    return module


def _fastest(model: FlatModel, loss: PerRecordLoss, pair: Records, draws_masks: bool) -> Kernel:
    if not draws_masks and AffineKernel.supports(model, pair):
        return AffineKernel(model, loss)
    try:
        ghost = GhostKernel.fitted(model, loss, pair)
    except UnsupportedModelError as reason:
        explanation = str(reason)
    else:
        _warn_of_odd_layers(ghost, model)
        return ghost
    try:
        kernel: Kernel = VmapKernel(model, loss)
        kernel.clipped_sum(pair, 1.0)
    except (RuntimeError, ValueError, NotImplementedError) as error:
        explanation = f"{explanation}; vmap: {str(error).splitlines()[0]}"
        _warn_of_single_records(f"{explanation}; the model", model.module)
        return LoopKernel(model, loss)
    message = f"{explanation}; falling back to per-record gradients (torch.func.vmap): slower, same result"
    warnings.warn(message, SlowKernelWarning, stacklevel=4)
    return kernel


def _warn_of_odd_layers(kernel: GhostKernel, model: FlatModel) -> None:
    for layer in kernel.odd_layers:
        name = layer.name or "the model"
        own = ", ".join(layer.slots)
        if layer.by_record:
            _warn_of_single_records(f"there is no closed form for {name} ({own}); it", layer.module)
        else:
            message = (
                f"there is no closed form for {name} ({type(layer.module).__name__}: {own}): it runs once more, in "
                "torch.func.vmap; all other layers keep theirs: slower, same result"
            )
            warnings.warn(message, SlowKernelWarning, stacklevel=5)


def _warn_of_single_records(what: str, module: nn.Module) -> None:
    if not module.__dict__.get(_ACCEPTED, False):
        message = (
            f"{what} runs one record at a time: very slow, same result. Use layers that the fast kernels support, or "
            "accept it with rpdp.training.accept_one_record_at_a_time(module)"
        )
        warnings.warn(message, OneRecordAtATimeWarning, stacklevel=5)
