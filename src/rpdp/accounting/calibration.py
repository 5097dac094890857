"""Noise calibration: the smallest noise multiplier σ that keeps the cost of a record within a budget."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rpdp.accounting.curve import Accountant, PrivacyCurve
from rpdp.accounting.noise_limits import LARGEST_NOISE, SMALLEST_NOISE
from rpdp.checks import require_delta, require_fraction, require_positive
from rpdp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rpdp.accounting.schedule import Schedule

DEFAULT_TOLERANCE = 1e-4


def calibrate_noise(
    schedule: Schedule,
    *,
    epsilon: float,
    delta: float,
    sampling_probability: float = 1.0,
    accountant: Accountant = "pld",
    tolerance: float = DEFAULT_TOLERANCE,
) -> float:
    """The smallest σ, to a relative `tolerance`, at which a record sampled with this probability costs at most ε.

    The search ends on the safe side: it returns only a σ whose own cost has been computed and is at most ε.

    >>> from rpdp.accounting.schedule import Schedule
    >>> round(calibrate_noise(Schedule(15, 50, participation=0.5), epsilon=10.0, delta=1e-4), 2)
    9.74
    """
    target = require_positive("epsilon", epsilon)
    require_delta("delta", delta)
    require_fraction("sampling_probability", sampling_probability)
    require_positive("tolerance", tolerance)

    def cost(sigma: float) -> float:
        curve = PrivacyCurve(schedule, noise_multiplier=sigma, delta=delta, accountant=accountant)
        return curve.epsilon(sampling_probability)

    too_small, enough = _bracket(cost, target)
    # σ spans seven orders of magnitude, so bisect on a logarithmic scale.
    while enough > too_small * (1.0 + tolerance):
        middle = math.sqrt(too_small * enough)
        if cost(middle) <= target:
            enough = middle
        else:
            too_small = middle
    return enough


def _bracket(cost: Callable[[float], float], target: float) -> tuple[float, float]:
    """A σ that is too small and a σ that is large enough, at most a factor of 2 apart."""
    sigma = 1.0
    if cost(sigma) <= target:
        while sigma > SMALLEST_NOISE:
            smaller = max(sigma / 2.0, SMALLEST_NOISE)
            if cost(smaller) > target:
                return smaller, sigma
            sigma = smaller
        return sigma, sigma  # even the smallest supported noise is enough
    while sigma < LARGEST_NOISE:
        larger = min(sigma * 2.0, LARGEST_NOISE)
        if cost(larger) <= target:
            return sigma, larger
        sigma = larger
    raise InputError(
        f"epsilon={target} cannot be reached with a noise multiplier up to {LARGEST_NOISE:g}; "
        "use fewer rounds or local steps, a smaller participation or a larger epsilon"
    )
