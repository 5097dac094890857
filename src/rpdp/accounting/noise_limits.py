"""The noise multipliers for which costs can be computed."""

from __future__ import annotations

from rpdp.checks import require_positive
from rpdp.errors import InputError

SMALLEST_NOISE, LARGEST_NOISE = 0.05, 1e6


def require_priceable(noise_multiplier: float) -> float:
    """Return σ; it must lie within the limits."""
    sigma = require_positive("noise_multiplier", noise_multiplier)
    if not SMALLEST_NOISE <= sigma <= LARGEST_NOISE:
        raise InputError(
            f"noise_multiplier={noise_multiplier} is outside [{SMALLEST_NOISE}, {LARGEST_NOISE:g}], where costs can be "
            "computed"
        )
    return sigma
