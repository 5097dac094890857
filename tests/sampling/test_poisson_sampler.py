"""The sampler draws every record independently with its own probability, on both of its paths.

Every statistical test has a fixed seed, so it cannot flicker; its threshold corresponds to a false-alarm rate
of 1e-6 over seeds. Each comes with samplers that are wrong in a known way and must be rejected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import pytest
from scipy import stats

from rpdp.errors import InputError
from rpdp.sampling import PoissonSampler, Seeded
from rpdp.sampling import poisson_sampler as sampler_module

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from rpdp.sampling import Randomness

FALSE_ALARM = 1e-6


class Sampler(Protocol):
    def draw(self, randomness: Randomness) -> NDArray[np.int64]: ...


class FixedSize:
    """Wrong: a shuffler. Each record has the right frequency, but the batch size never varies."""

    def __init__(self, probabilities: ArrayLike) -> None:
        self._q = np.asarray(probabilities)

    def draw(self, randomness: Randomness) -> NDArray[np.int64]:
        size = round(self._q.sum())
        return np.sort(np.argsort(randomness.words(self._q.size))[:size])


class NeverEmpty(PoissonSampler):
    """Wrong: draws again until somebody is in."""

    def draw(self, randomness: Randomness | None = None) -> NDArray[np.int64]:
        while not (drawn := super().draw(randomness)).size:
            pass
        return drawn


def presence(sampler: Sampler, records: int, draws: int, seed: int) -> NDArray[np.bool_]:
    randomness = Seeded(seed)
    present = np.zeros((draws, records), dtype=bool)
    for row in present:
        row[sampler.draw(randomness)] = True
    return present


def two_sided(z: float) -> float:
    return float(2 * stats.norm.sf(abs(z)))


def frequency_p_value(present: NDArray[np.bool_], q: NDArray[np.float64]) -> float:
    """χ² of all inclusion frequencies together, one degree of freedom for each record."""
    draws = len(present)
    statistic = ((present.sum(axis=0) - draws * q) ** 2 / (draws * q * (1 - q))).sum()
    return float(2 * min(stats.chi2.sf(statistic, q.size), stats.chi2.cdf(statistic, q.size)))


def pair_p_value(present: NDArray[np.bool_], q: NDArray[np.float64]) -> float:
    """Sum of squared correlations of all pairs, against its exact mean and variance under independence."""
    draws, records = present.shape
    z = (present - q) / np.sqrt(q * (1 - q))
    correlation = z.T @ z / np.sqrt(draws)
    upper = np.triu_indices(records, 1)
    kurtosis = (1 - 3 * q * (1 - q)) / (q * (1 - q))
    fourth = 3 * (1 - 1 / draws) + np.outer(kurtosis, kurtosis)[upper] / draws
    variance = (fourth - 1).sum() + (records - 1) * (records - 2) * ((kurtosis - 1) / draws).sum()
    return two_sided(((correlation[upper] ** 2).sum() - len(upper[0])) / np.sqrt(variance))


def batch_size_p_value(present: NDArray[np.bool_], q: NDArray[np.float64]) -> float:
    """Variance of the batch size against Σ q (1 − q): the pairs again, with all weight on one number."""
    draws = len(present)
    expected = (q * (1 - q)).sum()
    squares = ((present.sum(axis=1) - q.sum()) ** 2).sum() / expected
    return float(2 * min(stats.chi2.sf(squares, draws), stats.chi2.cdf(squares, draws)))


def joint_p_value(present: NDArray[np.bool_], q: NDArray[np.float64]) -> float:
    """χ² of the frequencies of all 2ᴺ possible batches: the whole joint distribution at once."""
    records = q.size
    code = present @ (1 << np.arange(records))
    subsets = np.arange(2**records)[:, None] >> np.arange(records) & 1
    expected = np.where(subsets, q, 1 - q).prod(axis=1) * len(present)
    return float(stats.chisquare(np.bincount(code, minlength=2**records), expected).pvalue)


@pytest.fixture(params=["comparison", "skipping"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Force one of the two paths, for few records and for large probabilities too."""
    chosen = str(request.param)
    monkeypatch.setattr(sampler_module, "SKIP_FROM", 0 if chosen == "skipping" else 10**9)
    monkeypatch.setattr(sampler_module, "_DENSE", 0.95)
    return chosen


