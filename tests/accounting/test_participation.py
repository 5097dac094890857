"""The distribution of joined rounds, its moments, and its effect on a Fourier transform."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from rpdp import Schedule
from rpdp.accounting import participation
from rpdp.accounting.participation import BinomialCount, ExplicitCount, ParticipationCount

LAWS: dict[str, ParticipationCount] = {
    "poisson": Schedule(12, 1, participation=0.3).count(),
    "always": Schedule(12, 1, participation=1.0).count(),
    "capped": Schedule(12, 1, participation=0.3, max_participations=4).count(),
    "exact": Schedule(12, 1, participations=5).count(),
    "first of exact": Schedule(12, 1, participations=5).count(7),
    "first of capped": Schedule(12, 1, participation=0.3, max_participations=4).count(7),
}
pytestmark = pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())


def direct(law: ParticipationCount) -> tuple[np.ndarray, np.ndarray]:
    probabilities = law.probabilities()
    return np.arange(probabilities.size), probabilities


def test_probabilities_add_up(law: ParticipationCount) -> None:
    counts, probabilities = direct(law)
    assert probabilities.sum() == pytest.approx(1.0)
    assert counts[-1] == law.largest


@pytest.mark.parametrize("log_mass", [1e-12, 1e-3, 0.5, 2.0, 40.0])
def test_log_moment_and_tilted_mean_equal_the_sums(law: ParticipationCount, log_mass: float) -> None:
    counts, probabilities = direct(law)
    weights = probabilities * np.exp(counts * log_mass)
    argument = np.array([log_mass])
    expected = np.log1p((probabilities * np.expm1(counts * log_mass)).sum())
    assert law.log_moment(argument)[0] == pytest.approx(expected, rel=1e-9, abs=1e-15)
    assert law.tilted_mean(argument)[0] == pytest.approx((weights * counts).sum() / weights.sum(), rel=1e-9)


@pytest.mark.parametrize("log_mass", [0.0, 0.7])
def test_mixing_equals_the_polynomial(law: ParticipationCount, log_mass: float) -> None:
    counts, probabilities = direct(law)
    spectrum = 0.9 * np.exp(1j * np.linspace(0, 3, 7))[None, :]
    weights = probabilities * np.exp(counts * log_mass)
    expected = (weights[:, None] * spectrum ** counts[:, None]).sum(axis=0) / weights.sum()
    np.testing.assert_allclose(law.mix(spectrum, np.array([log_mass]))[0], expected, rtol=1e-12, atol=1e-14)


def test_compressing_a_long_list_rounds_counts_up(law: ParticipationCount, monkeypatch: pytest.MonkeyPatch) -> None:
    counts, probabilities = direct(law)
    monkeypatch.setattr(participation, "_MOST_COUNTS", 3)
    coarse = ExplicitCount.from_probabilities(probabilities)
    assert coarse.counts.size <= 4
    for k in counts:  # stochastically larger, with the same largest count
        assert coarse.probabilities()[:k].sum() <= probabilities[:k].sum() + 1e-12
    assert coarse.largest == law.largest


def test_counts_match_their_definition(law: ParticipationCount) -> None:
    counts, probabilities = direct(law)
    binomial = stats.binom.pmf(np.arange(13), 12, 0.3)
    expected = {
        id(LAWS["poisson"]): binomial,
        id(LAWS["always"]): np.eye(13)[12],
        id(LAWS["capped"]): np.append(binomial[:4], binomial[4:].sum()),
        id(LAWS["exact"]): np.eye(6)[5],
        id(LAWS["first of exact"]): stats.hypergeom.pmf(np.arange(6), 12, 5, 7),
        id(LAWS["first of capped"]): np.append(stats.binom.pmf(np.arange(4), 7, 0.3), stats.binom.sf(3, 7, 0.3)),
    }[id(law)]
    np.testing.assert_allclose(probabilities, expected, atol=1e-12)
    assert isinstance(law, BinomialCount | ExplicitCount)
    assert counts.size == expected.size


@pytest.mark.parametrize("log_mass", [1e-300, 1e-40, 1e-18, 1e-9])
def test_moments_near_zero_keep_their_digits(law: ParticipationCount, log_mass: float) -> None:
    """To first order the moment is the mean of k: weights that sum to 1 would swallow it below 1e-16."""
    counts, probabilities = direct(law)
    mean = float(counts @ probabilities)
    assert law.log_moment(np.array([log_mass]))[0] == pytest.approx(mean * log_mass, rel=1e-7, abs=0.0)
