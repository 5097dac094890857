"""The switch `--device`: checked before anything is read, removed or run."""

from __future__ import annotations

from rpdp.errors import InputError
from rpdp.federation.devices import DEVICES


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
    import torch

    if not torch.cuda.is_available():
        raise InputError("--device cuda: torch finds no CUDA device here; use --device cpu")
    if processes > 1:
        raise InputError(
            f"--device cuda with {option} {processes}: forked processes cannot share a GPU; use {option} 1"
        )
