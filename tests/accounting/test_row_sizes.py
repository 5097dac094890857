"""Sizes of arrays: enough for every row, from a short list, and never decided by another row."""

from __future__ import annotations

import numpy as np

from rpdp.accounting.row_sizes import equal_rows, public_sizes


def test_sizes_hold_their_points_and_come_from_a_short_list() -> None:
    """4, 5, 6 or 7 times a power of two: at most a quarter more than is needed, and four lengths per octave."""
    points = np.arange(1, 5000)
    sizes = public_sizes(points)
    listed = [16, *(part * 2**power for power in range(2, 11) for part in (5, 6, 7, 8))]
    assert sorted(set(sizes.tolist())) == [size for size in listed if size < 6000]
    assert (sizes >= points).all()
    assert (sizes <= np.maximum(16, 1.25 * points)).all()


def test_rows_of_one_size_are_found_in_their_places() -> None:
    assert [rows.tolist() for rows in equal_rows(np.array([20, 16, 20, 32]))] == [[1], [0, 2], [3]]
