"""Streams: independent, reproducible only where they may be, never copied, never shared after a fork."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import stats

from rpdp.errors import InputError, PrivacyRefusal
from rpdp.sampling import Randomness, Secure, Seeded

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

FALSE_ALARM = 1e-6  # over seeds; the seeds are fixed


def mixed_use(randomness: Randomness) -> list[bytes]:
    """A bit of everything, small and large, as bytes."""
    small, large = np.empty(14, dtype=np.float32), np.empty(5000)
    randomness.fill_gaussian(small, 1.0)
    randomness.fill_gaussian(large, 2.0)
    coins = bytes(randomness.coin(0.5) for _ in range(64))
    uniforms, integers, words = randomness.uniforms(9), randomness.integers(10**9, 9), randomness.words(9000)
    return [
        coins,
        *(values.tobytes() for values in (small, large, uniforms)),
        integers.tobytes(),
        words.tobytes(),
    ]


@pytest.fixture(params=[Secure, lambda: Seeded(81)], ids=["secure", "seeded"])
def randomness(request: pytest.FixtureRequest) -> Randomness:
    made: Randomness = request.param()
    return made


class TestValues:
    def test_coins_have_their_probability(self) -> None:
        """20,000 coins each, seed 82; a tenth more is rejected."""
        for probability in (0.01, 0.3, 0.9):
            heads = sum(Seeded(82).child(str(probability), i).coin(probability) for i in range(20_000))
            assert stats.binomtest(heads, 20_000, probability).pvalue > FALSE_ALARM
        assert stats.binomtest(heads, 20_000, 0.88).pvalue < FALSE_ALARM

    def test_certain_coins(self, randomness: Randomness) -> None:
        assert not any(randomness.coin(0.0) for _ in range(200))
        assert all(randomness.coin(1.0) for _ in range(200))

    @pytest.mark.parametrize("probability", [-0.1, 1.1, float("nan")])
    def test_impossible_coins(self, probability: float) -> None:
        with pytest.raises(InputError, match="probability="):
            Seeded(83).coin(probability)

    def test_uniforms(self) -> None:
        """500,000 values, seed 84: flat, below 1, and with all of their 53 bits in use."""
        values = Seeded(84).uniforms(500_000)
        assert values.min() >= 0
        assert values.max() < 1
        assert stats.kstest(values, "uniform").pvalue > FALSE_ALARM
        assert stats.kstest(values**1.02, "uniform").pvalue < FALSE_ALARM
        integers = values * 2.0**53
        assert np.array_equal(integers, np.floor(integers))
        ones = [int((integers.astype(np.int64) >> bit & 1).sum()) for bit in range(53)]
        assert min(stats.binomtest(count, values.size, 0.5).pvalue for count in ones) > FALSE_ALARM

    @pytest.mark.parametrize("high", [1, 2, 3, 10, 1000])
    def test_integers_are_equally_likely(self, high: int) -> None:
        """100,000 values, seed 85."""
        counts = np.bincount(Seeded(85).integers(high, 100_000), minlength=high)
        assert counts.size == high
        assert stats.chisquare(counts).pvalue > FALSE_ALARM or high == 1

    def test_integers_of_a_huge_range_are_not_biased(self) -> None:
        """high = ¾·2**63: a plain remainder of a 64-bit word would favour the lower two thirds 3 to 2."""
        high = 3 * 2**61
        third = np.bincount(Seeded(86).integers(high, 30_000) // (high // 3), minlength=3)
        assert stats.chisquare(third).pvalue > FALSE_ALARM
        biased = np.bincount((Seeded(86).words(30_000) % np.uint64(high)) // np.uint64(high // 3), minlength=3)
        assert stats.chisquare(biased).pvalue < FALSE_ALARM

    @pytest.mark.parametrize("high", [0, -1, 2**63 + 1])
    def test_impossible_ranges(self, high: int) -> None:
        with pytest.raises(InputError, match="high="):
            Seeded(87).integers(high, 1)

    def test_negative_counts(self, randomness: Randomness) -> None:
        with pytest.raises(InputError, match="n=-1"):
            randomness.uniforms(-1)

    def test_nothing_asked_nothing_given(self, randomness: Randomness) -> None:
        assert randomness.uniforms(0).size == randomness.integers(5, 0).size == randomness.words(0).size == 0


def repeated_blocks(values: NDArray[np.float64]) -> int:
    """How many pairs of neighbouring values (16 bytes) occur more than once, at any even place."""
    pairs = values.view(np.uint64).reshape(-1, 2)
    mixed = np.sort(pairs[:, 0] * np.uint64(0x9E3779B97F4A7C15) + pairs[:, 1])
    return int((mixed[1:] == mixed[:-1]).sum())


def test_no_block_is_repeated_in_ten_million_draws() -> None:
    """Secure, fills of 14 to 1,000,000 values; a chance collision of 64 mixed bits has probability 7e-7."""
    randomness, values, start = Secure(), np.empty(10_000_000), 0
    for size in [*([14, 500, 1024, 3000] * 500), *([1_000_000] * 7), 731_000]:
        randomness.fill_gaussian(values[start : start + size], 1.0)
        start += size
    assert start == values.size
    assert repeated_blocks(values) == 0
    values[5_000_000:5_000_010] = values[:10]
    assert repeated_blocks(values) == 5


class TestSeeded:
    def test_the_same_seed_and_calls_give_the_same_bits(self) -> None:
        assert mixed_use(Seeded(7)) == mixed_use(Seeded(7))
        assert all(a != b for a, b in zip(mixed_use(Seeded(7)), mixed_use(Seeded(8)), strict=True))

    def test_known_bits(self) -> None:
        """The stream of a seed is part of a simulation's result: a change of it must be noticed."""
        stream = Seeded(7).child("silo", "a", "round", 3, "step", 7)
        assert stream.words(2).tolist() == [10792588984224674509, 6510728972374847082]

    def test_children_do_not_depend_on_order_or_on_the_parent(self) -> None:
        parent = Seeded(7)
        first = {name: mixed_use(parent.child("silo", name)) for name in ("a", "b", "c")}
        parent.words(1000)
        for name in ("c", "a", "b"):
            assert mixed_use(parent.child("silo").child(name)) == first[name]

    def test_different_names_are_different_streams(self) -> None:
        names: list[tuple[str | int, ...]] = [
            ("a", 1),
            ("a", "1"),
            ("a1",),
            ("a",),
            (1,),
            (-1,),
            (11,),
            (1, 1),
            ("ab", "c"),
            ("a", "bc"),
            ("", "a"),
            ("a", ""),
            ("i1;",),
            ("s1:a",),
        ]
        streams = {Seeded(7).child(*name).words(2).tobytes() for name in names}
        streams.add(Seeded(7).words(2).tobytes())
        assert len(streams) == len(names) + 1

    def test_siblings_are_independent(self) -> None:
        """200 streams of 5,000 normals, seed 88: all 19,900 correlations, and all values together."""
        values = np.empty((200, 5000))
        for step, row in enumerate(values):
            Seeded(88).child("round", 1, "step", step).fill_gaussian(row, 1.0)
        correlation = (values @ values.T / np.sqrt(5000))[np.triu_indices(200, 1)]
        score = ((correlation**2).sum() - correlation.size) / np.sqrt(2 * correlation.size)
        assert 2 * stats.norm.sf(abs(score)) > FALSE_ALARM
        assert stats.kstest(values.ravel(), "norm").pvalue > FALSE_ALARM
        values[1] = 0.1 * values[0] + np.sqrt(0.99) * values[1]
        assert 2 * stats.norm.sf(abs(values[0] @ values[1]) / np.sqrt(5000)) < FALSE_ALARM

    @pytest.mark.parametrize("seed", [-1, 1.5, "7", True, None])
    def test_impossible_seeds(self, seed: int) -> None:
        with pytest.raises(InputError, match="seed="):
            Seeded(seed)

    def test_a_child_without_a_name_would_be_a_copy(self, randomness: Randomness) -> None:
        with pytest.raises(InputError, match="at least one name"):
            randomness.child()

    def test_it_says_that_it_is_a_simulation(self) -> None:
        assert Seeded(7).is_simulation
        assert Seeded(7).child("a").is_simulation
        assert not Secure().is_simulation
        assert not Secure().child("a").is_simulation


