"""A model's outputs beside the targets, seen as each metric needs them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rpdp.display import counts_repr
from rpdp.errors import InputError
from rpdp.metrics.needs import NEEDS, Need

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Predictions:
    """Outputs and targets of a set of records.

    Attributes:
        outputs: What the model gives, a row per record; None where every metric looks at `hits` alone.
        targets: What it should have given.
        hits: Whether each record is answered correctly, if the user's own function says so.
    """

    outputs: NDArray[Any] | None
    targets: NDArray[Any]
    hits: NDArray[np.bool_] | None = None
    _views: dict[Need, tuple[Any, ...]] = field(default_factory=dict, init=False, repr=False)

    __repr__ = counts_repr

    def __len__(self) -> int:
        return len(self.targets)

    @classmethod
    def together(cls, parts: Sequence[Predictions]) -> Predictions:
        """The records of all parts, in order."""
        outputs = [part.outputs for part in parts if part.outputs is not None]
        hits = [part.hits for part in parts if part.hits is not None]
        return cls(
            np.concatenate(outputs) if outputs else None,
            np.concatenate([part.targets for part in parts]),
            np.concatenate(hits) if hits else None,
        )

    def select(self, rows: NDArray[np.int64]) -> Predictions:
        """The records at these positions."""
        return Predictions(
            None if self.outputs is None else self.outputs[rows],
            self.targets[rows],
            None if self.hits is None else self.hits[rows],
        )

    @property
    def not_finite(self) -> int:
        """The number of records for which the model gives NaN or infinity."""
        if self.outputs is None or not np.issubdtype(self.outputs.dtype, np.floating):
            return 0
        return int((~np.isfinite(self.outputs)).reshape(len(self), -1).any(axis=1).sum())

    def seen_as(self, need: Need) -> tuple[Any, ...]:
        """What a metric with this need gets; refused in words if outputs and targets cannot be seen so."""
        if need not in self._views:
            self._views[need] = self._view(need)
        return self._views[need]

    def _view(self, need: Need) -> tuple[Any, ...]:
        if need == "hits":
            assert self.hits is not None
            return (self.hits,)
        assert self.outputs is not None
        view = NEEDS[need]
        if view is not None:
            return view(self.outputs, self.targets)
        import torch

        return torch.from_numpy(self.outputs), torch.from_numpy(self.targets)

    def suits(self, need: Need) -> bool:
        """Whether outputs and targets can be seen so."""
        if self.outputs is None:
            return False
        try:
            self.seen_as(need)
        except InputError:
            return False
        return True
