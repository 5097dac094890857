"""What travels between server and silos: an announcement goes out, an update or nothing comes back."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from rpdp.display import counts_repr
from rpdp.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

_HEADER = struct.Struct("<8sQQ")
_MAGIC = b"rpdp-up1"


@dataclass(frozen=True)
class Announcement:
    """The server's word to one silo: this round begins, from this model.

    Attributes:
        run: The id of the run, rpdp's own.
        plan: Fingerprint of the public plan.
        round: From 1.
        values: The flat model.
        correction: A flat vector that the silo adds to every released gradient (SCAFFOLD), or None. Whatever it is, it
            acts after clipping and noise.
    """

    run: str
    plan: str
    round: int
    values: Tensor
    correction: Tensor | None = None

    __repr__ = counts_repr

    def digest(self) -> str:
        """A hash of everything in it."""
        digest = hashlib.sha256(f"{self.run}\n{self.plan}\n{self.round}\n{self.correction is None}\n".encode())
        for tensor in (self.values, self.correction):
            if tensor is not None:
                digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class Update:
    """What a silo releases for a joined round: the change of the flat model over its noisy local steps."""

    silo: str
    round: int
    change: Tensor

    __repr__ = counts_repr

    def to_bytes(self) -> bytes:
        """A fixed size for a given model: header and numbers, nothing else."""
        itemsize = self.change.element_size()
        numbers = np.asarray(self.change.detach().cpu(), dtype=f"<f{itemsize}")
        return _HEADER.pack(_MAGIC, self.round, itemsize) + numbers.tobytes()

    @classmethod
    def from_bytes(cls, silo: str, payload: bytes) -> Update:
        """Read back what `to_bytes` wrote."""
        if len(payload) < _HEADER.size:
            raise InputError(f"update of silo {silo}: {len(payload)} bytes are too few")
        magic, number, itemsize = _HEADER.unpack_from(payload)
        body = len(payload) - _HEADER.size
        if magic != _MAGIC or itemsize not in (4, 8) or body % itemsize:
            raise InputError(f"update of silo {silo}: not an update of this version")
        numbers = np.frombuffer(payload, dtype=f"<f{itemsize}", offset=_HEADER.size)
        return cls(silo, int(number), torch.from_numpy(numbers.copy()))
