"""What records contribute to the sums of a request: few non-zero cells each, from the silo's own code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from rpdp.display import counts_repr
from rpdp.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from rpdp.planning.request import Request

NO_CELL = -1
"""The index of an entry that contributes to no cell."""


@dataclass(frozen=True)
class Cells:
    """The contributions of some records, in their order: at most m cells each, m being public and the same for all.

    Sensitive. `index[i, k]` is a place in the vector of the request, or `NO_CELL`, and `value[i, k]` what record
    i adds there, before its weight. The same index twice in a row adds up.
    """

    index: NDArray[np.int64]
    value: NDArray[np.float64]

    __repr__ = counts_repr

    def __post_init__(self) -> None:
        if self.index.dtype != np.int64 or self.value.dtype != np.float64:
            raise InputError(f"cells of types {self.index.dtype} and {self.value.dtype} must be of int64 and float64")
        if self.index.ndim != 2 or self.index.shape != self.value.shape:
            raise InputError(f"cells of shapes {self.index.shape} and {self.value.shape} must be two equal tables")

    def __len__(self) -> int:
        return len(self.index)


class CellSource(Protocol):
    """A silo's own code that turns its records into cells, for the requests that it knows.

    | must hold | why |
    |---|---|
    | `require` looks at the request alone, never at a record | its answer is visible |
    | a record's cells depend on that record, the request and `values` alone | else adding a record moves others' |
    | each measure's part of a record has norm ≤ 1 | the sum of a record that exceeds it counts as zero |
    | the time does not depend on what records hold | a late answer is visible: see `rpdp silo check` |
    """

    def __len__(self) -> int:
        """The number of records."""
        ...

    def require(self, request: Request) -> None:
        """Refuse (`InputError`) a request that this code cannot answer: unknown kinds, columns, settings or sizes."""
        ...

    def cells(self, request: Request, values: Tensor, rows: NDArray[np.int64]) -> Cells:
        """Return the cells of the records at these places, in this order.

        Args:
            request: One that `require` let pass.
            values: The announced flat model; empty in a run of statistics.
            rows: Places of records, rising. If it raises, it is asked again for fewer; a record for which it raises
                alone contributes zero.
        """
        ...
