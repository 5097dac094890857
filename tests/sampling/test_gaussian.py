"""The noise is Gaussian with the right standard deviation, in the body and in the tails.

Statistical tests: seeds as written, 4,000,000 values each, false-alarm rate 1e-6 over seeds. Each must reject
noise that is 5 % too small or too large; the tail count must also reject noise that is only cut off.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import mpmath
import numpy as np
import pytest
from scipy import stats

from rpdp.errors import InputError
from rpdp.sampling import Secure, Seeded, gaussian
from rpdp.sampling.keystream import Keystream

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rpdp.sampling import Randomness

    FloatArray = NDArray[np.float32] | NDArray[np.float64]
    Test = Callable[[FloatArray, float], float]

FALSE_ALARM = 1e-6
SIZE = 4_000_000
STD = 1.7


def body_p_value(values: FloatArray, std: float) -> float:
    """Kolmogorov–Smirnov, on every tenth value to save time."""
    return float(stats.kstest(values[::10] / std, "norm").pvalue)


def variance_p_value(values: FloatArray, std: float) -> float:
    squares = float(np.square(values, dtype=np.float64).sum()) / std**2
    return float(2 * min(stats.chi2.sf(squares, values.size), stats.chi2.cdf(squares, values.size)))


def tail_p_value(values: FloatArray, std: float) -> float:
    """How many lie beyond 4σ on each side: about 127 of 4 million; the smaller p-value, doubled."""
    sides = (int((values > 4 * std).sum()), int((values < -4 * std).sum()))
    return 2 * min(float(stats.binomtest(c, values.size, stats.norm.sf(4)).pvalue) for c in sides)


TESTS = [body_p_value, variance_p_value, tail_p_value]


def one_large_fill(randomness: Randomness, dtype: type) -> FloatArray:
    values: FloatArray = np.empty(SIZE, dtype=dtype)
    randomness.fill_gaussian(values, STD)
    return values


def many_small_fills(randomness: Randomness, dtype: type) -> FloatArray:
    values: FloatArray = np.empty(SIZE, dtype=dtype)
    for part in values.reshape(-1, 1000):
        randomness.fill_gaussian(part, STD)
    return values


@pytest.fixture(
    scope="module",
    params=[
        (one_large_fill, np.float32, 51),
        (one_large_fill, np.float64, 52),
        (many_small_fills, np.float32, 53),
    ],
    ids=["large float32", "large float64", "small float32"],
)
def values(request: pytest.FixtureRequest) -> FloatArray:
    fill, dtype, seed = request.param
    made: FloatArray = fill(Seeded(seed), dtype)
    return made


class TestDistribution:
    @pytest.mark.parametrize("test", TESTS)
    def test_the_right_deviation_is_accepted(self, values: FloatArray, test: Test) -> None:
        assert test(values, STD) > FALSE_ALARM

    @pytest.mark.parametrize("factor", [0.95, 1.05])
    @pytest.mark.parametrize("test", TESTS)
    def test_five_percent_off_is_rejected(self, values: FloatArray, test: Test, factor: float) -> None:
        assert test(factor * values, STD) < FALSE_ALARM

    def test_noise_cut_off_at_four_deviations_is_rejected_by_the_tail(self, values: FloatArray) -> None:
        cut = np.clip(np.asarray(values, dtype=np.float64), -4 * STD, 4 * STD)
        assert body_p_value(cut, STD) > FALSE_ALARM
        assert tail_p_value(cut, STD) < FALSE_ALARM

    @pytest.mark.parametrize("lag", [1, 2, gaussian._BLOCK_PAIRS, 2 * gaussian._BLOCK_PAIRS])
    def test_values_and_their_squares_are_uncorrelated(self, values: FloatArray, lag: int) -> None:
        """Box–Muller partners are half a block apart; both see the same radius, so squares matter."""
        z = np.asarray(values, dtype=np.float64) / STD
        squares = (z * z - 1) / math.sqrt(2)
        for series in (z, squares):
            score = float((series[lag:] * series[:-lag]).sum()) / math.sqrt(z.size - lag)
            assert 2 * stats.norm.sf(abs(score)) > FALSE_ALARM
        assert 2 * stats.norm.sf(float((z * z).sum()) / math.sqrt(z.size)) < FALSE_ALARM

    def test_secure_noise_too(self) -> None:
        """Not seeded, so the false-alarm rate is real: 1e-9 for each of three tests."""
        values = one_large_fill(Secure(), np.float32)
        assert min(test(values, STD) for test in TESTS) > 1e-9


class Scripted(Keystream):
    """A keystream that begins with chosen words and goes on with zeros."""

    def __init__(self, *words: int) -> None:
        self._script = list(words)

    def fill(self, words: NDArray[np.uint64]) -> None:
        for place in range(words.size):
            words[place] = self._script.pop(0) if self._script else 0


def exact_pair(radius_word: int, angle_word: int, fraction_word: int) -> tuple[mpmath.mpf, mpmath.mpf]:
    """The documented definition, in the arithmetic of the caller."""
    signed = [word if word < 2**63 else word - 2**64 for word in (radius_word, angle_word)]
    centred, turn = (mpmath.mpf(word) + 0.5 for word in signed)
    sign, magnitude = mpmath.sign(centred), abs(centred)
    if magnitude < 2**40:
        magnitude += (mpmath.mpf(fraction_word >> 11) + 0.5) / 2**53 - 0.5
    radius = sign * mpmath.sqrt(-2 * mpmath.log(magnitude / 2**63))
    angle = turn / 2**63 * mpmath.pi / 2
    return radius * mpmath.cos(angle), radius * mpmath.sin(angle)


class TestExactness:
    extremes = (0, 1, 2**20, 2**39, 2**41, 2**62, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2**35, 2**64 - 1)
    fraction = 0x9E37_79B9_7F4A_7C15

    def test_pairs_agree_with_arbitrary_precision(self) -> None:
        """All pairs of extreme words and 400 random ones: within 2e-15·R + 2**-53/R (R tiny: 2e-8)."""
        random = Seeded(61).words(800).reshape(-1, 2).tolist()
        for radius_word, angle_word in [(a, b) for a in self.extremes for b in self.extremes] + random:
            made = gaussian.standard_normals(2, Scripted(radius_word, angle_word, self.fraction))
            with mpmath.workdps(60):
                exact = exact_pair(radius_word, angle_word, self.fraction)
                radius = mpmath.hypot(*exact)
                for ours, theirs in zip(made, exact, strict=True):
                    assert abs(ours - theirs) <= min(2e-15 * radius + 2.0**-53 / radius, 2e-8)

    def test_the_tail_keeps_its_resolution(self) -> None:
        """From 8σ on radii lie closer than the release grid of 2**-20; words alone would be too coarse."""

        def radius(word: int, fraction: float) -> float:
            return math.hypot(*gaussian.standard_normals(2, Scripted(word, 12345, int(fraction * 2**64))))

        assert radius(1000, 0.5) - radius(1001, 0.5) > 2.0**-20
        for word in (0, 1, 1000, 2**17):
            assert 7.98 < radius(word, 0.5) < 10
            assert 0 < radius(word, 0.5) - radius(word, 0.5 + 2.0**-24) < 2.0**-20

    def test_nothing_is_beyond_the_stated_largest_value(self) -> None:
        largest = gaussian.standard_normals(2, Scripted(0, 0, 0))
        assert math.hypot(*largest) == pytest.approx(gaussian.LARGEST_VALUE, rel=1e-14)
        assert np.isfinite(largest).all()

    def test_the_fraction_of_the_tail_is_never_zero(self) -> None:
        words = np.array([0, 2**64 - 1], dtype=np.uint64)
        assert (0.5 + gaussian._centred_fractions(words)).tolist() == [2.0**-54, 1.0]


class TestShapes:
    @pytest.mark.parametrize("size", [0, 1, 2, 3, 14, 1023, 1024, 1025, 32767, 32768, 32769, 65537])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_every_value_is_written(self, size: int, dtype: type) -> None:
        out: FloatArray = np.full(size, np.nan, dtype=dtype)
        Seeded(71).fill_gaussian(out, 1.0)
        assert np.isfinite(out).all()
        assert np.unique(out).size >= size - 50

    def test_any_contiguous_shape_in_place(self) -> None:
        out = np.zeros((3, 4, 5), dtype=np.float32)
        Seeded(72).fill_gaussian(out, 2.0)
        flat = np.zeros(60, dtype=np.float32)
        Seeded(72).fill_gaussian(flat, 2.0)
        assert np.array_equal(out.reshape(-1), flat)

    def test_float32_is_float64_rounded_once(self) -> None:
        for size in (100, 5000):
            single, double = np.empty(size, dtype=np.float32), np.empty(size)
            Seeded(73).fill_gaussian(single, 0.3)
            Seeded(73).fill_gaussian(double, 0.3)
            assert np.array_equal(single, double.astype(np.float32))

    def test_zero_deviation_is_no_noise(self) -> None:
        out = np.ones(2000)
        Seeded(74).fill_gaussian(out, 0.0)
        assert not out.any()

    @pytest.mark.parametrize("std", [-1.0, float("nan"), float("inf"), 1e38])
    def test_impossible_deviations_are_refused(self, std: float) -> None:
        out = np.ones(3, dtype=np.float32)
        with pytest.raises(InputError, match="std="):
            Seeded(75).fill_gaussian(out, std)
        assert (out == 1).all()

    @pytest.mark.parametrize(
        "out",
        [np.zeros(10)[::2], np.zeros(4, dtype=np.float16), np.zeros(4, dtype=np.int64), np.zeros((3, 4)).T],
        ids=["strided", "half", "integers", "transposed"],
    )
    def test_arrays_that_cannot_be_filled_are_refused(self, out: NDArray[np.float64]) -> None:
        with pytest.raises(InputError, match="out must be"):
            Seeded(76).fill_gaussian(out, 1.0)

    def test_read_only_arrays_are_refused(self) -> None:
        out = np.zeros(4)
        out.flags.writeable = False
        with pytest.raises(InputError, match="writeable=False"):
            Seeded(77).fill_gaussian(out, 1.0)
