"""Privacy budgets as odds: how often somebody who knows everything else would guess right (privacy.md, section 9).

A fair coin decides whether a record is in the data. Somebody who sees all releases, and knows every other record, says
whether it is in. Without any release 50 of 100 such guesses are right. With a budget at most X are:

| what bounds the releases | X / 100 |
|---|---|
| (ε, δ) | `(e^ε + δ) / (1 + e^ε)`: where both kinds of error of the (ε, δ) region are equal |
| divergence B at order α, in both directions | the p with D_α(p ‖ 1 − p) = B |

The second holds because D_α is jointly quasi-convex. Take a guess that is right with probability t if the record is in,
and 1 − f if it is out, and the same guess with all answers exchanged: half of each has a divergence
D_α((t + 1 − f)/2 ‖ (f + 1 − t)/2) of at most B. A Rényi account has both bounds, and the smaller one counts.

It is a statement about a fair coin. Who knew with 90 % certainty before is right in 90 of 100 cases anyway.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rpdp.checks import require_least
from rpdp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

_ULPS = 16 * 2.0**-52
"""Rounding of one evaluation, generously; everything is rounded up by it."""

_HALVINGS = 200
"""More than enough to reach neighbouring floats."""


def right_guesses(
    epsilon: float, delta: float, *, order: float | None = None, divergence: float | None = None
) -> float:
    """Return X: at most so many of 100 guesses are right, 50 without any release. Never understated.

    Args:
        epsilon: The ε that all releases together keep.
        delta: The δ that goes with it.
        order: Of a Rényi account: its order α > 1.
        divergence: With an order: the divergence B that all releases together keep at it.

    >>> round(right_guesses(1.0, 1e-5), 2), round(right_guesses(0.0, 0.0), 2)
    (73.11, 50.0)
    >>> round(right_guesses(1.0, 1e-5, order=13.6, divergence=0.34), 2)
    59.42
    """
    require_least("epsilon", epsilon, 0.0)
    if not 0.0 <= delta <= 1.0:
        raise InputError(f"delta={delta!r} must lie between 0 and 1")
    # 1 − p = (1 − δ) / (1 + e^ε) is what is left to chance; computed as such, p loses no digits near 1
    share = 1.0 - (1.0 - delta) * math.exp(-_softplus(epsilon))
    if (order is None) != (divergence is None):
        raise InputError("order and divergence go together: give both for a Rényi account, or neither")
    if order is not None and divergence is not None:
        share = min(share, _of_divergence(order, divergence))
    return min(100.0, 100.0 * share * (1.0 + _ULPS))


def _of_divergence(order: float, divergence: float) -> float:
    """The p with D_α(p ‖ 1 − p) = B, from above."""
    if not order > 1.0:
        raise InputError(f"order={order!r} must be larger than 1")
    require_least("divergence", divergence, 0.0)
    # D_α is at least u − log 2 / (α − 1) at the log-odds u of p, so that the upper end is beyond B.
    most = divergence + (math.log(2.0) + 1.0) / (order - 1.0) + 1.0
    odds = _first(lambda u: _least_divergence(order, u) >= divergence, most)
    return math.exp(-_softplus(-odds))


def _least_divergence(order: float, odds: float) -> float:
    """D_α(p ‖ 1 − p) at log-odds u = log(p / (1 − p)) ≥ 0, lowered by what its digits may be off."""
    first, second = order * odds, odds - order * odds
    total = first + math.log1p(math.exp(second - first)) - _softplus(odds)
    return (total - _ULPS * (1.0 + first)) / (order - 1.0)


def _first(is_beyond: Callable[[float], bool], most: float) -> float:
    """The smallest number at which a condition holds that, once it holds, goes on to hold; from above."""
    low, high = 0.0, most
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        if not low < middle < high:
            break
        low, high = (low, middle) if is_beyond(middle) else (middle, high)
    return high


def _softplus(value: float) -> float:
    """log(1 + e^x), at any x."""
    return max(value, 0.0) + math.log1p(math.exp(-abs(value)))
