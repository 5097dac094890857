"""The fingerprint of a model's architecture, for the public plan: its parameters with their shapes and types."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


def model_fingerprint(module: nn.Module) -> str:
    """Return SHA-256 over the layers, and the name, shape, type and trainability of every parameter, not its values."""
    digest = hashlib.sha256(f"rpdp-model/1\n{module!r}\n".encode())
    for name, value in module.named_parameters():
        digest.update(f"{name} {tuple(value.shape)} {value.dtype} {value.requires_grad}\n".encode())
    return digest.hexdigest()
