"""Dropout: masks that belong to a record, from the run's own randomness.

Why the guarantee holds with dropout. Think of a table with a mask for every step, every position in the data and every
dropout layer, filled with independent coins before anybody looks at a record. Given the table, the gradient of a record
is a function of the model, the record and the record's own row: no other record enters. Clipped, it moves the sum by at
most L, so given the table a run is exactly the mechanism that is priced. The table does not depend on the data, so the
average over tables is (ε, δ)-private too, with the same Rényi divergence bound, and would be even if the table were
published. (Both divergences of a pair that contains the table are averages over the table of those given the table.)

What must be true for that: the row of a record depends on the key of the step and the record's position alone. Not on
who else is drawn, nor on how a draw is cut into pieces, chunks or retries. A generator that hands out numbers in order
does not have this property: one more record would shift the masks of all later ones, and so move the sum by more
than L.

`MaskedRun` sees every operator that torch runs. Random ones with probabilities (all of torch's dropout layers, also
inside attention and in vmap) get the masks of the records; all other random operators are refused.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rpdp.display import counts_repr
from rpdp.errors import PrivacyRefusal
from rpdp.sampling.record_bits import WORD_BITS, RecordBits
from rpdp.training.code_places import user_line
from rpdp.training.operator_mode import OperatorMode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

_RANDOM = torch.Tag.nondeterministic_seeded
_SWITCHES = ("dropout_p", "training", "train", "is_training")
"""Arguments that switch off the randomness of an operator when they are zero or false."""


class RecordMasks:
    """Where the masks of some records come from: the key of the step, and each record's position in the data.

    Attributes:
        draws: How many masks the latest run of model and loss used.
    """

    def __init__(self, key: bytes, positions: NDArray[np.int64]) -> None:
        self.key = key
        self.positions = positions
        self.draws = 0

    __repr__ = counts_repr

    def __len__(self) -> int:
        """The number of records."""
        return len(self.positions)

    def select(self, rows: NDArray[np.int64] | Sequence[int] | slice) -> RecordMasks:
        """The masks of some of the records; each keeps its own."""
        return RecordMasks(self.key, self.positions[rows])

    def words(self, place: int, count: int) -> NDArray[np.uint16]:
        """`count` words of mask number `place` for every record; a unit is kept where its word is small."""
        return self._bits.words(place, count)

    @cached_property
    def _bits(self) -> RecordBits:
        return RecordBits(self.key, self.positions)


class ProbeMasks(RecordMasks):
    """Masks that keep all of some records and nothing of the others: a layer that mixes them up shows for certain."""

    def __init__(self, is_kept: NDArray[np.bool_]) -> None:
        super().__init__(b"", np.arange(len(is_kept)))
        self._is_kept = is_kept

    def select(self, rows: NDArray[np.int64] | Sequence[int] | slice) -> RecordMasks:
        """The masks of some of the records; each keeps its own."""
        return ProbeMasks(self._is_kept[rows])

    def words(self, place: int, count: int) -> NDArray[np.uint16]:
        """The smallest word for what is kept, the largest for what is not."""
        return np.repeat(np.where(self._is_kept, 0, 2**WORD_BITS - 1).astype(np.uint16)[:, None], count, axis=1)


class MaskedRun(OperatorMode):
    """A context in which model and loss, run on these records in this order, draw the records' own masks.

    | operator | what it gets |
    |---|---|
    | `bernoulli_`, `bernoulli`, `native_dropout` with a fixed probability | the masks of the records |
    | such a tensor whose first dimension is no multiple of the records | `PrivacyRefusal`: whose mask would it be? |
    | any other random operator | `PrivacyRefusal`, with its name |

    A probability is rounded to a multiple of 2⁻¹⁶.

    Args:
        masks: The masks of the records.
        first: The number of the first mask, when a part of a run is repeated.
    """

    def __init__(self, masks: RecordMasks, first: int = 0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._masks = masks
        self._masks.draws = first

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator, or draw masks in its place."""
        given = kwargs or {}
        if _RANDOM not in func.tags or _switched_off(func, args, given):
            return func(*args, **given)
        aten = torch.ops.aten
        if func is aten.bernoulli_.float:
            probability = args[1] if len(args) > 1 else given.get("p", 0.5)
            return args[0].copy_(self._mask(args[0], probability))
        if func is aten.bernoulli.p:
            return self._mask(args[0], args[1]).to(args[0].dtype)
        if func is aten.native_dropout.default:
            keep = 1.0 - args[1]
            mask = self._mask(args[0], keep)
            return args[0] * mask * (1.0 / keep if keep else 0.0), mask
        raise PrivacyRefusal(
            f"model or loss draw random numbers with {func}{user_line()}, which cannot be drawn record by "
            "record from the run's own randomness; dropout in all its forms can"
        )

    def _mask(self, like: Tensor, probability: float) -> Tensor:
        """True with this probability, in the shape of a tensor; the mask of each record is its own."""
        count = len(self._masks)
        if like.dim() == 0 or like.shape[0] % count:
            raise PrivacyRefusal(
                f"dropout sees a tensor of shape {tuple(like.shape)} for {count} records: records must come first, so "
                "that each has masks of its own; use batch_first=True, or the same dropout after moving records first"
            )
        words = self._masks.words(self._masks.draws, like.numel() // count)
        self._masks.draws += 1
        kept = words < np.uint32(round(probability * 2**WORD_BITS))
        return torch.from_numpy(kept).reshape(like.shape).to(like.device)


def _switched_off(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an operator that can be random is not, such as attention without dropout."""
    for place, argument in enumerate(func._schema.arguments):
        if argument.name in _SWITCHES:
            default = argument.default_value if argument.has_default_value() else None
            value = args[place] if place < len(args) else kwargs.get(argument.name, default)
            return not value
    return False
