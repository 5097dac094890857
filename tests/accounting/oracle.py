"""The exact δ(ε) of a run by contour integration: an oracle that shares nothing with `rpdp.accounting`.

For a loss L with M(s) = E[e^{sL}], δ(ε) = E[(1 − e^{ε−L})₊] = 1/(2πi) ∫ M(s) e^{−sε} / (s (s+1)) ds along any vertical
line to the right of 0. The line goes through the saddle point, so that δ = 1e-12 is as exact as δ = 0.1.

One step shows N(0, σ²) without the record; with it the density is (1 + u) times as large, u = q (e^y − 1) and
y = (2x − 1) / (2σ²). The moment of a step is E[(1 + u)^a] under N(0, σ²), with a = s + 1 when the record is removed and
a = −s when it is added. A silo that joins k rounds of τ steps takes it to the power kτ; the run is its mean over k.

Three things make the numbers sound:

- E[u] = 0, so the moment minus 1 is the mean of (1 + u)^a − 1 − a u, which loses no digit however small q is.
- The integrand is analytic in x, so the trapezoidal rule converges exponentially, and the line of integration may be
  moved up by η where that damps the oscillation of (1 + u)^{i Im a}.
- With heavy tails and a tiny q, nearly all mass sits at a loss near 0 and would drown the rest. A smooth cut in x
  divides the steps into small and large ones. Runs of small steps alone, and all others, are integrated separately,
  each along its own line.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy import special, stats

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp import Schedule

    Complex = NDArray[np.complex128]
    Real = NDArray[np.float64]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_REACH = 14.0
"""Outputs further than this many σ from both centres have a probability of 1e-44 and are left out."""

_NEGLIGIBLE = 1e-9
"""A part of δ is left out if its Chernoff bound is below this fraction of `relevant`; the error says so."""

_ACCURACY = 1e-10
_MOST_CANCELLATION = 1e4
_MOST_PANELS, _MOST_SUMS = 250, 24
_SMALL, _LARGE = 0, 1
_NEAR = 0.05


@dataclass(frozen=True)
class Delta:
    """δ at one ε, and an estimate of its absolute error: the change when all panels are divided."""

    value: float
    error: float


def exact_delta(schedule: Schedule, sigma: float, q: float, epsilon: float, *, relevant: float) -> Delta:
    """The larger δ of the two directions. What is certainly far below `relevant` may be returned as 0."""
    ways = (
        delta_of_direction(schedule, sigma, q, epsilon, removing=removing, relevant=relevant)
        for removing in (True, False)
    )
    return max(ways, key=lambda way: way.value)


def delta_of_direction(
    schedule: Schedule, sigma: float, q: float, epsilon: float, *, removing: bool, relevant: float
) -> Delta:
    """δ when the record is removed, or added."""
    way = _Way(sigma, q, schedule.local_steps, participation_masses(schedule), epsilon, removing)
    return way.delta(relevant)


def participation_masses(schedule: Schedule) -> Real:
    """Pr[k] for k = 0 …, from the definition of the three rules."""
    if schedule.participations is not None:
        return np.asarray(np.eye(schedule.participations + 1)[-1])
    law = stats.binom(schedule.rounds, schedule.participation or 0.0)
    cap = schedule.max_participations or schedule.rounds
    masses = np.asarray(law.pmf(np.arange(cap + 1)))
    masses[cap] = law.sf(cap - 1)
    return masses


class _Line:
    """Integrands over x along Im x = η: everything that does not depend on s."""

    def __init__(self, way: _Way, eta: float) -> None:
        sigma, q = way.sigma, way.q
        spacing = min(sigma / 5.0, sigma**2 / 8.0)
        x = np.arange(-_REACH * sigma, 1.0 + _REACH * sigma, spacing).astype(np.complex128) + complex(0.0, eta)
        y = (x - 0.5) / sigma**2
        self.u = q * _expm1(y)
        self.loss = _log_ratio(q, y, self.u)
        self.loss_less_u = np.where(np.abs(self.u) < 0.1, _log1p_less(self.u), self.loss - self.u)
        self.log_density = -0.5 * (x / sigma) ** 2 + np.log(spacing / (sigma * np.sqrt(2.0 * np.pi)))
        self.density = np.exp(self.log_density)
        is_cut = math.isfinite(way.cut)
        self.large = special.ndtr((x - way.cut) / way.cut_width) if is_cut else np.zeros_like(x)
        self.small = special.ndtr((way.cut - x) / way.cut_width) if is_cut else np.ones_like(x)
        self.large_mass = complex((self.density * self.large).sum())
        self.large_u = complex((self.density * self.large * self.u).sum())

    def moments(self, a: Complex) -> tuple[Complex, Complex]:
        """The moment of small steps minus 1, and that of large steps."""
        with np.errstate(over="ignore", invalid="ignore"):
            powers, second = self._integrands(a)
            plain_size, second_size = self._sizes(a, powers, second)
            # E[(1 + a u) 1_small] = 1 − E[(1 + a u) 1_large]
            small = second @ self.small - self.large_mass - a * self.large_u
            return np.where(plain_size < second_size, powers @ self.small - 1.0, small), powers @ self.large

    def size(self, a: Complex, part: int) -> float:
        """The sum of the absolute integrands: rounding errors are proportional to it."""
        with np.errstate(over="ignore", invalid="ignore"):
            powers, second = self._integrands(a)
            if part == _LARGE:
                return float(np.abs(powers * self.large).sum())
            return float(np.minimum(*self._sizes(a, powers, second))[0])

    def _sizes(self, a: Complex, powers: Complex, second: Complex) -> tuple[Real, Real]:
        """For both ways to compute the moment minus 1: directly, or without the terms 1 + a u, whose mean is known."""
        plain = np.abs(powers) @ np.abs(self.small) + 1.0
        return plain, np.abs(second) @ np.abs(self.small) + abs(self.large_mass) + np.abs(a * self.large_u)

    def suffices(self, a: Complex, part: int) -> NDArray[np.bool_]:
        """Whether the integrand has vanished at the last output that is kept."""
        with np.errstate(over="ignore", invalid="ignore"):
            powers = np.abs(self._integrands(a)[0] * (self.large if part == _LARGE else self.small))
            return np.asarray(powers[:, -1] <= 1e-14 * powers.max(axis=1))

    def _integrands(self, a: Complex) -> tuple[Complex, Complex]:
        """(1 + u)^a and (1 + u)^a − 1 − a u, times the density."""
        exponent = a[:, None] * self.loss
        powers = np.exp(self.log_density + exponent)
        second = powers - self.density * (1.0 + a[:, None] * self.u)
        row, column = np.nonzero(np.abs(exponent) < _NEAR)
        series = _exp_less(exponent[row, column]) + a[row] * self.loss_less_u[column]
        second[row, column] = self.density[column] * series
        return powers, second


@dataclass(frozen=True)
class _Saddle:
    """Where a line of integration crosses the real axis: the point, and the integrand's logarithm and curvature."""

    point: float
    height: float
    curvature: float

    @property
    def log_chernoff(self) -> float:
        """The Chernoff bound on the part of δ, E[1_part e^{point · (L − ε)}]."""
        return self.height + float(np.log(self.point * (self.point + 1.0)))

    @property
    def log_estimate(self) -> float:
        """The saddle-point estimate of the integral; far too large if most of the mass is elsewhere."""
        return self.height - 0.5 * float(np.log(2.0 * np.pi * self.curvature))