@pytest.mark.usefixtures("path")
class TestDistribution:
    """Sample sizes: 20,000 draws of 4 records; 4,000 draws of 300 records with q from 0.02 to 0.6."""

    few = np.array([0.1, 0.3, 0.45, 0.15])
    many = np.exp(np.linspace(np.log(0.02), np.log(0.6), 300))[np.arange(300) * 7 % 300]

    def test_every_batch_of_four_records_has_its_probability(self) -> None:
        present = presence(PoissonSampler(self.few), 4, 20_000, seed=11)
        assert joint_p_value(present, self.few) > FALSE_ALARM

    @pytest.mark.parametrize(
        ("kind", "factor"),
        [(PoissonSampler, 1.1), (PoissonSampler, 0.9), (FixedSize, 1.0), (NeverEmpty, 1.0)],
        ids=["q+10%", "q-10%", "shuffler", "redraw"],
    )
    def test_wrong_joint_distributions_are_rejected(
        self, kind: Callable[[NDArray[np.float64]], Sampler], factor: float
    ) -> None:
        present = presence(kind(factor * self.few), 4, 20_000, seed=12)
        assert joint_p_value(present, self.few) < FALSE_ALARM

    def test_frequencies_and_pairs_of_many_records(self) -> None:
        present = presence(PoissonSampler(self.many), 300, 4_000, seed=13)
        assert frequency_p_value(present, self.many) > FALSE_ALARM
        assert pair_p_value(present, self.many) > FALSE_ALARM
        assert batch_size_p_value(present, self.many) > FALSE_ALARM

    @pytest.mark.parametrize("factor", [0.9, 1.1])
    def test_probabilities_off_by_a_tenth_are_rejected(self, factor: float) -> None:
        present = presence(PoissonSampler(factor * self.many), 300, 4_000, seed=14)
        assert frequency_p_value(present, self.many) < FALSE_ALARM

    def test_one_record_off_by_a_tenth_is_rejected(self) -> None:
        q = np.full(10, 0.3)
        wrong = q.copy()
        wrong[4] *= 1.1
        assert frequency_p_value(presence(PoissonSampler(wrong), 10, 20_000, seed=15), q) < FALSE_ALARM

    def test_a_shuffler_is_rejected_though_its_frequencies_are_right(self) -> None:
        q = np.full(300, 0.1)
        present = presence(FixedSize(q), 300, 4_000, seed=16)
        assert frequency_p_value(present, q) > FALSE_ALARM
        assert batch_size_p_value(present, q) < FALSE_ALARM

    def test_records_that_come_in_pairs_are_rejected(self) -> None:
        q = np.full(100, 0.1)
        present = presence(PoissonSampler(q), 100, 4_000, seed=17)
        present[:, 1] = present[:, 0]
        assert frequency_p_value(present, q) > FALSE_ALARM
        assert pair_p_value(present, q) < FALSE_ALARM

    @pytest.mark.parametrize(("kind", "accepted"), [(PoissonSampler, True), (NeverEmpty, False)])
    def test_empty_batches_are_as_frequent_as_they_must_be(self, kind: type[PoissonSampler], accepted: bool) -> None:
        """5,000 draws of 5 records with q = 0.1: 59 % are empty."""
        present = presence(kind(np.full(5, 0.1)), 5, 5_000, seed=18)
        empty = int((~present.any(axis=1)).sum())
        assert bool(stats.binomtest(empty, 5_000, 0.9**5).pvalue > FALSE_ALARM) is accepted

    def test_successive_draws_are_independent(self) -> None:
        """4,000 draws of 300 records: correlation of each draw with the next."""
        present = presence(PoissonSampler(self.many), 300, 4_000, seed=19)
        z = (present - self.many) / np.sqrt(self.many * (1 - self.many))
        repeats = (z[1:] * z[:-1]).sum() / np.sqrt(z[1:].size)
        assert two_sided(repeats) > FALSE_ALARM
        assert two_sided((z[1:] * z[1:]).sum() / np.sqrt(z[1:].size)) < FALSE_ALARM


