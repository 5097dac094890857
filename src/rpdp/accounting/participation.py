"""The number of rounds that a silo joins, and its effect on a record's cost (privacy.md, section 4).

An observer who sees every update, and who took part in each round, learns about a record only through the k rounds
that its silo joins. So the moment of a run is E_k[M^k] and its privacy-loss distribution is Σ_k Pr[k] · PLD^{*k}, where
M and PLD belong to one joined round. A `ParticipationCount` is the distribution of k and computes both. It is exact for
Poisson participation and for an exact number of rounds. A long explicit list of counts is rounded *up* to a coarser
one, which can only overstate a cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from scipy import special, stats

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.accounting._types import ComplexArray, FloatArray

_MOST_COUNTS = 2048
"""An explicit list longer than this is rounded up to about this many counts."""

_NEGLIGIBLE_MASS = 1e-18

_NEGLIGIBLE_LOG_WEIGHT = np.log(1e-18)
"""Tilted weights below this fraction of the largest change a result by less than the stated numerical error."""


class ParticipationCount(Protocol):
    """The distribution of the number k of rounds that a silo joins."""

    @property
    def largest(self) -> int:
        """The largest possible k."""
        ...

    def probabilities(self) -> FloatArray:
        """Pr[k] for k = 0 … largest."""
        ...

    def log_moment(self, log_mass: FloatArray) -> FloatArray:
        """Log E[exp(k · log_mass)], elementwise, for log_mass ≥ 0 or any finite value."""
        ...

    def tilted_mean(self, log_mass: FloatArray) -> FloatArray:
        """E[k exp(k · log_mass)] / E[exp(k · log_mass)], elementwise."""
        ...

    def mix(self, spectrum: ComplexArray, log_mass: FloatArray) -> ComplexArray:
        """The Fourier transform of the run, from the transform of one joined round.

        Each row of `spectrum` is the transform of an exponentially tilted round, scaled to total mass 1; its true total
        is exp(log_mass). The result is scaled to total mass 1 as well; its true total is exp(log_moment).
        """
        ...


@dataclass(frozen=True)
class BinomialCount:
    """Poisson participation: the silo joins each of `rounds` rounds independently with `probability`."""

    rounds: int
    probability: float

    @property
    def largest(self) -> int:
        """The largest possible k."""
        return self.rounds

    def probabilities(self) -> FloatArray:
        """Pr[k] for k = 0 … rounds."""
        k = np.arange(self.rounds + 1)
        return np.asarray(stats.binom.pmf(k, self.rounds, self.probability), dtype=np.float64)

    def log_moment(self, log_mass: FloatArray) -> FloatArray:
        """Rounds · log(1 − λ + λ exp(log_mass)), accurate for small and for huge exponents."""
        return self.rounds * self._log_round(np.asarray(log_mass, dtype=np.float64))

    def tilted_mean(self, log_mass: FloatArray) -> FloatArray:
        """The number of rounds times the tilted rate."""
        return self.rounds * self._tilted_rate(log_mass)

    def mix(self, spectrum: ComplexArray, log_mass: FloatArray) -> ComplexArray:
        """(1 − λ' + λ' φ)^rounds with the tilted rate λ'."""
        return integer_power(1.0 - self._tilted_rate(log_mass)[:, None] * (1.0 - spectrum), self.rounds)

    def _tilted_rate(self, log_mass: FloatArray) -> FloatArray:
        return np.asarray(np.exp(np.log(self.probability) + log_mass - self._log_round(log_mass)))

    def _log_round(self, log_mass: FloatArray) -> FloatArray:
        if self.probability == 1.0:
            return log_mass
        # log1p keeps the digits of a tiny exponent; logaddexp does not overflow for a huge one.
        small = np.log1p(self.probability * np.expm1(np.minimum(log_mass, 1.0)))
        large = np.logaddexp(np.log1p(-self.probability), np.log(self.probability) + log_mass)
        return np.where(log_mass < 1.0, small, large)


