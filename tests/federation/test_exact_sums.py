"""Exact sums: a record moves them by its weight times its contribution, whatever else is in them; then noise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from rpdp.errors import InputError
from rpdp.federation.cells import NO_CELL, Cells
from rpdp.federation.exact_sums import LARGEST_NOISE, MOST_RECORDS, UNIT, ExactSums, require_exact
from rpdp.planning import MeasureSpec, Request
from rpdp.sampling import Seeded
from rpdp.training import grid_spacing

REQUEST = Request("representative", (MeasureSpec("a", 3), MeasureSpec("b", 2)))


def cells(index: list[list[int]], value: list[list[float]]) -> Cells:
    return Cells(np.array(index, dtype=np.int64), np.array(value, dtype=np.float64))


def total(given: Cells, weights: object = 1.0, request: Request = REQUEST) -> np.ndarray:
    """The exact sum."""
    sums = ExactSums(request)
    sums.add(sums.contributions(given, np.broadcast_to(np.asarray(weights, dtype=np.float64), (len(given),))))
    return sums._total * UNIT


def test_contributions_are_weighted_and_added_up() -> None:
    given = cells([[0, 3, NO_CELL], [0, 4, 4], [2, NO_CELL, 0]], [[1, 1, 9], [-0.5, 0.25, 0.5], [0.5, 0, 0.5]])
    np.testing.assert_array_equal(total(given), [1.0, 0.0, 0.5, 1.0, 0.75])
    np.testing.assert_array_equal(total(given, [1.0, 0.5, 0.0]), [0.75, 0.0, 0.0, 1.0, 0.375])


@pytest.mark.parametrize(
    ("index", "value"),
    [
        ([0, 1], [0.8, 0.8]),  # one measure of norm 1.13
        ([3, 3], [0.6, 0.6]),  # 1.2 in one cell, though the norm of its entries is 0.85
        ([3, 0], [1.000001, 0.0]),
        ([0, 3], [np.nan, 0.1]),
        ([0, 3], [np.inf, 0.1]),
        ([0, 3], [1e200, 0.1]),
        ([0, 5], [0.1, 0.1]),
        ([0, -2], [0.1, 0.1]),
    ],
)
def test_a_record_with_anything_wrong_adds_nothing(index: list[int], value: list[float]) -> None:
    """Not even what is right about it; and the others are as if it were not there."""
    others = cells([[0, 4], [1, 3]], [[0.5, 1.0], [-1.0, 0.5]])
    given = cells([[0, 4], index, [1, 3]], [[0.5, 1.0], value, [-1.0, 0.5]])
    np.testing.assert_array_equal(total(given), total(others))


def test_unit_vectors_and_entries_that_cancel_pass() -> None:
    unit = np.full(3, 1 / np.sqrt(3))
    np.testing.assert_allclose(total(cells([[0, 1, 2]], [unit.tolist()]))[:3], unit, atol=2 * UNIT)
    assert total(cells([[0, 0]], [[1.5, -0.75]]))[0] == 0.75
    assert (total(cells([[], []], [[], []])) == 0.0).all()


def test_a_record_moves_the_sum_by_at_most_its_weight_times_the_norm() -> None:
    """For random records of full norm, in any order; without the weight it would be more (the control)."""
    random = np.random.default_rng(1)
    parts = [random.normal(size=(400, size)) for size in (3, 2)]
    value = np.hstack([part / np.linalg.norm(part, axis=1, keepdims=True) for part in parts])
    index, weights = np.tile(np.arange(5), (400, 1)), random.uniform(size=400)
    whole = total(Cells(index, value), weights)
    longest = 0.0
    for out in range(0, 400, 7):
        kept = random.permutation(np.delete(np.arange(400), out))
        moved = np.linalg.norm(whole - total(Cells(index[kept], value[kept]), weights[kept]))
        assert moved <= weights[out] * REQUEST.norm * (1.0 + 2.0**-29)
        assert moved > weights[out] * REQUEST.norm - 1e-6
        unweighted = total(Cells(index, value)) - total(Cells(index[kept], value[kept]))
        longest = max(longest, float(np.linalg.norm(unweighted) / weights[out]))
    assert longest > 5 * REQUEST.norm


def test_what_a_record_adds_does_not_depend_on_the_others_in_a_single_bit() -> None:
    """A float sum of the same numbers does depend on them: the control."""
    value = np.random.default_rng(2).uniform(size=(20_000, 1))
    index = np.zeros((20_000, 1), dtype=np.int64)
    alone = total(Cells(index[:1], value[:1]))
    moved = total(Cells(index, value)) - total(Cells(index[1:], value[1:]))
    np.testing.assert_array_equal(moved, alone)
    assert float(np.cumsum(value)[-1] - np.cumsum(value[1:])[-1]) != float(value[0, 0])


class TestRelease:
    SIZE = 40_000
    WIDE = Request("everyone", (MeasureSpec("a", 30_000), MeasureSpec("b", 10_000)))

    def released(self, noise_multiplier: float, norm: float) -> np.ndarray:
        sums = ExactSums(self.WIDE)
        index = np.arange(30_000)[:, None]
        sums.add(sums.contributions(Cells(index, np.ones(index.shape)), np.full(30_000, 0.5)))
        noisy: np.ndarray = sums.release(noise_multiplier, norm, Seeded(3))
        noisy -= np.repeat([0.5, 0.0], [30_000, 10_000])
        return noisy

    @pytest.mark.parametrize(("factor", "conforms"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
    def test_noise_conforms_to_s_times_l(self, factor: float, conforms: bool) -> None:
        noise = self.released(2.0 * factor, self.WIDE.norm)
        p_value = stats.kstest(noise / (2.0 * self.WIDE.norm), "norm").pvalue
        assert (p_value > 1e-6) == conforms

    def test_released_numbers_lie_on_the_public_grid(self) -> None:
        released = self.released(2.0, self.WIDE.norm)
        grid = grid_spacing(2.0 * self.WIDE.norm)
        assert (released / grid == np.rint(released / grid)).all()
        assert np.isfinite(released).all()

    def test_without_records_it_is_noise_alone_and_fresh_each_time(self) -> None:
        first, second = (ExactSums(REQUEST).release(1.0, REQUEST.norm, Seeded(seed)) for seed in (1, 2))
        assert (first != 0.0).all()
        assert (first != second).all()


def test_sizes_that_64_bits_cannot_carry_are_refused() -> None:
    require_exact(REQUEST, 1e6, MOST_RECORDS)
    with pytest.raises(InputError, match="the most that sums can carry"):
        require_exact(REQUEST, LARGEST_NOISE, 1)
    with pytest.raises(InputError, match="records are more than"):
        require_exact(REQUEST, 1.0, MOST_RECORDS + 1)
    sums = ExactSums(REQUEST)
    sums._total[:] = int(MOST_RECORDS / UNIT)
    assert (sums.release(LARGEST_NOISE / REQUEST.norm, REQUEST.norm, Seeded(1)) > -14 * LARGEST_NOISE).all()
