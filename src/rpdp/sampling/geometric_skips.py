"""Poisson sampling whose cost follows the number drawn: skip from candidate to candidate, then thin.

Records are sorted into buckets of similar probability, p the largest of a bucket. In a line of slots where
each is a candidate with probability p, independently, the number of slots passed over before the next
candidate is geometric: ⌊E / −ln(1 − p)⌋ with E exponential (Devroye 1986, chapter X.2). So only candidates
are visited. A candidate is kept with probability q_j / p, which makes its total q_j. A bucket spans a factor
of two: at most two candidates are expected for each record drawn, and a few more where small buckets were
joined.

How exact. E is made with a relative error below 2⁻⁵⁰, small values from ln(1 − v) and large ones from ln v,
with v on a lattice of step 2⁻⁶⁴. So the border between "k passed over" and "k + 1" is off by at most k·2⁻⁵⁰
of the distance to the next border, plus 2⁻⁶³/p for the lattice. Along all the gaps of a draw, which add up to
the n slots of the bucket, this multiplies: any set of about n·p candidates has the probability that
independent coins give it, to a factor 1 ± s with s = n·2⁻⁴⁸ + 2⁻⁶²/p (which leaves a margin of two or more in
either term). p is taken as at least 2⁻⁴⁰, so s < 6e-7 up to 10⁸ records. The probability of keeping is
multiplied by 1 − s (less rounding): the total lies between q_j·(1 − 2s) and q_j, never above.
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
_ROUNDING = 2.0**-50  # more than three float64 operations can err, relatively
_FEW_CANDIDATES = 32.0  # a bucket joins the next one as long as it then has fewer candidates than this
_SPARE_DEVIATIONS = 5.0  # gaps drawn ahead for a bucket: mean number of candidates + this many deviations


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
        """The s of the module's argument."""
        return self.size * 2.0**-48 + 2.0**-62 / self.probability


class GeometricSkips:
    """Draws from the given records by skipping; their probabilities must lie between 0 and 1, exclusive."""

    def __init__(self, probabilities: NDArray[np.float64], records: NDArray[np.int64]) -> None:
        q = probabilities[records]
        octave = np.frexp(q)[1].astype(np.int16)
        order = np.argsort(octave, kind="stable")
        q, octave = q[order], octave[order]
        self._buckets = list(_buckets(q, octave))
        # One row for each slot, so that a candidate costs one cache miss: record, and which words keep it.
        self._slots = np.empty((q.size, 2), dtype=np.uint64)
        self._slots[:, 0] = records[order]
        for bucket in self._buckets:
            part = slice(bucket.first, bucket.first + bucket.size)
            self._slots[part, 1] = words_below(q[part] / bucket.probability * (1.0 - bucket.slack - _ROUNDING))
        self._lay_out_gaps()

    def _lay_out_gaps(self) -> None:
        """The gaps of all buckets are drawn together: what each gap needs to know about its bucket."""
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
        """Slots of all candidates: running sums of the gaps, started anew at the first slot of a bucket."""
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
        """Candidates after `last`, of a bucket for which the gaps drawn ahead did not suffice."""
        bucket, end = self._buckets[index], int(self._end_slot[index])
        found = []
        while last < end:
            mean_gap = np.full(bucket.gaps_ahead, bucket.mean_gap)
            slots = last + np.cumsum(_steps(randomness, mean_gap, float(bucket.size)))
            found.append(slots[slots < end])
            last = int(slots[-1])
        return np.concatenate(found)


def _buckets(q: NDArray[np.float64], octave: NDArray[np.int16]) -> Iterator[_Bucket]:
    """One bucket for each octave of the sorted probabilities; small ones join the octave above."""
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
    """Distances to the next candidate: 1 + geometric, cut off where the bucket has ended anyway."""
    gaps = _exponentials(randomness, mean_gap.size)
    gaps *= mean_gap
    np.minimum(gaps, longest, out=gaps)
    steps = gaps.astype(np.int64)
    steps += 1
    return steps


def _exponentials(randomness: Randomness, count: int) -> NDArray[np.float64]:
    """Standard exponentials with full relative precision at both ends.

    v is uniform on (−½, ½): half the time −ln(1 − v) for v > 0, below ln 2; otherwise −ln|v|, above.
    """
    v = randomness.words(count).view(np.int64) + 0.5
    v *= 2.0**-64
    logarithms: NDArray[np.float64] = np.where(v > 0, np.log1p(-v), np.log(np.abs(v)))
    return -logarithms
