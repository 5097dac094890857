"""Records as tensors, with the record in the first dimension: the input of kernels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import Dataset

from rpdp.display import counts_repr
from rpdp.errors import InputError
from rpdp.training.record_masks import RecordMasks
from rpdp.training.record_sources import as_labels, as_tensor, frame_columns, from_dataset, from_frame

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

    Attributes:
        inputs: The positional arguments of the model.
        targets: What the loss compares the output with.
        ids: The ids of the records, by which budgets are found; None if budgets are in the order of the records.
        subjects: The persons behind the records; None if each record is a person of its own.
        masks: For models with dropout: where the masks of exactly these records come from (`masked`).

    >>> records = Records.of(torch.zeros(3, 2), torch.zeros(3), ids=["a", "b", "c"])
    >>> len(records), records.select([0, 2]).inputs[0].shape, records.select([0, 2]).ids.tolist()
    (3, torch.Size([2, 2]), ['a', 'c'])
    """

    inputs: tuple[Tensor, ...]
    targets: Tensor
    ids: NDArray[Any] | None = None
    subjects: NDArray[Any] | None = None
    masks: RecordMasks | None = None

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
        for name, labels in (("ids", self.ids), ("subjects", self.subjects)):
            if labels is not None and len(labels) != counts[-1]:
                raise InputError(f"{len(labels):,} {name} for {counts[-1]:,} records; give one for each record")

    @classmethod
    def of(
        cls,
        inputs: Any,
        targets: Any = None,
        *,
        ids: Any = None,
        subjects: Any = None,
        columns: Sequence[str] | None = None,
    ) -> Records:
        """Make records from tensors, arrays, a data frame, or a torch or Hugging Face data set.

        | `inputs` | `targets` |
        |---|---|
        | a tensor or array, the record in the first dimension | a tensor or array |
        | a tuple or list of them, in the order of the model's arguments | a tensor or array |
        | a frame: pandas, polars, Arrow, Hugging Face, or a mapping of columns | the name of a column |
        | a torch `Dataset` of (input, …, target) | none: they are in it |

        Arrays become float32 or int64. Nothing is scaled or filled in; `rpdp.tables` does that by a declared schema.

        Args:
            inputs: What the model gets.
            targets: What the loss gets.
            ids: The ids of the records: a list, or the name of a column.
            subjects: The persons behind the records: a list, or the name of a column.
            columns: The input columns of a frame, in this order; by default all others that are left.

        >>> frame = {"id": ["a", "b"], "age": [40.0, 50.0], "weight": [60.0, 70.0], "ill": [0, 1]}
        >>> Records.of(frame, "ill", ids="id").inputs[0].shape
        torch.Size([2, 2])
        """
        if isinstance(targets, str):
            return cls._of_frame(inputs, targets, ids, subjects, columns)
        if columns is not None:
            raise InputError("columns= is for a frame whose target is a column: give targets='name of the column'")
        if targets is None:
            if not isinstance(inputs, Dataset):
                raise InputError(
                    "targets is missing: give a tensor or array, or the name of the target column of a frame"
                )
            parts, found = from_dataset(inputs)
        else:
            several = isinstance(inputs, tuple) or (
                isinstance(inputs, list) and hasattr(next(iter(inputs), 0), "shape")
            )
            given = tuple(inputs) if several else (inputs,)
            parts = tuple(as_tensor(f"input {place}", part) for place, part in enumerate(given))
            found = as_tensor("targets", targets, is_target=True)
        return cls(
            parts,
            found,
            None if ids is None else as_labels("ids", ids),
            None if subjects is None else as_labels("subjects", subjects),
        )

    @classmethod
    def _of_frame(cls, source: Any, target: str, ids: Any, subjects: Any, columns: Sequence[str] | None) -> Records:
        frame = frame_columns(source)
        if frame is None:
            raise InputError(
                f"targets={target!r} names a column, but inputs is a {type(source).__name__}, not a frame (pandas, "
                "polars, Arrow, Hugging Face, or a mapping of columns)"
            )
        named = [name for name in (ids, subjects) if isinstance(name, str)]
        inputs, targets = from_frame(frame, target, columns, named)
        labels = [
            None if given is None else as_labels(name, frame[given] if isinstance(given, str) else given)
            for name, given in (("ids", ids), ("subjects", subjects))
        ]
        return cls((inputs,), targets, labels[0], labels[1])

    def __len__(self) -> int:
        """The number of records; it is sensitive if these records are a draw."""
        return self.targets.shape[0]

    def select(self, indices: NDArray[np.int64] | Tensor | Sequence[int]) -> Records:
        """The records at these positions, in this order."""
        rows = torch.as_tensor(indices, dtype=torch.int64, device=self.targets.device)
        inputs = tuple([tensor.index_select(0, rows) for tensor in self.inputs])
        chosen = Records._trusted(inputs, self.targets.index_select(0, rows))
        if self.masks is not None:
            chosen.__dict__["masks"] = self.masks.select(rows.numpy(force=True))
        if self.ids is not None or self.subjects is not None:
            places = rows.cpu().numpy()
            for name, labels in (("ids", self.ids), ("subjects", self.subjects)):
                chosen.__dict__[name] = None if labels is None else labels[places]
        return chosen

    def masked(self, key: bytes | None, positions: NDArray[np.int64]) -> Records:
        """The same records with the masks of one step; unchanged if the key is None.

        Args:
            key: `Kernel.mask_key`: it is used for one step alone, and is None for a model without dropout.
            positions: Position of each record in the data. The masks of a record follow from key and position.
        """
        if key is None:
            return self
        if len(positions) != len(self):
            raise InputError(f"{len(positions)} positions for {len(self)} records: each record has masks of its own")
        return replace(self, masks=RecordMasks(key, positions))

    @classmethod
    def _trusted(cls, inputs: tuple[Tensor, ...], targets: Tensor) -> Records:
        """Rows of records that were already checked; for a tiny model another check would cost as much as a layer."""
        records = object.__new__(cls)
        records.__dict__.update(inputs=inputs, targets=targets, ids=None, subjects=None, masks=None)
        return records

    def chunks(self, size: int) -> Iterator[Records]:
        """The same records in pieces of at most `size`, in order."""
        for start in range(0, len(self), size):
            yield self.rows(start, start + size)

    def rows(self, start: int, stop: int) -> Records:
        """Records start … stop - 1, without a copy."""
        ids, subjects = (None if labels is None else labels[start:stop] for labels in (self.ids, self.subjects))
        masks = None if self.masks is None else self.masks.select(slice(start, stop))
        inputs = tuple(tensor[start:stop] for tensor in self.inputs)
        return Records(inputs, self.targets[start:stop], ids, subjects, masks)

    def to(self, device: torch.device | str) -> Records:
        """The same records on another device."""
        inputs = tuple(tensor.to(device) for tensor in self.inputs)
        return Records(inputs, self.targets.to(device), self.ids, self.subjects, self.masks)