@dataclass(frozen=True)
class ExplicitCount:
    """Any distribution of k as a rising list of counts: with a cap, exactly k, or the first rounds of a longer run."""

    counts: NDArray[np.int64]
    log_probabilities: FloatArray
    is_rounded_up: bool = False
    """Whether a long list was shortened by rounding up. Then only upper bounds on a cost are valid."""

    @classmethod
    def exactly(cls, k: int) -> ExplicitCount:
        """A point mass."""
        return cls(np.array([k]), np.zeros(1))

    @classmethod
    def from_probabilities(cls, probabilities: FloatArray) -> ExplicitCount:
        """From Pr[0], Pr[1], …; a long list is shortened by rounding counts up.

        Where all but 1e-18 of the mass lies, the counts keep a gap of 1 (more only if thousands of them carry weight).
        Smaller counts are rounded up to the first of these, and larger ones to the largest count of all.
        """
        largest = probabilities.size - 1
        is_long = largest > _MOST_COUNTS
        counts, mass = _shortened(probabilities) if is_long else (np.arange(largest + 1), probabilities)
        with np.errstate(divide="ignore"):
            return cls(counts, np.log(mass / mass.sum()), is_long)

    @property
    def largest(self) -> int:
        """The largest possible k."""
        return int(self.counts[-1])

    def probabilities(self) -> FloatArray:
        """Pr[k] for k = 0 … largest."""
        result = np.zeros(self.largest + 1)
        result[self.counts] = np.exp(self.log_probabilities)
        return result

    def log_moment(self, log_mass: FloatArray) -> FloatArray:
        """Log-sum-exp over the counts."""
        if self.counts.size == 1:
            return self.largest * np.asarray(log_mass, dtype=np.float64)
        exponents = np.asarray(log_mass, dtype=np.float64)[..., None] * self.counts + self.log_probabilities
        return np.asarray(special.logsumexp(exponents, axis=-1), dtype=np.float64)

    def tilted_mean(self, log_mass: FloatArray) -> FloatArray:
        """The mean of the counts under tilted weights."""
        exponents = np.asarray(log_mass, dtype=np.float64)[..., None] * self.counts + self.log_probabilities
        weights = np.exp(exponents - exponents.max(axis=-1, keepdims=True))
        return np.asarray((weights @ self.counts) / weights.sum(axis=-1), dtype=np.float64)

    def mix(self, spectrum: ComplexArray, log_mass: FloatArray) -> ComplexArray:
        """Σ_k w_k φ^k by Horner's rule over the counts that carry weight."""
        exponents = log_mass[:, None] * self.counts + self.log_probabilities
        exponents -= exponents.max(axis=1, keepdims=True)
        carrying = np.flatnonzero((exponents > _NEGLIGIBLE_LOG_WEIGHT).any(axis=0))
        first, last = int(carrying[0]), int(carrying[-1])
        weights = np.exp(exponents[:, first : last + 1])
        weights[:, 0] += np.exp(exponents[:, :first]).sum(axis=1)  # rounded up, which only overstates the cost
        weights[:, -1] += np.exp(exponents[:, last + 1 :]).sum(axis=1)  # rounded down, within the stated error
        weights /= weights.sum(axis=1, keepdims=True)
        counts = self.counts[first : last + 1]
        result = np.zeros_like(spectrum) + weights[:, -1:]
        powers: dict[int, ComplexArray] = {}
        for column in range(counts.size - 2, -1, -1):
            gap = int(counts[column + 1] - counts[column])
            if gap not in powers:
                powers[gap] = integer_power(spectrum, gap)
            result *= powers[gap]
            result += weights[:, column : column + 1]
        return result * integer_power(spectrum, int(counts[0]))


def _shortened(probabilities: FloatArray) -> tuple[NDArray[np.int64], FloatArray]:
    """The counts and masses of a long list, rounded up to about `_MOST_COUNTS` counts."""
    largest = probabilities.size - 1
    from_below, from_above = np.cumsum(probabilities), np.cumsum(probabilities[::-1])[::-1]
    low = int(np.searchsorted(from_below, _NEGLIGIBLE_MASS))
    high = min(largest, int(np.searchsorted(-from_above, -_NEGLIGIBLE_MASS)))
    gap = max(1, -(-(high - low) // _MOST_COUNTS))
    counts = np.unique(np.concatenate([np.arange(high, low - 1, -gap), [largest]]))
    rounded_up = np.searchsorted(counts, np.arange(largest + 1))
    mass = np.bincount(rounded_up, weights=probabilities, minlength=counts.size)
    return counts, np.asarray(mass, dtype=np.float64)


def integer_power(base: ComplexArray, exponent: int) -> ComplexArray:
    """Base ** exponent by repeated squaring, with a relative error of about exponent × 2⁻⁵³.

    It takes no logarithm, so a base of zero is fine.
    """
    result = np.ones_like(base)
    square = base.copy()
    while exponent:
        if exponent & 1:
            result *= square
        exponent >>= 1
        if exponent:
            square *= square
    return result