class TestSecure:
    def test_two_sources_and_two_draws_have_nothing_in_common(self) -> None:
        one, other = Secure(), Secure()
        seen = [*mixed_use(one), *mixed_use(one), *mixed_use(other)]
        assert len(set(seen)) == len(seen)

    def test_the_same_child_asked_twice_never_repeats(self) -> None:
        source = Secure()
        first, second = (mixed_use(source.child("round", 3)) for _ in range(2))
        assert not set(first) & set(second)

    def test_it_cannot_be_seeded(self) -> None:
        with pytest.raises(TypeError):
            Secure(7)  # type: ignore[call-arg]

    @pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
    def test_streams_cannot_be_duplicated(self, randomness: Randomness, duplicate: Callable[[object], object]) -> None:
        with pytest.raises(PrivacyRefusal, match="would repeat its noise"):
            duplicate(randomness)
        with pytest.raises(PrivacyRefusal, match="would repeat its noise"):
            duplicate([randomness]) if duplicate is not copy.copy else duplicate(randomness)

    def test_threads_never_get_the_same_words(self) -> None:
        source = Secure()
        with ThreadPoolExecutor(8) as pool:
            parts = list(pool.map(source.words, [13] * 8000))
        assert np.unique(np.concatenate(parts)).size == 13 * 8000


FORK = """
import os, sys
import numpy as np
from rpdp.sampling import Secure, Seeded

def use(randomness):
    normals = np.empty(4)
    randomness.fill_gaussian(normals, 1.0)
    return randomness.words(4).tobytes().hex() + " " + normals.tobytes().hex()

randomness = {source}
use(randomness)
child = os.fork()
if child == 0:
    grandchild = os.fork()
    if grandchild:
        os.waitpid(grandchild, 0)
else:
    os.waitpid(child, 0)
os.write(1, (use(randomness) + chr(10)).encode())
os._exit(0)
"""


@pytest.mark.parametrize(("source", "streams"), [("Secure()", 3), ("Seeded(1)", 1)])
def test_after_a_fork_every_process_has_its_own_secure_stream(source: str, streams: int) -> None:
    """Parent, child and grandchild go on from pools that were full when they split; seeded ones do agree."""
    program = FORK.format(source=source)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    lines = [line.split() for line in result.stdout.splitlines()]
    assert len(lines) == 3
    assert len({words for words, _ in lines}) == streams
    assert len({normals for _, normals in lines}) == streams
