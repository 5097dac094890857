"""Two records before the first step: do they influence each other, does running the model change it?

Clipping bounds what one record does to the sum only if no other record's gradient depends on it. The probe
runs model and loss on a pair: the first record's loss must have derivative exactly zero with respect to the
second record's input, and must be the same alone as in the pair. It finds batch statistics, contrastive
losses and in-batch weighting; code that mixes records only later, or only in rare cases, it cannot find.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from rpdp.errors import InputError, PrivacyRefusal, RpdpError
from rpdp.training.records import Records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from rpdp.training.kernel import Kernel

VALUE_TOLERANCE = 1e-3
"""Relative difference of a loss alone and in a pair that rounding explains, with room to spare; coupling
shows as more."""

CANDIDATES = 8
"""The probe takes the first two records with finite loss among this many: a damaged record must not stop a
run."""


def probe_pair(kernel: Kernel, records: Records) -> Records:
    """Two records to probe with."""
    if len(records) == 0:
        raise InputError("the data set is empty: there is no record to train on")
    some = records.rows(0, CANDIDATES)
    with _undisturbed(kernel):
        tried = [_tried(kernel, some.rows(row, row + 1)) for row in range(len(some))]
    if all(isinstance(outcome, Exception) for outcome in tried):
        error = tried[0]
        raise InputError(f"model or loss fails on records: {type(error).__name__}: {error}")
    good = [row for row, outcome in enumerate(tried) if outcome is True]
    usable = [row for row, outcome in enumerate(tried) if not isinstance(outcome, Exception)]
    first = good[0] if good else usable[0]
    second = good[1] if len(good) > 1 else first
    return records.select([first, second])


@contextmanager
def _undisturbed(kernel: Kernel) -> Iterator[tuple[dict[str, Tensor], list[Tensor]]]:
    """Buffers of the model and states of torch's generators as they are now, and will be again afterwards."""
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
    """Of torch's generator, and of the one that a GPU has of its own."""
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]


def _tried(kernel: Kernel, record: Records) -> bool | Exception:
    """Whether the loss of one record is finite, or what went wrong: a damaged record must not stop a run."""
    try:
        with torch.no_grad():
            return bool(torch.isfinite(_losses(kernel, record)).all())
    except RpdpError:
        raise
    except Exception as error:  # whatever a model does with a record
        return error


def require_repeatable(kernel: Kernel, records: Records) -> None:
    """Refuse a model that changes its buffers, or draws random numbers of torch, when it runs.

    Random masks (dropout) are no leak in themselves while nobody knows them. But all randomness of a release comes
    from one `Randomness`, and torch's generator may have a known seed: then a new record shifts the masks of the
    records after it, and moves the sum by more than the clip norm.
    """
    with _undisturbed(kernel) as (buffers, states):
        _losses(kernel, records)
        now = dict(kernel.model.module.named_buffers())
        changed = [name for name, before in buffers.items() if not _same(now[name], before)]
        drew = not all(map(torch.equal, states, _generator_states(kernel.model.device)))
    if changed:
        raise PrivacyRefusal(
            f"running the model changes its buffers {changed}: they would carry data of the records past the "
            "noise. Remove them, or use layers without running statistics"
        )
    if drew:
        raise PrivacyRefusal(
            "running the model draws from torch's random generator (dropout?), whose seed others may know; set "
            "p=0 in its dropout layers, or put those layers in eval mode"
        )


def require_independent_records(kernel: Kernel, pair: Records) -> None:
    """Refuse model and loss in which one record's loss depends on another record."""
    watched = Records(
        tuple(
            tensor.detach().clone().requires_grad_() if tensor.is_floating_point() else tensor for tensor in pair.inputs
        ),
        pair.targets,
    )
    together = _losses(kernel, watched)
    alone = _losses(kernel, pair.rows(0, 1))
    inputs = [tensor for tensor in watched.inputs if tensor.requires_grad]
    found = torch.autograd.grad(together[0], inputs, allow_unused=True) if inputs else ()
    if any(gradient is not None and _reaches(gradient[1]) for gradient in found):
        raise _mixes("its derivative with respect to the other record's input is not zero")
    one, other = together[0].detach(), alone[0].detach()
    if not torch.isclose(one, other, rtol=VALUE_TOLERANCE, atol=VALUE_TOLERANCE * 1e-2, equal_nan=True):
        raise _mixes(f"alone it is {float(other):.6g}, beside another record {float(one):.6g}")


def _losses(kernel: Kernel, records: Records) -> Tensor:
    with torch.enable_grad():
        return kernel.record_losses(records)


def _reaches(gradient: Tensor) -> bool:
    return bool(((gradient != 0) & torch.isfinite(gradient)).any())


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool(((one == other) | ((one != one) & (other != other))).all())


def _mixes(evidence: str) -> PrivacyRefusal:
    return PrivacyRefusal(
        f"the loss of one record depends on another record: {evidence}. Clipping then does not bound what one record "
        "does; remove batch statistics and in-batch comparisons from model and loss"
    )
