"""Skipping at its real scale, and exact where statistics cannot look: tiny q, long gaps, the last bit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mpmath
import numpy as np
import pytest
from scipy import stats

from rpdp.sampling import PoissonSampler, Seeded
from rpdp.sampling import geometric_skips as skipping

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.sampling import Randomness

FALSE_ALARM = 1e-6


class Scripted(Seeded):
    """A stream that begins with chosen words."""

    def __init__(self, *first: int) -> None:
        super().__init__(0)
        self._first = list(first)

    def words(self, n: int) -> NDArray[np.uint64]:
        words = super().words(n).copy()
        for place in range(min(n, len(self._first))):
            words[place] = self._first.pop(0)
        return words


def block_p_value(q: NDArray[np.float64], counts: NDArray[np.int64], draws: int, block: int) -> float:
    """χ² of how often blocks of consecutive records were drawn."""
    expected = draws * q.reshape(-1, block).sum(axis=1)
    variance = draws * (q * (1 - q)).reshape(-1, block).sum(axis=1)
    statistic = ((counts.reshape(-1, block).sum(axis=1) - expected) ** 2 / variance).sum()
    return float(2 * min(stats.chi2.sf(statistic, expected.size), stats.chi2.cdf(statistic, expected.size)))


def counts_of(sampler: PoissonSampler, draws: int, randomness: Randomness) -> NDArray[np.int64]:
    return np.bincount(np.concatenate([sampler.draw(randomness) for _ in range(draws)]), minlength=len(sampler))


class TestLargeScale:
    """200,000 records, 400 draws, χ² over 400 blocks of 500 records: seeds 31 and 32, false alarms 1e-6."""

    q = np.repeat(np.exp(np.sin(np.arange(400)) * 3 - 6), 500)

    def test_blocks_are_drawn_at_their_rate(self) -> None:
        counts = counts_of(PoissonSampler(self.q), 400, Seeded(31))
        assert block_p_value(self.q, counts, 400, 500) > FALSE_ALARM

    def test_a_tenth_more_is_rejected(self) -> None:
        counts = counts_of(PoissonSampler(1.1 * self.q), 400, Seeded(32))
        assert block_p_value(self.q, counts, 400, 500) < FALSE_ALARM

    def test_all_kinds_of_records_together(self) -> None:
        """q = 0, tiny, one in a million, a hundredth, a half, 1: 200,000 records, 300 draws, seed 33."""
        levels = np.array([0.0, 1e-12, 1e-6, 0.01, 0.5, 1.0])
        kind = np.arange(200_000) % 600
        kind = np.where(kind < 5, kind, np.where(kind < 40, 3, 2))
        kind[:7] = 5
        q = levels[kind]
        counts = counts_of(PoissonSampler(q), 300, Seeded(33))
        assert not counts[(kind == 0) | (kind == 1)].any()
        assert (counts[kind == 5] == 300).all()
        for level in (2, 3, 4):
            chances = 300 * int((kind == level).sum())
            test = stats.binomtest(int(counts[kind == level].sum()), chances, levels[level])
            assert test.pvalue > FALSE_ALARM

    def test_one_in_a_million(self) -> None:
        """2,000,000 records, q = 1e-6, 2,000 draws, seed 34: about 4,000 hits, evenly over the line."""
        q = np.full(2_000_000, 1e-6)
        sampler, randomness = PoissonSampler(q), Seeded(34)
        drawn = np.concatenate([sampler.draw(randomness) for _ in range(2_000)])
        assert stats.binomtest(drawn.size, 2_000 * q.size, 1e-6).pvalue > FALSE_ALARM
        assert stats.binomtest(drawn.size, 2_000 * q.size, 1.2e-6).pvalue < FALSE_ALARM
        assert stats.kstest(drawn / q.size, "uniform").pvalue > FALSE_ALARM


class TestExactness:
    def test_exponentials_are_right_to_the_last_bits(self) -> None:
        """Against 60 digits, for small, middling and extreme words: relative error below 2**-50."""
        words = [
            0,
            1,
            2,
            12345,
            2**20,
            2**40 + 7,
            2**62,
            2**63 - 1,
            2**63,
            2**63 + 5,
            2**64 - 2**30,
            2**64 - 1,
        ]
        words += [int(word) for word in Seeded(41).words(500)]
        made = skipping._exponentials(Scripted(*words), len(words))
        with mpmath.workdps(60):
            for word, value in zip(words, made, strict=True):
                v = (mpmath.mpf(word if word < 2**63 else word - 2**64) + 0.5) / 2**64
                exact = -mpmath.log(1 - v) if v > 0 else -mpmath.log(-v)
                assert abs(value / exact - 1) < 2.0**-50

    def test_exponentials_have_the_right_distribution(self) -> None:
        """200,000 values, seed 42; 3 % too long is rejected."""
        made = skipping._exponentials(Seeded(42), 200_000)
        assert stats.kstest(made, "expon").pvalue > FALSE_ALARM
        assert stats.kstest(1.03 * made, "expon").pvalue < FALSE_ALARM

    @pytest.mark.parametrize("slot", [0, 1, 17, 123_456, 999_999])
    def test_tiny_probabilities_find_the_exact_slot(self, slot: int) -> None:
        """q = 1e-11 and a million records: words around the border of two slots fall on either side."""
        q = np.full(1_000_000, 1e-11)
        draws = skipping.GeometricSkips(q, np.arange(q.size))
        with mpmath.workdps(60):
            border = int((1 - (1 - mpmath.mpf(1e-11)) ** slot) * 2**64)
        margin = 2 + slot // 10_000
        assert draws._candidates(Scripted(border + margin)).tolist() == [slot]
        if slot:
            assert draws._candidates(Scripted(border - margin)).tolist() == [slot - 1]

    def test_what_is_realised_is_never_above_q(self) -> None:
        """Exact arithmetic on the thinning words: candidate probability × kept share, within 1e-6 below q."""
        q = np.exp(np.linspace(np.log(1e-9), np.log(0.06), 200_000))
        draws = skipping.GeometricSkips(q, np.arange(q.size))
        for bucket in draws._buckets:
            part = draws._slots[bucket.first : bucket.first + bucket.size]
            total = bucket.probability * (part[:, 1] / 2.0**64) * (1 + bucket.slack)
            wanted = q[part[:, 0].astype(np.int64)]
            assert (total <= wanted).all()
            assert (total >= wanted * (1 - 1e-6)).all()

    def test_buckets_cover_all_slots_once_and_stay_few(self) -> None:
        q = np.exp(np.linspace(np.log(1e-15), np.log(0.06), 150_000))
        draws = skipping.GeometricSkips(q, np.arange(q.size))
        assert sum(bucket.size for bucket in draws._buckets) == q.size
        assert [b.first for b in draws._buckets[1:]] == [b.first + b.size for b in draws._buckets[:-1]]
        assert sorted(draws._slots[:, 0].tolist()) == list(range(q.size))
        assert len(draws._buckets) < 20
        candidates = sum(bucket.size * bucket.probability for bucket in draws._buckets)
        assert candidates < 2 * q.sum() + 32 * len(draws._buckets)

    def test_running_out_of_gaps_changes_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """With far too few gaps drawn ahead the rest is drawn later: 2,000 draws of 200 records, seed 43."""
        monkeypatch.setattr(skipping, "_SPARE_DEVIATIONS", -3.0)
        q = np.repeat([0.05, 0.1, 0.3, 0.5], 50)
        draws, randomness = skipping.GeometricSkips(q, np.arange(200)), Seeded(43)
        assert any(bucket.gaps_ahead < bucket.size * bucket.probability for bucket in draws._buckets)
        counts = np.zeros(200, dtype=np.int64)
        for _ in range(2_000):
            drawn = draws.draw(randomness)
            assert np.unique(drawn).size == drawn.size
            counts[drawn] += 1
        assert block_p_value(q, counts, 2_000, 1) > FALSE_ALARM
