"""Records as tensors, with the record in the first dimension: the input of kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from rpdp.display import counts_repr
from rpdp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor


@dataclass(frozen=True)
class Records:
    """Inputs and targets of a set of records: a whole data set, one draw, or a micro-batch of it.

    `inputs` are the positional arguments of the model, and `targets` is passed to the loss. Row i of every tensor
    belongs to record i. To train on several augmented copies of a record, give inputs of shape (records, copies, …),
    flatten them inside the model, and let the loss average over the copies. The average is then clipped, so one record
    still moves a sum by at most the clip norm.

    >>> records = Records.of(torch.zeros(3, 2), torch.zeros(3))
    >>> len(records), records.select([0, 2]).inputs[0].shape
    (3, torch.Size([2, 2]))
    """

    inputs: tuple[Tensor, ...]
    targets: Tensor

    __repr__ = counts_repr

    def __post_init__(self) -> None:
        """Refuse tensors that do not agree on the number of records."""
        if not self.inputs:
            raise InputError("inputs=() is empty: give at least one input tensor")
        tensors = (*self.inputs, self.targets)
        if any(tensor.dim() == 0 for tensor in tensors):
            raise InputError("a tensor has no dimensions; the first dimension of every tensor counts the records")
        counts = [tensor.shape[0] for tensor in tensors]
        if len(set(counts)) > 1:
            raise InputError(
                f"inputs and targets disagree on the number of records: {counts[:-1]} rows of input, "
                f"{counts[-1]} targets; the first dimension of every tensor counts the records"
            )

    @classmethod
    def of(cls, inputs: Tensor | Sequence[Tensor], targets: Tensor) -> Records:
        """Records with one input tensor, or with several in the order of the model's arguments."""
        return cls((inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs), targets)

    def __len__(self) -> int:
        """The number of records; it is sensitive if these records are a draw."""
        return self.targets.shape[0]

    def select(self, indices: NDArray[np.int64] | Tensor | Sequence[int]) -> Records:
        """The records at these positions, in this order."""
        rows = torch.as_tensor(indices, dtype=torch.int64, device=self.targets.device)
        inputs = tuple([tensor.index_select(0, rows) for tensor in self.inputs])
        return Records._trusted(inputs, self.targets.index_select(0, rows))

    @classmethod
    def _trusted(cls, inputs: tuple[Tensor, ...], targets: Tensor) -> Records:
        """Rows of records that were already checked; for a tiny model another check would cost as much as a layer."""
        records = object.__new__(cls)
        records.__dict__.update(inputs=inputs, targets=targets)
        return records

    def chunks(self, size: int) -> Iterator[Records]:
        """The same records in pieces of at most `size`, in order."""
        for start in range(0, len(self), size):
            yield self.rows(start, start + size)

    def rows(self, start: int, stop: int) -> Records:
        """Records start … stop - 1, without a copy."""
        return Records(tuple(tensor[start:stop] for tensor in self.inputs), self.targets[start:stop])

    def to(self, device: torch.device | str) -> Records:
        """The same records on another device."""
        return Records(tuple(tensor.to(device) for tensor in self.inputs), self.targets.to(device))
