"""Poisson sampling in time proportional to the number drawn: skip from candidate to candidate, then thin.

Records are sorted into buckets of similar probability; p is the largest of a bucket. In a row of slots where each is a
candidate with probability p, independently, the number of slots skipped before the next candidate is geometric:
⌊E / −ln(1 − p)⌋ with E exponential (Devroye 1986, chapter X.2). So only candidates are visited. A candidate is kept
with probability q_j / p, so record j is drawn with probability q_j. A bucket spans a factor of two. So at most two
candidates are expected for each record drawn, and a few more where small buckets were joined.

Exactness. E is computed with a relative error below 2⁻⁵⁰, small values from ln(1 − v) and large ones from ln v,
with v on a lattice of step 2⁻⁶⁴. So the border between "k skipped" and "k + 1 skipped" is off by at most k·2⁻⁵⁰
of the distance to the next border, plus 2⁻⁶³/p for the lattice. These errors multiply along all the gaps of a draw,
which add up to the n slots of the bucket. Any set of about n·p candidates has the probability that independent coins
give it, up to a factor 1 ± s with s = n·2⁻⁴⁸ + 2⁻⁶²/p (which leaves a margin of two or more in either term). p is
taken to be at least 2⁻⁴⁰, so s < 6e-7 up to 10⁸ records. The probability of keeping is multiplied by 1 − s (less
rounding). So the total lies between q_j·(1 − 2s) and q_j and never exceeds q_j.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rpdp.sampling.bernoulli_draws import words_below

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from rpdp.sampling.randomness import Randomness

_LEAST_CANDIDATE_PROBABILITY = 2.0**-40
_ROUNDING = 2.0**-50  # above the relative error of three float64 operations
_FEW_CANDIDATES = 32.0  # buckets are joined as long as the result has fewer candidates than this
_SPARE_DEVIATIONS = 5.0  # gaps drawn in advance per bucket: mean number of candidates + this many deviations


@dataclass(frozen=True)
class _Bucket:
    """Slots `first` … `first + size − 1`, each a candidate with the same probability."""

    first: int
    size: int
    probability: float

    @property
    def mean_gap(self) -> float:
        return -1.0 / float(np.log1p(-self.probability))

    @property
    def gaps_ahead(self) -> int:
        mean = self.size * self.probability
        return max(1, int(mean + _SPARE_DEVIATIONS * mean**0.5 + _SPARE_DEVIATIONS))

    @property
    def slack(self) -> float:
        """The s of the module docstring."""
        return self.size * 2.0**-48 + 2.0**-62 / self.probability


class GeometricSkips:
    """Draws from the given records by skipping. Their probabilities must lie strictly between 0 and 1."""

    def __init__(self, probabilities: NDArray[np.float64], records: NDArray[np.int64]) -> None:
        q = probabilities[records]
        octave = np.frexp(q)[1].astype(np.int16)
        order = np.argsort(octave, kind="stable")
        q, octave = q[order], octave[order]
        self._buckets = list(_buckets(q, octave))
        # Record and threshold of a slot in one row, so that visiting a candidate costs one cache miss.
        self._slots = np.empty((q.size, 2), dtype=np.uint64)
        self._slots[:, 0] = records[order]
        for bucket in self._buckets:
            part = slice(bucket.first, bucket.first + bucket.size)
            self._slots[part, 1] = words_below(q[part] / bucket.probability * (1.0 - bucket.slack - _ROUNDING))
        self._lay_out_gaps()

    def _lay_out_gaps(self) -> None:
        """Precompute what each gap needs to know about its bucket, so that all buckets can be drawn at once."""
        counts = [bucket.gaps_ahead for bucket in self._buckets]
        self._bucket_of_gap = np.repeat(np.arange(len(counts)), counts)
        self._last_gap = np.cumsum(counts) - 1
        self._first_gap = self._last_gap + 1 - counts
        self._first_slot = np.array([bucket.first for bucket in self._buckets])
        self._end_slot = self._first_slot + [bucket.size for bucket in self._buckets]
        self._end_slot_of_gap = self._end_slot[self._bucket_of_gap]
        self._mean_gap = np.array([bucket.mean_gap for bucket in self._buckets])[self._bucket_of_gap]
        self._longest_gap = np.array([float(bucket.size) for bucket in self._buckets])[self._bucket_of_gap]

    def draw(self, randomness: Randomness) -> NDArray[np.int64]:
        """Return the indices of the drawn records, in no particular order."""
        rows = self._slots.take(self._candidates(randomness), axis=0)
        kept = randomness.words(len(rows)) < rows[:, 1]
        drawn: NDArray[np.int64] = rows[:, 0].compress(kept).view(np.int64)
        return drawn

    def _candidates(self, randomness: Randomness) -> NDArray[np.int64]:
        """The slots of all candidates: running sums of the gaps, restarted at the first slot of each bucket."""
        steps = _steps(randomness, self._mean_gap, self._longest_gap)
        slots = np.cumsum(steps)
        before = slots[self._first_gap] - steps[self._first_gap]
        slots += (self._first_slot - 1 - before).take(self._bucket_of_gap)
        inside = slots.compress(slots < self._end_slot_of_gap)
        last = slots[self._last_gap]
        unfinished = np.flatnonzero(last < self._end_slot)
        if not unfinished.size:
            return inside
        return np.concatenate([inside, *(self._rest(randomness, int(b), int(last[b])) for b in unfinished)])

    def _rest(self, randomness: Randomness, index: int, last: int) -> NDArray[np.int64]:
        """The candidates after `last` in a bucket for which the gaps drawn in advance did not suffice."""
        bucket, end = self._buckets[index], int(self._end_slot[index])
        candidates = []
        while last < end:
            mean_gap = np.full(bucket.gaps_ahead, bucket.mean_gap)
            slots = last + np.cumsum(_steps(randomness, mean_gap, float(bucket.size)))
            candidates.append(slots[slots < end])
            last = int(slots[-1])
        return np.concatenate(candidates)


def _buckets(q: NDArray[np.float64], octave: NDArray[np.int16]) -> Iterator[_Bucket]:
    """One bucket per octave of the sorted probabilities; small buckets are joined with the octave above."""
    first = 0
    ends = [*(np.flatnonzero(np.diff(octave)) + 1), q.size]
    starts = [0, *ends[:-1]]
    largest = [max(q[a:b].max(), _LEAST_CANDIDATE_PROBABILITY) for a, b in zip(starts, ends, strict=True)]
    for end, probability, above in zip(ends, largest, [*largest[1:], np.inf], strict=True):
        if (end - first) * above > _FEW_CANDIDATES:
            yield _Bucket(first, int(end) - first, float(probability))
            first = int(end)


def _steps(
    randomness: Randomness, mean_gap: NDArray[np.float64], longest: NDArray[np.float64] | float
) -> NDArray[np.int64]:
    """Distances to the next candidate: 1 + geometric, limited to the length of the bucket."""
    gaps = _exponentials(randomness, mean_gap.size)
    gaps *= mean_gap
    # A longer gap leaves the bucket anyway; without the limit, the sum of all gaps could overflow 64 bits.
    np.minimum(gaps, longest, out=gaps)
    steps = gaps.astype(np.int64)
    steps += 1
    return steps


def _exponentials(randomness: Randomness, count: int) -> NDArray[np.float64]:
    """Standard exponentials with full relative precision at both ends.

    v is uniform on (−½, ½). For v > 0 the result is −ln(1 − v), which is below ln 2; otherwise −ln|v|, which is above.
    """
    v = randomness.words(count).view(np.int64) + 0.5
    v *= 2.0**-64
    logarithms: NDArray[np.float64] = np.where(v > 0, np.log1p(-v), np.log(np.abs(v)))
    return -logarithms