@pytest.mark.usefixtures("path")
class TestEdges:
    def test_zero_never_and_one_always(self) -> None:
        present = presence(PoissonSampler([0.0, 1.0, 0.5, 1.0, 0.0, 0.01]), 6, 500, seed=21)
        assert not present[:, [0, 4]].any()
        assert present[:, [1, 3]].all()
        assert present[:, 2].any()
        assert not present[:, 2].all()

    def test_indices_are_sorted_and_unique(self) -> None:
        sampler, randomness = PoissonSampler(np.linspace(0, 1, 200)), Seeded(22)
        for _ in range(50):
            drawn = sampler.draw(randomness)
            assert drawn.dtype == np.int64
            assert (np.diff(drawn) > 0).all()

    @pytest.mark.parametrize("q", [[], [0.0, 0.0], [1e-30, 5e-324]], ids=["none", "zeros", "below 2**-64"])
    def test_nobody_to_draw(self, q: list[float]) -> None:
        assert PoissonSampler(q).draw(Seeded(23)).tolist() == []

    def test_the_same_stream_gives_the_same_draw(self) -> None:
        sampler = PoissonSampler(np.full(100, 0.3))
        stream = ("round", 3, "step", 7)
        first = sampler.draw(Seeded(24).child(*stream))
        sampler.draw(Seeded(25))
        assert np.array_equal(first, sampler.draw(Seeded(24).child(*stream)))
        assert not np.array_equal(first, sampler.draw(Seeded(24).child("round", 3, "step", 8)))

    def test_the_default_randomness_moves_on(self) -> None:
        sampler = PoissonSampler(np.full(100, 0.3), Seeded(26))
        assert not np.array_equal(sampler.draw(), sampler.draw())

    def test_switched_off_records_stay_away_and_nothing_else_changes(self) -> None:
        q = np.linspace(0.05, 1.0, 60)
        sampler, untouched = PoissonSampler(q), PoissonSampler(q)
        sampler.switch_off([3, 59])
        sampler.switch_off(np.array([7]))
        sampler.switch_off([])
        seen, reference = presence(sampler, 60, 300, seed=27), presence(untouched, 60, 300, seed=27)
        assert not seen[:, [3, 7, 59]].any()
        assert reference[:, [3, 7, 59]].any(axis=0).all()
        others = np.setdiff1d(np.arange(60), [3, 7, 59])
        assert np.array_equal(seen[:, others], reference[:, others])

    def test_the_callers_array_may_change_afterwards(self) -> None:
        q = np.zeros(50)
        sampler = PoissonSampler(q)
        q[:] = 1.0
        assert sampler.draw(Seeded(28)).size == 0


class TestBadInput:
    @pytest.mark.parametrize(
        ("q", "words"),
        [
            ([0.1, float("nan")], "probability nan of record 1"),
            ([-0.1, 0.1], r"probability -0\.1 of record 0"),
            ([0.1, 0.2, 1.0000001], r"probability 1\.0000001 of record 2"),
            ([0.1, float("inf")], "probability inf of record 1"),
            ([[0.1, 0.2]], r"shape \(1, 2\)"),
            (0.5, r"shape \(\)"),
            (["many"], "must be numbers"),
        ],
    )
    def test_probabilities(self, q: ArrayLike, words: str) -> None:
        with pytest.raises(InputError, match=words):
            PoissonSampler(q)

    def test_no_randomness(self) -> None:
        with pytest.raises(InputError, match="no randomness"):
            PoissonSampler([0.5]).draw()

    @pytest.mark.parametrize(("indices", "words"), [([2], "index 2"), ([-1], "index -1"), ([0.5], "whole")])
    def test_switch_off(self, indices: ArrayLike, words: str) -> None:
        with pytest.raises(InputError, match=words):
            PoissonSampler([0.5, 0.5]).switch_off(indices)
