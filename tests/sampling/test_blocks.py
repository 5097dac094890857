"""Noise in blocks: the same bits whoever makes them, fresh in every release, and each block once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import stats

from rpdp.errors import PrivacyRefusal
from rpdp.sampling import Randomness, Secure, Seeded
from rpdp.sampling.fork_guard import forks
from rpdp.sampling.keystream import Keystream

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.sampling.noise_blocks import GaussianBlocks

SIZE = 3001
COUNT = 20
FALSE_ALARM = 1e-6


def made(blocks: GaussianBlocks, number: int, std: float = 1.0, size: int = SIZE) -> NDArray[np.float64]:
    out = np.empty(size)
    blocks.fill(number, out, std)
    return out


def test_order_and_threads_have_no_effect() -> None:
    one, other = Seeded(3).gaussian_blocks(), Seeded(3).gaussian_blocks()
    in_turn = [made(one, number) for number in range(COUNT)]
    with ThreadPoolExecutor(4) as pool:
        at_once = list(pool.map(lambda number: made(other, number), reversed(range(COUNT))))
    assert all(np.array_equal(a, b) for a, b in zip(in_turn, reversed(at_once), strict=True))


@pytest.mark.parametrize("source", [Seeded(5), Secure()], ids=["seeded", "secure"])
def test_no_value_comes_twice(source: Randomness) -> None:
    """Across blocks, across releases, and beside what the stream itself gives."""
    own = np.empty(SIZE)
    source.fill_gaussian(own, 1.0)
    releases = [source.gaussian_blocks() for _ in range(3)]
    values = np.concatenate([own, *(made(blocks, number) for blocks in releases for number in range(3))])
    assert np.unique(values).size == values.size


@pytest.mark.parametrize(("claimed", "right"), [(2.0, True), (1.9, False), (2.1, False)])
def test_blocks_are_gaussian_with_the_stated_deviation(claimed: float, right: bool) -> None:
    blocks = Seeded(7).gaussian_blocks()
    values = np.concatenate([made(blocks, number, std=2.0) for number in range(COUNT)]) / claimed
    chi = stats.chi2.cdf((values**2).sum(), values.size)
    p_value = min(stats.kstest(values, "norm").pvalue, 2 * min(chi, 1 - chi))
    assert (p_value > FALSE_ALARM) == right


def test_a_block_is_handed_out_once() -> None:
    blocks = Secure().gaussian_blocks()
    made(blocks, 4)
    with pytest.raises(PrivacyRefusal, match="noise block 4 was already used"):
        made(blocks, 4)


def test_blocks_do_not_survive_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = Secure().gaussian_blocks()
    monkeypatch.setattr(forks, "process", lambda: (1, 1))
    with pytest.raises(PrivacyRefusal, match="forked during a release"):
        made(blocks, 0)


def test_parts_of_a_keystream_have_no_word_in_common() -> None:
    key = bytes(range(32))
    words = np.concatenate([Keystream(key, part).words(1000) for part in (0, 1, 2**63)])
    assert np.unique(words).size == words.size
    assert np.array_equal(Keystream(key).words(5), Keystream(key, 0).words(5))
