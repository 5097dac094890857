"""The number of rounds that a silo joins, and its effect on a record's cost (privacy.md, section 4).

An observer who sees every update, and who took part in each round, learns about a record only through the k rounds
that its silo joins. So the moment of a run is E_k[M^k] and its privacy-loss distribution is Σ_k Pr[k] · PLD^{*k}, where
M and PLD belong to one joined round. A `ParticipationCount` is the distribution of k and computes both. It is exact for
Poisson participation and for an exact number of rounds. A long explicit list of counts is rounded *up* to a coarser
one, which can only overstate a cost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
from scipy import special, stats

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from rpdp.accounting._types import ComplexArray, FloatArray

_MOST_COUNTS = 2048
"""An explicit list longer than this is rounded up to about this many counts."""

_NEGLIGIBLE_MASS = 1e-18

_PROBABILITY_ERROR = 1e-9
"""The relative error allowed for binomial and hypergeometric probabilities.

At most 1e-12 was seen up to 20,000 rounds (tested against forty digits)."""

_LARGEST_EXPONENT = 700.0
"""e^700 does not overflow."""

_NEGLIGIBLE_LOG_WEIGHT = np.log(1e-18)
"""Tilted weights below this fraction of the largest change a result by less than the stated numerical error."""


class ParticipationCount(Protocol):
    """The distribution of the number k of rounds that a silo joins."""

    @property
    def largest(self) -> int:
        """The largest possible k."""
        ...

    @property
    def relative_error(self) -> float:
        """The largest relative error of a probability of k."""
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

    @property
    def relative_error(self) -> float:
        """The rate is rounded, once for each round."""
        return self.rounds * float(np.finfo(np.float64).eps)

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
    rounded_down: ExplicitCount | None = None
    """If this is a long list, shortened by rounding up, which suits upper bounds alone: the one for lower bounds."""

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
        every = np.arange(probabilities.size)
        if probabilities.size - 1 <= _MOST_COUNTS:
            return cls._of(every, probabilities)
        low, high, gap = _carrying(probabilities)
        up = np.unique(np.concatenate([np.arange(high, low - 1, -gap), every[-1:]]))
        down = np.unique(np.concatenate([[0], np.arange(low, high + 1, gap)]))
        above, below = np.searchsorted(up, every), np.searchsorted(down, every, side="right") - 1
        rounded_down = cls._of(down, np.bincount(below, weights=probabilities))
        return replace(cls._of(up, np.bincount(above, weights=probabilities)), rounded_down=rounded_down)

    @classmethod
    def _of(cls, counts: NDArray[np.int64], masses: ArrayLike) -> ExplicitCount:
        probabilities = np.asarray(masses, dtype=np.float64) / np.sum(masses)
        with np.errstate(divide="ignore"):
            return cls(counts, np.log(probabilities))

    @property
    def largest(self) -> int:
        """The largest possible k."""
        return int(self.counts[-1])

    @property
    def relative_error(self) -> float:
        """What the library's probabilities may be off by; a single count is certain."""
        return 0.0 if self.counts.size == 1 else _PROBABILITY_ERROR

    def probabilities(self) -> FloatArray:
        """Pr[k] for k = 0 … largest."""
        result = np.zeros(self.largest + 1)
        result[self.counts] = np.exp(self.log_probabilities)
        return result

    def log_moment(self, log_mass: FloatArray) -> FloatArray:
        """Log(1 + Σ p_k (e^{k m} − 1)): all terms are positive, so that nothing is lost however close it is to 0.

        A plain log-sum-exp adds weights that sum to 1, and loses every moment below 1e-16. It is used only where a term
        would overflow, and for negative m, where it is the result that is far from 0.
        """
        mass = np.asarray(log_mass, dtype=np.float64)
        if self.counts.size == 1:
            return self.largest * mass
        exponents = mass[..., None] * self.counts
        direct = (exponents[..., -1] > -0.5) & (exponents[..., -1] < _LARGEST_EXPONENT)
        excess = np.expm1(np.where(direct[..., None], exponents, 0.0))
        near_zero = np.log1p((excess * np.exp(self.log_probabilities)).sum(axis=-1))
        if direct.all():
            return np.asarray(near_zero)
        total = special.logsumexp(exponents + self.log_probabilities, axis=-1)
        return np.where(direct, near_zero, total)

    def tilted_mean(self, log_mass: FloatArray) -> FloatArray:
        """The mean of the counts under tilted weights."""
        exponents = np.asarray(log_mass, dtype=np.float64)[..., None] * self.counts + self.log_probabilities
        weights = np.exp(exponents - exponents.max(axis=-1, keepdims=True))
        return np.asarray((weights * self.counts).sum(axis=-1) / weights.sum(axis=-1), dtype=np.float64)

    def mix(self, spectrum: ComplexArray, log_mass: FloatArray) -> ComplexArray:
        """Σ_k w_k φ^k by Horner's rule over the counts that carry weight, which each row decides for itself."""
        exponents = log_mass[:, None] * self.counts + self.log_probabilities
        exponents -= exponents.max(axis=1, keepdims=True)
        carrying = exponents > _NEGLIGIBLE_LOG_WEIGHT
        ends = np.stack([carrying.argmax(axis=1), self.counts.size - 1 - carrying[:, ::-1].argmax(axis=1)], axis=1)
        result = np.empty_like(spectrum)
        for first, last in np.unique(ends, axis=0).tolist():
            rows = np.flatnonzero((ends == (first, last)).all(axis=1))
            result[rows] = self._mix_counts(spectrum[rows], exponents[rows], first, last)
        return result

    def _mix_counts(self, spectrum: ComplexArray, exponents: FloatArray, first: int, last: int) -> ComplexArray:
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


def _carrying(probabilities: FloatArray) -> tuple[int, int, int]:
    """The range of counts with all but 1e-18 of the mass, and the gap at which it has at most `_MOST_COUNTS` counts."""
    from_below, from_above = np.cumsum(probabilities), np.cumsum(probabilities[::-1])[::-1]
    low = int(np.searchsorted(from_below, _NEGLIGIBLE_MASS))
    high = min(probabilities.size - 1, int(np.searchsorted(-from_above, -_NEGLIGIBLE_MASS)))
    return low, high, max(1, -(-(high - low) // _MOST_COUNTS))


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
