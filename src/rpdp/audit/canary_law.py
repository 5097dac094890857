"""The probability law of a canary's coordinate under the plan: of one observation, in units of the clip norm L.

One local step releases, on the coordinate of canary k, D·m + N(0, σ²): D is 1 if the canary is a record of the silo and
was drawn (probability q, independently in every step), m = 1 − 1e-4 is what clipping leaves of its gradient, and
nothing else reaches that coordinate. An attacker who sees every step observes these releases one by one. One who sees
only what leaves the silo observes their sum over the τ steps of a round. Both follow the same law with a different
number of releases s in the sum:

    out: N(0, sσ²)        in: Σ_j Binomial(s, q)(j) · N(jm, sσ²)

In a run with a request nobody is sampled: a canary of weight w adds w·m to every release, q = 1.

A canary person with r records adds up to r contributions to each release: Binomial(rs, q) in place of Binomial(s, q).

The grid that releases are rounded to is 2⁻²⁰ of the noise: invisible here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy import special, stats

from rpdp.checks import require_count, require_least, require_positive
from rpdp.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.sampling import Randomness

    FloatArray = NDArray[np.float64]

CONTRIBUTION = 1.0 - 1e-4
"""What a canary adds to the sum, m: gradients are clipped at L(1 − 1e-4). A test compares it with the kernels'."""

REACH = 9.0
"""Standard deviations beyond which no observation is expected: 1e-19 of them."""

_NEGLIGIBLE = 1e-17
"""Terms of a mixture with less weight than this change no probability that a test can see."""

_CURVE_POINTS = 20_001
_CHUNK = 4_096


@dataclass(frozen=True)
class CanaryLaw:
    """The law of one observation of a canary.

    Args:
        probability: q of the canary's group, from the silo plan.
        noise_multiplier: σ of the public plan.
        releases: s, how many local steps one observation adds up: 1 for an attacker who sees every step.
        records: r, how many records the canary has.
        contribution: m, what a record adds when it is drawn.
        weight: w of a run with a request; None where records are sampled.
    """

    probability: float
    noise_multiplier: float
    releases: int = 1
    records: int = 1
    contribution: float = CONTRIBUTION
    weight: float | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.probability <= 1.0:
            raise InputError(f"probability={self.probability} must lie between 0 and 1")
        require_positive("noise_multiplier", self.noise_multiplier)
        require_count("releases", self.releases)
        require_count("records", self.records)
        require_least("contribution", self.contribution, 0.0)

    @property
    def planned(self) -> float:
        """What the plan gave the canary, and its price depends on: q or w."""
        return self.probability if self.weight is None else self.weight

    @property
    def chances(self) -> int:
        """How often a record of the canary may be drawn in one observation."""
        return self.releases * self.records

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise in one observation."""
        return self.noise_multiplier * math.sqrt(self.releases)

    def total(self, observations: int) -> CanaryLaw:
        """The law of the sum of so many independent observations."""
        return replace(self, releases=self.releases * observations)

    def below(self, values: FloatArray, *, taken: bool) -> FloatArray:
        """The probability of an observation up to each value, of a canary that is in (`taken`) or out."""
        if not taken:
            return np.asarray(special.ndtr(values / self.deviation))
        return np.concatenate([self._below(values[i : i + _CHUNK]) for i in range(0, len(values), _CHUNK)] or [values])

    def _below(self, values: FloatArray) -> FloatArray:
        draws, weights = self._weights
        means = draws * self.contribution
        return np.asarray(special.ndtr((values[:, None] - means) / self.deviation) @ weights)

    def log_ratio(self, values: FloatArray) -> FloatArray:
        """The log of (density if in / density if out) at each value: the best score there is (Neyman and Pearson).

        Closed form for single steps. For sums it is read off a fine curve; its rounding can cost the attacker a little
        and never makes a bound invalid, since any function of the observations is a score.
        """
        if self.chances == 1:
            return self._log_ratio_of_step(values)
        where, curve = self._curve
        return np.interp(values, where, curve)

    def sample(self, count: int, randomness: Randomness, *, taken: bool) -> FloatArray:
        """Observations drawn from the law itself, not from any silo."""
        values = np.empty(count)
        randomness.fill_gaussian(values, self.deviation)
        if taken and self.probability > 0.0:
            at_most = stats.binom.cdf(np.arange(self.chances + 1), self.chances, self.probability)
            at_most[-1] = 1.0
            values += self.contribution * np.searchsorted(at_most, randomness.uniforms(count), side="right")
        return values

    def _log_ratio_of_step(self, values: FloatArray) -> FloatArray:
        q, variance = self.probability, self.noise_multiplier**2
        drawn = (values - self.contribution / 2.0) * (self.contribution / variance)
        if q == 1.0:
            return drawn
        return np.log1p(q * np.expm1(drawn))

    @cached_property
    def _weights(self) -> tuple[FloatArray, FloatArray]:
        """How often a canary is drawn, and the probability of it, without what is negligible."""
        draws = np.arange(self.chances + 1)
        weights = stats.binom.pmf(draws, self.chances, self.probability)
        kept = weights > _NEGLIGIBLE
        return draws[kept].astype(np.float64), weights[kept]

    @cached_property
    def _curve(self) -> tuple[FloatArray, FloatArray]:
        low, high = self.range
        where = np.linspace(low, high, _CURVE_POINTS)
        draws = np.arange(self.chances + 1)
        weights = stats.binom.logpmf(draws, self.chances, self.probability)
        means = draws * self.contribution
        curve = np.empty_like(where)
        for start in range(0, len(where), _CHUNK):
            part = where[start : start + _CHUNK, None]
            exponents = weights + (part - means / 2.0) * means / self.deviation**2
            curve[start : start + _CHUNK] = special.logsumexp(exponents, axis=1)
        return where, curve

    @property
    def range(self) -> tuple[float, float]:
        """Where observations lie, in or out."""
        reach = REACH * self.deviation
        return -reach, self.chances * self.contribution + reach
