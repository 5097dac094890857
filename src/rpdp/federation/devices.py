"""Where models train: the CPU, or in simulations a CUDA device.

Only local steps and measures run on the device. Records, accounts, draws, the server's model and everything that leaves
a silo are on the CPU. A run on a GPU has the draws and the noise of the same run on the CPU and differs from it by the
rounding of float32, which is also not the same twice on every GPU.

Real runs stay on the CPU. A record that a kernel of CUDA cannot read (a class number out of range) ends the use of the
device, so the run would stop because of one record (privacy.md, rule 12), and how much one record changes the rounding
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
"""Kinds of devices of which all random generators are watched (`rpdp.training.model_probe`)."""


def known_device(device: torch.device | str) -> torch.device:
    """A device by its name, such as "cuda" or "cuda:1"; refuses kinds that are not in `DEVICES`."""
    try:
        found = torch.device(device)
    except RuntimeError:
        found = None
    if found is None or found.type not in DEVICES:
        raise InputError(f"device={device} must be one of {', '.join(DEVICES)}")
    return found


def shared_device(silos: Sequence[Silo]) -> torch.device:
    """The device of all silos of a run on one machine; refuses silos that have several."""
    found = {str(silo.device): silo.device for silo in silos}
    if len(found) != 1:
        told = ", ".join(f"{silo.name} on {silo.device}" for silo in silos)
        raise InputError(f"the silos of a run on one machine share a device; here are {told}")
    return next(iter(found.values()))


def require_sharable(device: torch.device, workers: int | None) -> None:
    """Refuse several worker processes on a device that they cannot share; without a wish there is one on a GPU."""
    if workers is not None and workers > 1 and device.type != "cpu":
        raise InputError(f"workers={workers} with device {device}: forked processes cannot share a GPU; use workers=1")


def require_device(device: str, processes: int, option: str) -> None:
    """Refuse a device that is not there, or one that forked processes cannot share.

    Args:
        device: The value of `--device`.
        processes: How many are wanted.
        option: The option that says so.
    """
    if device not in DEVICES:
        raise InputError(f"--device {device} must be one of {', '.join(DEVICES)}")
    if device == "cpu":
        return
    if not torch.cuda.is_available():
        raise InputError("--device cuda: torch finds no CUDA device here; use --device cpu")
    if processes > 1:
        raise InputError(
            f"--device cuda with {option} {processes}: forked processes cannot share a GPU; use {option} 1"
        )


@contextmanager
def full_float32(device: torch.device) -> Iterator[None]:
    """Products and convolutions in float32, as on the CPU.

    TF32, cuDNN's default, keeps 10 bits of every factor: a rounding of 1e-3, ten times what clipping leaves room for.
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
