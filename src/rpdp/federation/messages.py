"""The messages between server and silos: an announcement goes out, and an update or nothing comes back."""

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
    """The server's message to one silo that a round begins from this model.

    Attributes:
        run: The id of the run in rpdp.
        plan: The fingerprint of the public plan.
        round: The number of the round, from 1.
        values: The flat model.
        correction: A flat vector that the silo adds to every released gradient (SCAFFOLD), or None. It acts after
            clipping and noise, whatever its values.
    """

    run: str
    plan: str
    round: int
    values: Tensor
    correction: Tensor | None = None

    __repr__ = counts_repr

    def digest(self) -> str:
        """Return a hash of the whole announcement."""
        digest = hashlib.sha256(f"{self.run}\n{self.plan}\n{self.round}\n{self.correction is None}\n".encode())
        for tensor in (self.values, self.correction):
            if tensor is not None:
                digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class Update:
    """The release of a silo for a joined round: the change of the flat model over its noisy local steps."""

    silo: str
    round: int
    change: Tensor

    __repr__ = counts_repr

    def to_bytes(self) -> bytes:
        """Return header and numbers. The size depends on the model only, so it reveals nothing about records."""
        itemsize = self.change.element_size()
        numbers = np.asarray(self.change.detach().cpu(), dtype=f"<f{itemsize}")
        return _HEADER.pack(_MAGIC, self.round, itemsize) + numbers.tobytes()

    @classmethod
    def from_bytes(cls, silo: str, payload: bytes) -> Update:
        """Parse what `to_bytes` wrote."""
        if len(payload) < _HEADER.size:
            raise InputError(
                f"update of silo {silo}: {len(payload)} bytes are too few for its header of {_HEADER.size} bytes"
            )
        magic, number, itemsize = _HEADER.unpack_from(payload)
        body = len(payload) - _HEADER.size
        if magic != _MAGIC or itemsize not in (4, 8) or body % itemsize:
            raise InputError(f"update of silo {silo}: not an update of this version")
        numbers = np.frombuffer(payload, dtype=f"<f{itemsize}", offset=_HEADER.size)
        return cls(silo, int(number), torch.from_numpy(numbers.copy()))
