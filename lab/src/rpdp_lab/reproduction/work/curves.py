"""Curves of cost: over the Rényi order α (figures 2 and 5) and over the sampling probability q (figures 5 and 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rpdp.accounting import PrivacyCurve, Schedule
from rpdp.accounting.renyi import lemma_1_epsilon, log_moments
from rpdp.planning import fit_curve

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

DIGITS = 6


def over_orders(settings: Mapping[str, Any], device: str) -> dict[str, Any]:
    """ρ(α) and ρ(α) + log(1/δ)/(α − 1) of a run for each q; with participation the paper's two-stage bound."""
    orders = np.asarray(settings["orders"], dtype=np.float64)
    q = np.asarray(settings["q"], dtype=np.float64)
    schedule = _schedule(settings)
    step = log_moments(q[:, None], orders, settings["noise_multiplier"])
    moments = schedule.count().log_moment(schedule.local_steps * step)
    epsilon = lemma_1_epsilon(moments, orders, settings["delta"])
    best = epsilon.argmin(axis=1)
    return {
        "rdp": plain(moments / (orders - 1.0)),
        "epsilon": plain(epsilon),
        "best_order": plain(orders[best]),
        "best_epsilon": plain(epsilon[np.arange(q.size), best]),
    }


def over_probabilities(settings: Mapping[str, Any], device: str) -> dict[str, Any]:
    """ε*(q) by the tight Rényi bound, the authors' exponential fit to it, and what the fit really spends.

    `violation` is cost(F(ε))/ε for budgets ε: by the fit's own accountant, and by a lower bound that nobody can argue
    with (privacy-loss distribution, optimistic).
    """
    schedule = _schedule(settings)
    sigma, delta = settings["noise_multiplier"], settings["delta"]
    curve = PrivacyCurve(schedule, noise_multiplier=sigma, delta=delta, accountant="rdp")
    q = np.asarray(settings["q"], dtype=np.float64)
    fit = fit_curve(curve)
    budgets = np.asarray(settings["budgets"], dtype=np.float64)
    chosen = fit.probabilities(budgets)
    lower = PrivacyCurve(schedule, noise_multiplier=sigma, delta=delta).bounds(chosen).lower
    return {
        "epsilon": plain(curve.epsilon(q)),
        "pld": plain(PrivacyCurve(schedule, noise_multiplier=sigma, delta=delta).epsilon(q)),
        "fitted": plain(np.exp(fit.a * q + fit.b) + fit.c),
        "fit": {"a": fit.a, "b": fit.b, "c": fit.c, "r_squared": fit.r_squared},
        "violation": plain(curve.epsilon(chosen) / budgets),
        "violation_lower": plain(lower / budgets),
    }


def _schedule(settings: Mapping[str, Any]) -> Schedule:
    return Schedule(settings["rounds"], settings["local_steps"], participation=settings["participation"])


def plain(values: NDArray[np.float64]) -> Any:
    """An array as lists of short numbers."""
    rounded = np.vectorize(lambda value: float(f"{value:.{DIGITS}g}"))(np.asarray(values, dtype=np.float64))
    return rounded.tolist()
