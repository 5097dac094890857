"""Cells: two equal tables of the right types, whatever they hold; what is wrong in them is a record's own."""

from __future__ import annotations

import numpy as np
import pytest

from rpdp.errors import InputError
from rpdp.federation.cells import NO_CELL, Cells


def test_records_have_up_to_m_cells() -> None:
    cells = Cells(np.array([[0, 3], [2, NO_CELL]]), np.array([[1.0, 0.5], [np.nan, 0.0]]))
    assert len(cells) == 2
    assert "0.5" not in repr(cells)


@pytest.mark.parametrize(
    ("index", "value"),
    [
        (np.zeros((2, 1), dtype=np.int32), np.zeros((2, 1))),
        (np.zeros((2, 1), dtype=np.int64), np.zeros((2, 1), dtype=np.float32)),
        (np.zeros(2, dtype=np.int64), np.zeros(2)),
        (np.zeros((2, 1), dtype=np.int64), np.zeros((1, 2))),
    ],
)
def test_other_tables_are_refused(index: np.ndarray, value: np.ndarray) -> None:
    with pytest.raises(InputError):
        Cells(index, value)
