"""Dynamic checks: run model and loss on two synthetic records before the first step.

Clipping bounds the effect of one record on the sum only if no other record's gradient depends on it. The probe runs
model and loss on a pair of records. The first record's loss must have a derivative of exactly zero with respect to the
second record's input, must not change when the second record gets other words and another class, and must be the same
alone as in the pair. This detects batch statistics, contrastive losses and
in-batch weighting. It cannot detect code that mixes records only later, or only in rare cases. With dropout, the masks
keep all of one record and nothing of the other, and then the other way round, so a layer that takes the masks of
another record shows, however rarely it drops something. The probe also detects
models whose buffers change when they run, or that draw random numbers from elsewhere than the run. It never sees a real
record: whether a run starts must not depend on one.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from rpdp.errors import InputError, PrivacyRefusal, RpdpError
from rpdp.sampling.keystream import KEY_BYTES
from rpdp.training.record_masks import ProbeMasks
from rpdp.training.records import Records
from rpdp.training.synthetic_records import synthetic_variants

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from rpdp.training.kernel import Kernel

VALUE_TOLERANCE = 1e-3
"""The relative difference between a loss alone and in a pair that rounding can explain, with a margin.

Records that influence each other differ by more.
"""

ROUNDING = 64
"""By how many units in the last place a loss may differ between two batches of the same shape: other code may run."""

_KEY = bytes(KEY_BYTES)
"""The key of the masks in a probe. It is no secret: nothing is released."""


def probe_pair(kernel: Kernel, records: Records) -> Records:
    """Two synthetic records for the probe, with masks, and with finite losses if possible."""
    if len(records) == 0:
        raise InputError("the data set is empty: give at least one record to train on")
    with _undisturbed(kernel):
        pairs = [pair.masked(_KEY, np.arange(2)) for pair in synthetic_variants(records, 2)]
        outcomes = [(pair, _outcome(kernel, pair)) for pair in pairs]
    if all(isinstance(outcome, Exception) for _, outcome in outcomes):
        error = outcomes[0][1]
        raise InputError(
            f"model or loss fails on made-up records of the data's shapes and types: {type(error).__name__}: {error}; "
            "check both against the shape and type of the data. They must take any value: a record that they fail on "
            "contributes nothing"
        )
    # False (a loss that is not finite) comes before an exception, and True before both.
    return min(outcomes, key=lambda found: (found[1] is not True, found[1] is not False))[0]


@contextmanager
def _undisturbed(kernel: Kernel) -> Iterator[tuple[dict[str, Tensor], list[Tensor]]]:
    """Yield the current buffers and generator states, and restore both afterwards."""
    buffers = dict(kernel.model.module.named_buffers())
    before = {name: buffer.clone() for name, buffer in buffers.items()}
    device = kernel.model.device
    states = _generator_states(device)
    try:
        yield before, states
    finally:
        for name, buffer in buffers.items():
            buffer.copy_(before[name])
        torch.set_rng_state(states[0])
        if device.type == "cuda":
            torch.cuda.set_rng_state(states[1], device)


def _generator_states(device: torch.device) -> list[Tensor]:
    """The states of torch's CPU generator and, on a GPU, of the device's own generator."""
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]


def _outcome(kernel: Kernel, records: Records) -> bool | Exception:
    """Whether the losses of these records are finite, or the error they caused."""
    try:
        with torch.no_grad():
            return bool(torch.isfinite(_losses(kernel, records)).all())
    except RpdpError:
        raise
    except Exception as error:  # user code may raise anything
        return error


def require_repeatable(kernel: Kernel, records: Records) -> bool:
    """Refuse a model that changes its buffers, or whose randomness is not the run's own, when it runs forward and back.

    Returns:
        Whether model and loss draw masks (dropout).
    """
    with _undisturbed(kernel) as (buffers, states):
        losses = _losses(kernel, records)
        torch.autograd.grad(losses.sum(), kernel.model.parameters, allow_unused=True)
        now = dict(kernel.model.module.named_buffers())
        changed = [name for name, before in buffers.items() if not _same(now[name], before)]
        drew = not all(map(torch.equal, states, _generator_states(kernel.model.device)))
    if changed:
        raise PrivacyRefusal(
            f"running the model changes its buffers {changed}, which would carry data of the records past the "
            "noise. Remove them, or use layers without running statistics"
        )
    with _undisturbed(kernel):
        again = _losses(kernel, records)
    if drew or not torch.equal(losses.nan_to_num(), again.nan_to_num()):
        raise PrivacyRefusal(
            "model or loss draw random numbers from a generator of their own: the same records with the same weights "
            "and masks give other losses the second time. A new record would shift the numbers of all others; use "
            "torch's dropout layers, whose masks come from the run's own randomness"
        )
    return records.masks is not None and records.masks.draws > 0


def require_independent_records(kernel: Kernel, pair: Records) -> None:
    """Refuse model and loss if the loss of one record depends on another record."""
    watched = Records(
        tuple(
            tensor.detach().clone().requires_grad_() if tensor.is_floating_point() else tensor for tensor in pair.inputs
        ),
        pair.targets,
        masks=pair.masks,
    )
    together = _losses(kernel, watched)
    alone = _losses(kernel, pair.rows(0, 1))
    inputs = [tensor for tensor in watched.inputs if tensor.requires_grad]
    gradients = torch.autograd.grad(together[0], inputs, allow_unused=True) if inputs else ()
    if any(gradient is not None and _reaches(gradient[1]) for gradient in gradients):
        raise _mixes("its derivative with respect to the other record's input is not zero")
    _require_same(together[0], alone[0])
    _require_indifference(kernel, pair, together[0].detach())
    if pair.masks is not None and pair.masks.draws:
        _require_own_masks(kernel, pair)


def _require_indifference(kernel: Kernel, pair: Records, before: Tensor) -> None:
    """Change every whole number of the second record: words, for which there is no derivative, and classes."""
    for number in (0, 1):
        *inputs, targets = (_with_other_numbers(tensor, number) for tensor in (*pair.inputs, pair.targets))
        changed = replace(pair, inputs=tuple(inputs), targets=targets)
        if isinstance(_outcome(kernel, changed), Exception):
            continue  # word 1, or class 1, may not exist
        after = _losses(kernel, changed)[0].detach()
        if not torch.isclose(before, after, rtol=ROUNDING * torch.finfo(after.dtype).eps, atol=0.0, equal_nan=True):
            raise _mixes(f"it is {float(before):.9g}, and {float(after):.9g} when only the other record changes")


def _with_other_numbers(pair: Tensor, number: int) -> Tensor:
    """The pair with one whole number everywhere in the second record."""
    if pair.is_floating_point() or pair.is_complex():
        return pair
    return torch.cat([pair[:1], torch.full_like(pair[1:], number)])


def _require_own_masks(kernel: Kernel, pair: Records) -> None:
    for is_kept in ([True, False], [False, True]):
        masked = replace(pair, masks=ProbeMasks(np.array(is_kept)))
        together = _losses(kernel, masked)
        for row in range(2):
            _require_same(together[row], _losses(kernel, masked.rows(row, row + 1))[0])


def _require_same(together: Tensor, alone: Tensor) -> None:
    one, other = together.detach(), alone.detach()
    if not torch.isclose(one, other, rtol=VALUE_TOLERANCE, atol=VALUE_TOLERANCE * 1e-2, equal_nan=True):
        raise _mixes(f"alone it is {float(other):.6g}, in a batch with another record {float(one):.6g}")


def _losses(kernel: Kernel, records: Records) -> Tensor:
    with torch.enable_grad():
        return kernel.record_losses(records)


def _reaches(gradient: Tensor) -> bool:
    return bool(((gradient != 0) & torch.isfinite(gradient)).any())


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool(((one == other) | ((one != one) & (other != other))).all())


def _mixes(evidence: str) -> PrivacyRefusal:
    return PrivacyRefusal(
        f"the loss of one record depends on another record: {evidence}. Clipping then does not bound the effect of one "
        "record; remove batch statistics and in-batch comparisons from model and loss. Dropout needs tensors in which "
        "records come first (batch_first=True)"
    )
