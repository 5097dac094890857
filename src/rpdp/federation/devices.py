"""The device that trains models: the CPU, or in simulations a CUDA device.

Only local steps and evaluation run on the device. Records, accounts, draws, the server's model and everything that
leaves a silo are on the CPU. A run on a GPU has the same draws and noise as on the CPU. It differs by float32 rounding,
which some GPUs do not repeat exactly.

Real runs stay on the CPU. A record that a CUDA kernel cannot read (such as a class number out of range) makes the
device unusable, so one record could stop the run (privacy.md, rule 12). Also, how much one record changes the rounding
of others was measured on the CPU only (rule 15).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from rpdp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rpdp.federation.silo import Silo

DEVICES = ("cpu", "cuda")
"""The kinds of devices whose random generators are all watched (`rpdp.training.model_probe`)."""


def known_device(device: torch.device | str) -> torch.device:
    """Return the device of a name such as "cuda" or "cuda:1"; refuse kinds that are not in `DEVICES`."""
    try:
        found = torch.device(device)
    except RuntimeError:
        found = None
    if found is None or found.type not in DEVICES:
        raise InputError(f"device={device} must be one of {', '.join(DEVICES)}")
    return found


def shared_device(silos: Sequence[Silo]) -> torch.device:
    """Return the device that all silos of a run on one machine share; refuse silos with different devices."""
    found = {str(silo.device): silo.device for silo in silos}
    if len(found) != 1:
        listed = ", ".join(f"{silo.name} on {silo.device}" for silo in silos)
        raise InputError(f"the silos of a run on one machine must share a device, but there are {listed}")
    return next(iter(found.values()))


def require_sharable(device: torch.device, workers: int | None) -> None:
    """Refuse several worker processes on a device that they cannot share. By default a GPU has one worker."""
    if workers is not None and workers > 1 and device.type != "cpu":
        raise InputError(f"workers={workers} with device {device}: forked processes cannot share a GPU; use workers=1")


def require_device(device: str, processes: int, option: str) -> None:
    """Refuse a device that is missing, or that forked processes cannot share.

    Args:
        device: The value of `--device`.
        processes: The number of processes.
        option: The option that sets this number, for the message.
    """
    if device not in DEVICES:
        raise InputError(f"--device {device} must be one of {', '.join(DEVICES)}")
    if device == "cpu":
        return
    if not torch.cuda.is_available():
        raise InputError("--device cuda: torch finds no CUDA device; use --device cpu")
    if processes > 1:
        raise InputError(
            f"--device cuda with {option} {processes}: forked processes cannot share a GPU; use {option} 1"
        )


@contextmanager
def full_float32(device: torch.device) -> Iterator[None]:
    """Compute products and convolutions in full float32, as on the CPU.

    TF32, the default of cuDNN, keeps 10 bits of every factor: a rounding of 1e-3, ten times what clipping allows for.
    """
    if device.type == "cpu":
        yield
        return
    kinds: list[Any] = [torch.backends.cudnn, torch.backends.cuda.matmul]
    before = [kind.allow_tf32 for kind in kinds]
    try:
        for kind in kinds:
            kind.allow_tf32 = False
        yield
    finally:
        for kind, allowed in zip(kinds, before, strict=True):
            kind.allow_tf32 = allowed