@dataclass(frozen=True)
class _Way:
    """One direction: the run's losses when the record is removed, or added. A finite `cut` divides the steps."""

    sigma: float
    q: float
    local_steps: int
    masses: Real
    epsilon: float
    removing: bool
    cut: float = math.inf

    @property
    def cut_width(self) -> float:
        """Narrow, so that few small steps lie above the cut; wide enough to stay smooth along every line."""
        return min(self.sigma**2 / 4.0, self.sigma / 2.0)

    def with_cut(self) -> _Way:
        """The same, divided at the output that has a quarter of the loss ε."""
        y = np.log1p(np.expm1(max(self.epsilon, 1e-6) / 4.0) / self.q)
        return replace(self, cut=float(0.5 + self.sigma**2 * y))

    @cached_property
    def _lines(self) -> list[_Line]:
        most = min(1.5 * self.sigma**2, 12.0 * self.sigma)
        sign = 1.0 if self.removing else -1.0
        return [_Line(self, sign * most * part) for part in (0.0, 0.03, 0.07, 0.15, 0.3, 0.6, 1.0)]

    @cached_property
    def _all_counts(self) -> NDArray[np.int64]:
        """The numbers k ≥ 1 of joined rounds; with k = 0 the loss is 0, which adds nothing to δ."""
        return np.flatnonzero(self.masses[1:] > 0.0) + 1

    def delta(self, relevant: float) -> Delta:
        """In one part if the mass is where the saddle point is, else in two."""
        if self.removing and not math.isfinite(self.cut):
            saddle = self._saddle(_SMALL)
            if saddle.log_estimate > np.log(relevant * _MOST_CANCELLATION):
                return self.with_cut().delta(relevant)
        parts = [self._part(part, relevant) for part in ((_SMALL, _LARGE) if math.isfinite(self.cut) else (_SMALL,))]
        return Delta(sum(part.value for part in parts), sum(part.error for part in parts))

    def _log_moments(self, s: Complex, line: _Line, part: int, counts: NDArray[np.int64]) -> Complex:
        """Log M(s) of one part: runs of small steps alone, or runs with a large step."""
        small, large = line.moments(self._order(s))
        with np.errstate(all="ignore"):
            log_small = self.local_steps * _log1p(small)
            exponents = counts * log_small[:, None] + np.log(self.masses[counts])
            if part == _SMALL:
                return _log_sum(exponents, 1.0)
            growth = self.local_steps * _log1p(large / (1.0 + small))
            return _log_sum(exponents, _expm1(counts * growth[:, None]))

    def _order(self, s: Complex) -> Complex:
        return s + 1.0 if self.removing else -s

    def _heights(self, part: int, points: Real) -> Real:
        """The logarithm of the integrand on the real axis; infinite where the outputs kept do not suffice."""
        order = self._order(points.astype(np.complex128))
        log_m = self._log_moments(points.astype(np.complex128), self._lines[0], part, self._all_counts).real
        heights = log_m - points * self.epsilon - np.log(points * (points + 1.0))
        sound = np.isfinite(heights) & self._lines[0].suffices(order, part)
        return np.where(sound, heights, np.inf)

    def _saddle(self, part: int) -> _Saddle:
        """The lowest point of the integrand on the real axis."""
        low, high = -3.0, np.log10(2e3 / max(self.epsilon, 1e-6))
        with np.errstate(all="ignore"):
            for _ in range(4):
                exponents = np.linspace(low, high, 24)
                heights = self._heights(part, 10.0**exponents)
                best = int(np.argmin(heights))
                low, high = exponents[max(best - 1, 0)], exponents[min(best + 1, 23)]
            point = float(10.0 ** exponents[best])
            step = 0.02 * point
            around = self._heights(part, np.array([point - step, point, point + step]))
        curvature = float((around[0] - 2.0 * around[1] + around[2]) / step**2)
        return _Saddle(point, float(around[1]), max(curvature, 1e-12) if math.isfinite(curvature) else 1e-12)

    def _part(self, part: int, relevant: float) -> Delta:
        saddle = self._saddle(part)
        if not math.isfinite(saddle.height):
            return Delta(0.0, math.inf)
        if saddle.log_chernoff < np.log(_NEGLIGIBLE * relevant):
            return Delta(0.0, math.exp(saddle.log_chernoff))
        first = 0.5 * min(1.0 / np.sqrt(saddle.curvature), saddle.point)
        allowed = _ACCURACY * relevant * math.pi / math.exp(saddle.height)
        values = [
            self._along(part, saddle, first * share, growth, allowed) for share, growth in ((1.0, 1.4), (0.7, 1.25))
        ]
        return Delta(values[1], abs(values[1] - values[0]))

    def _along(self, part: int, saddle: _Saddle, length: float, growth: float, allowed: float) -> float:
        """The integral along Re s = point, in panels that grow with the distance from the real axis.

        Mass near a loss of 0 makes the integrand oscillate with the frequency ε, and fall slowly. Once panels are as
        long as half a period, the limit of their sums is extrapolated.
        """
        longest = np.pi / max(self.epsilon, 1e-6)
        counts = self._counts_that_matter(part, saddle.point)
        total, start = 0.0 + 0.0j, 0.0
        limits: list[float] = []
        sums: list[complex] = []
        for _ in range(_MOST_PANELS):
            s = (saddle.point + 1j * (start + 0.5 * length * (1.0 + _NODES))).astype(np.complex128)
            log_m = self._log_moments(s, self._best_line(part, s[s.size // 2]), part, counts)
            integrand = np.exp(log_m - s * self.epsilon - np.log(s * (s + 1.0)) - saddle.height)
            total += complex(integrand @ _WEIGHTS) * 0.5 * length
            sums = [*sums, total] if length >= longest else []
            limits.append(_limit(sums[-_MOST_SUMS:]).real if len(sums) >= 5 else total.real)
            ended = np.abs(integrand).max() * (start + length) < allowed
            if ended or (len(sums) >= 7 and np.ptp(limits[-3:]) < allowed):
                break
            start, length = start + length, min(max(length, (growth - 1.0) * (start + length)), longest)
        return float(limits[-1] * np.exp(saddle.height) / np.pi)

    def _counts_that_matter(self, part: int, point: float) -> NDArray[np.int64]:
        counts = self._all_counts
        small, large = (value[0].real for value in self._lines[0].moments(self._order(np.array([point + 0j]))))
        per_round = self.local_steps * np.log1p(small + (large if part == _LARGE else 0.0))
        exponents = counts * per_round + np.log(self.masses[counts])
        return np.asarray(counts[exponents > exponents.max() - 50.0])

    def _best_line(self, part: int, s: complex) -> _Line:
        """The line on which the absolute integrand is smallest: there the least is lost to cancellation."""
        order = self._order(np.array([s]))
        sizes = [line.size(order, part) for line in self._lines]
        return self._lines[int(np.nanargmin(sizes))]


def _limit(sums: list[complex]) -> complex:
    """The limit of a slowly converging, oscillating sequence, by Wynn's epsilon algorithm."""
    before, row = np.zeros(len(sums) + 1, dtype=np.complex128), np.array(sums)
    best = complex(row[-1])
    with np.errstate(all="ignore"):
        while row.size > 1:
            difference = np.diff(row)
            before, row = row, before[1:-1] + 1.0 / difference
            if row.size > 1:
                difference = np.diff(row)
                before, row = row, before[1:-1] + 1.0 / difference
                if np.isfinite(row[-1]):
                    best = complex(row[-1])
    return best


def _log_sum(exponents: Complex, factors: Complex | float) -> Complex:
    """Log Σ factor · e^exponent along rows, whatever the size of the exponents."""
    shift = exponents.real.max(axis=1, keepdims=True)
    return np.asarray(np.log((np.exp(exponents - shift) * factors).sum(axis=1)) + shift[:, 0])


def _log1p(z: Complex) -> Complex:
    """Log(1 + z), with all digits for small z, which NumPy's own loses for complex numbers; at least log 1e-300."""
    near = 0.5 * np.log1p(z.real * (2.0 + z.real) + z.imag**2) + 1j * np.arctan2(z.imag, 1.0 + z.real)
    far = np.log(np.where(np.abs(1.0 + z) < 1e-300, 1e-300, 1.0 + z))
    return np.asarray(np.where(np.abs(z) > 0.5, far, near))


def _expm1(z: Complex) -> Complex:
    """e^z − 1, with all digits for small z."""
    real = np.expm1(z.real) * np.cos(z.imag) - 2.0 * np.sin(0.5 * z.imag) ** 2
    return np.asarray(real + 1j * np.exp(z.real) * np.sin(z.imag))


def _log_ratio(q: float, y: Complex, u: Complex) -> Complex:
    """Log(1 + u) for u = q (e^y − 1)."""
    left, right = np.where(y.real < 0.0, y, 0.0), np.where(y.real < 0.0, 0.0, y)
    far = np.where(y.real < 0.0, np.log(1.0 - q + q * np.exp(left)), right + np.log(q + (1.0 - q) * np.exp(-right)))
    return np.asarray(np.where(np.abs(u) < 0.5, _log1p(np.where(np.abs(u) < 0.5, u, 0.0)), far))


def _log1p_less(u: Complex) -> Complex:
    """Log(1 + u) − u for |u| < 0.1, by its series."""
    result = np.zeros_like(u)
    for power in range(18, 1, -1):
        result = result * u + (-1.0) ** (power + 1) / power
    return np.asarray(result * u**2)


def _exp_less(z: Complex) -> Complex:
    """e^z − 1 − z for |z| < 0.05, by its series."""
    result = np.zeros_like(z)
    for power in range(8, 1, -1):
        result = (result * z) + 1.0 / math.factorial(power)
    return np.asarray(result * z**2)
