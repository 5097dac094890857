"""A second opinion on divergences that shares no code with the accountants: the binomial sum at whole orders.

For whole α the moment of one step is A_α = Σ_l C(α, l) (1−q)^{α−l} q^l e^{l(l−1)/(2σ²)} (privacy.md, section 2). The
terms of the plain binomial sum add up to 1, so that A_α − 1 = Σ_{l≥2} C(α, l) (1−q)^{α−l} q^l (e^{l(l−1)/(2σ²)} − 1):
only positive terms, and nothing is lost however small q is. K_α = log A_α is convex in α with K_0 = K_1 = 0, so that a
line through two whole orders, drawn beyond the larger of them, is a lower bound for the orders between whole ones.

In a run with a request nobody is sampled, and a record of weight w moves each of n Gaussians by w/s of its standard
deviations: the divergence of each is α w²/(2s²) at every order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln, logsumexp, xlog1py, xlogy

from rpdp.ledger.inspection.attacker import joined_rounds

if TYPE_CHECKING:
    from rpdp.ledger.store.fixed_point import FloatArray
    from rpdp.planning import PublicPlan

MOST_TERMS = 5000


def provable_divergence(public: PublicPlan, q: FloatArray, order: float) -> FloatArray:
    """Return a lower bound on the divergence of a whole run at this order for each q; exact at whole orders."""
    if public.request is not None:
        return np.asarray(public.schedule.rounds * order * q * q / (2.0 * public.noise_multiplier**2))
    steps = np.array([_log_moment(one, order, public.noise_multiplier) for one in q.tolist()])
    law = joined_rounds(public.schedule, public.schedule.rounds)
    counts = np.flatnonzero(law > 0.0)
    exponents = counts * public.schedule.local_steps * steps[:, None]
    with np.errstate(over="ignore"):
        excess = (law[counts] * np.expm1(exponents)).sum(axis=1)
    large = logsumexp(np.log(law[counts]) + exponents, axis=1)
    return np.asarray(np.where(np.isfinite(excess), np.log1p(excess), large) / (order - 1.0))


def _log_moment(q: float, order: float, sigma: float) -> float:
    """K_α of one step: exact at a whole order, else from the line through the two whole orders below it."""
    below = int(np.floor(order))
    largest = _at_whole(q, below, sigma)
    if below == order:
        return largest
    return largest + (order - below) * (largest - _at_whole(q, below - 1, sigma))


def _at_whole(q: float, order: int, sigma: float) -> float:
    if order < 2:
        return 0.0
    terms = np.arange(2.0, min(order, MOST_TERMS) + 1.0)  # leaving terms out only lowers the sum
    exponent = terms * (terms - 1.0) / (2.0 * sigma**2)
    ways = gammaln(order + 1.0) - gammaln(terms + 1.0) - gammaln(order - terms + 1.0)
    log_terms = ways + xlogy(terms, q) + xlog1py(order - terms, -q) + exponent + np.log(-np.expm1(-exponent))
    return float(np.logaddexp(0.0, logsumexp(log_terms)))
