"""Rules of privacy.md that a seeded bug has shown to need a test of their own: borders of draws, to the bit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from rpdp.sampling import PoissonSampler, Secure, Seeded

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.sampling import Randomness

LARGEST = 2**64 - 1


class Fixed(Seeded):
    """A stream in which every word is the same."""

    def __init__(self, word: int) -> None:
        super().__init__(0)
        self._word = word

    def words(self, n: int) -> NDArray[np.uint64]:
        return np.full(n, self._word, dtype=np.uint64)


@pytest.mark.parametrize(
    ("q", "last"),
    [(2.0**-64, 0), (3 * 2.0**-64, 2), (0.5, 2**63 - 1), (1.0 - 2.0**-53, LARGEST - 2**11), (1.0, LARGEST)],
)
def test_the_border_of_a_draw_is_exact(q: float, last: int) -> None:
    """q · 2⁶⁴ of all words draw the record, and not one more."""
    sampler = PoissonSampler([q])
    assert sampler.draw(Fixed(last)).tolist() == [0]
    if last < LARGEST:
        assert sampler.draw(Fixed(last + 1)).tolist() == []


def test_what_words_cannot_resolve_is_rounded_down() -> None:
    """q · 2⁶⁴ = 2⁵¹ + ½: the word 2⁵¹ does not draw."""
    q = 2.0**-13 * (1.0 + 2.0**-52)
    assert q * 2.0**64 == 2.0**51 + 0.5
    assert PoissonSampler([q]).draw(Fixed(2**51 - 1)).tolist() == [0]
    assert PoissonSampler([q]).draw(Fixed(2**51)).tolist() == []
    assert PoissonSampler([2.0**-65]).draw(Fixed(0)).tolist() == []


def test_the_border_of_a_coin_is_exact() -> None:
    assert Fixed(2**63 - 1).coin(0.5)
    assert not Fixed(2**63).coin(0.5)
    assert Fixed(0).coin(2.0**-64)
    assert not Fixed(1).coin(2.0**-64)
    assert not Fixed(0).coin(0.0)


@pytest.mark.parametrize("randomness", [Secure(), Seeded(1)], ids=["secure", "seeded"])
def test_no_word_comes_twice(randomness: Randomness) -> None:
    """3,000 words in small requests; a chance coincidence has probability 3e-13."""
    words = np.concatenate([randomness.words(size) for size in [1, 3, 5, 7, 14] * 100])
    assert len(np.unique(words)) == len(words) == 3000


@pytest.mark.parametrize("randomness", [Secure(), Seeded(1)], ids=["secure", "seeded"])
def test_blocks_of_two_releases_have_nothing_in_common(randomness: Randomness) -> None:
    first, second = np.empty(64), np.empty(64)
    for out in (first, second):
        randomness.gaussian_blocks().fill(0, out, 1.0)
    assert not np.isin(first, second).any()
