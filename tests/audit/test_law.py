"""The law of an observation: distribution, likelihood ratio and samples agree with each other and with the kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from rpdp.audit.canary_law import CONTRIBUTION, CanaryLaw
from rpdp.errors import InputError
from rpdp.sampling import Seeded
from rpdp.training import CLIP_SLACK

LAWS = [CanaryLaw(0.3, 2.0), CanaryLaw(0.3, 2.0, 7), CanaryLaw(1.0, 0.8), CanaryLaw(1.0, 0.8, 3), CanaryLaw(0.0, 1.0)]
LAWS += [CanaryLaw(0.3, 2.0, 1, 3), CanaryLaw(0.2, 2.0, 4, 2)]
"""The last two are of persons with several records."""


def density(law: CanaryLaw, values: np.ndarray, *, taken: bool) -> np.ndarray:
    """Written out once more, from the docstring."""
    chances = law.releases * law.records
    draws = np.arange(chances + 1) if taken else np.zeros(1)
    weights = stats.binom.pmf(draws, chances, law.probability) if taken else np.ones(1)
    return np.asarray(stats.norm.pdf(values[:, None], draws * CONTRIBUTION, law.deviation) @ weights)


def test_a_canary_adds_what_clipping_leaves() -> None:
    assert CONTRIBUTION == 1.0 - CLIP_SLACK


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("taken", [True, False], ids=["in", "out"])
def test_distribution_is_the_integral_of_the_density(law: CanaryLaw, taken: bool) -> None:
    low, high = law.range
    values = np.linspace(low, high, 20_001)
    found = law.below(values, taken=taken)
    integral = np.concatenate([[0.0], np.cumsum(density(law, (values[1:] + values[:-1]) / 2, taken=taken))])
    assert np.abs(found - integral * (values[1] - values[0])).max() < 1e-6
    assert found[0] < 1e-15
    assert found[-1] > 1.0 - 1e-15


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_log_ratio_is_that_of_the_densities(law: CanaryLaw) -> None:
    values = np.linspace(-3 * law.deviation, law.releases + 3 * law.deviation, 501)
    wanted = np.log(density(law, values, taken=True) / density(law, values, taken=False))
    assert np.abs(law.log_ratio(values) - wanted).max() < 1e-5


@pytest.mark.parametrize("taken", [True, False], ids=["in", "out"])
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_samples_follow_the_law(law: CanaryLaw, taken: bool) -> None:
    """Seed 1, 20,000 samples, false alarm 1e-4; another q or σ is rejected."""
    sample = law.sample(20_000, Seeded(1), taken=taken)
    assert p_value(sample, law, taken=taken) > 1e-4
    assert p_value(sample, replace(law, noise_multiplier=0.9 * law.noise_multiplier), taken=taken) < 1e-6
    if taken:
        other = 0.5 if law.probability in (0.0, 1.0) else law.probability * 1.5
        assert p_value(sample, replace(law, probability=other), taken=True) < 1e-6


def p_value(sample: np.ndarray, law: CanaryLaw, *, taken: bool) -> float:
    return float(stats.ks_1samp(sample, distribution_of(law, taken=taken)).pvalue)


def distribution_of(law: CanaryLaw, *, taken: bool) -> Any:
    """For scipy, which hands over all values at once."""
    return lambda values: law.below(np.asarray(values), taken=taken)


def test_sums_of_observations() -> None:
    assert CanaryLaw(0.3, 2.0, 5).total(4) == CanaryLaw(0.3, 2.0, 20)
    assert CanaryLaw(0.3, 2.0, 5, 3).total(4) == CanaryLaw(0.3, 2.0, 20, 3)


@pytest.mark.parametrize(("q", "sigma", "releases"), [(1.1, 1.0, 1), (-0.1, 1.0, 1), (0.5, 0.0, 1), (0.5, 1.0, 0)])
def test_nonsense_is_refused(q: float, sigma: float, releases: int) -> None:
    with pytest.raises(InputError):
        CanaryLaw(q, sigma, releases)
