"""Cost of a run over the Rényi order α (figures 2 and 5) and over the sampling probability q (figures 5 and 6).

Analytical, seconds each, the same in every profile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rpdp.accounting import PrivacyCurve, Schedule
from rpdp.accounting.renyi import lemma_1_epsilon, log_moments
from rpdp.planning import fit_curve
from rpdp_lab.reproduction.svg_figures import Panel, Series

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp_lab.reproduction.cell import CellResult, Numbers, Profile, Settings

MINUTES: dict[Profile, float] = {"quick": 0.2, "cpu": 0.2, "full": 0.2}

ORDERS = [float(f"{1.0 + step:.4g}") for step in np.geomspace(0.05, 255.0, 60)]
PROBABILITIES = [0.001, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0]
FEDERATION = {"rounds": 20, "local_steps": 5, "participation": 0.5, "noise_multiplier": 1.0, "delta": 1e-3}
"""The run of figure 5."""

FIT = {
    **FEDERATION,
    "q": [float(f"{q:.3g}") for q in np.concatenate([np.geomspace(0.001, 0.02, 8)[:-1], np.linspace(0.02, 1.0, 50)])],
    "budgets": [float(f"{epsilon:.3g}") for epsilon in np.geomspace(0.1, 10.0, 61)],
}

_DIGITS = 6


def over_orders(settings: Settings, device: str) -> Numbers:
    """ρ(α) and ρ(α) + log(1/δ)/(α − 1) of a run for each q; with participation the paper's two-stage bound."""
    orders = np.asarray(settings["orders"], dtype=np.float64)
    q = np.asarray(settings["q"], dtype=np.float64)
    schedule = _schedule(settings)
    step = log_moments(q[:, None], orders, settings["noise_multiplier"])
    moments = schedule.count().log_moment(schedule.local_steps * step)
    epsilon = lemma_1_epsilon(moments, orders, settings["delta"])
    best = epsilon.argmin(axis=1)
    return {
        "rdp": rounded(moments / (orders - 1.0)),
        "epsilon": rounded(epsilon),
        "best_order": rounded(orders[best]),
        "best_epsilon": rounded(epsilon[np.arange(q.size), best]),
    }


def over_probabilities(settings: Settings, device: str) -> Numbers:
    """ε*(q) by the tight Rényi bound, the authors' exponential fit to it, and what the fit really spends.

    `violation` is cost(F(ε))/ε for budgets ε, by the fit's own accountant; `violation_lower` is the same by a lower
    bound on the true cost (an optimistic privacy-loss distribution).
    """
    schedule = _schedule(settings)
    sigma, delta = settings["noise_multiplier"], settings["delta"]
    renyi = PrivacyCurve(schedule, noise_multiplier=sigma, delta=delta, accountant="rdp")
    pld = PrivacyCurve(schedule, noise_multiplier=sigma, delta=delta)
    q = np.asarray(settings["q"], dtype=np.float64)
    fit = fit_curve(renyi)
    budgets = np.asarray(settings["budgets"], dtype=np.float64)
    chosen = fit.probabilities(budgets)
    return {
        "epsilon": rounded(renyi.epsilon(q)),
        "pld": rounded(pld.epsilon(q)),
        "fitted": rounded(np.exp(fit.a * q + fit.b) + fit.c),
        "fit": {"a": fit.a, "b": fit.b, "c": fit.c, "r_squared": fit.r_squared},
        "violation": rounded(renyi.epsilon(chosen) / budgets),
        "violation_lower": rounded(pld.bounds(chosen).lower / budgets),
    }


def _schedule(settings: Settings) -> Schedule:
    return Schedule(settings["rounds"], settings["local_steps"], participation=settings["participation"])


def rounded(values: NDArray[np.float64]) -> Any:
    """An array as lists of short numbers."""
    return np.vectorize(lambda value: float(f"{value:.{_DIGITS}g}"))(np.asarray(values, dtype=np.float64)).tolist()


def orders_panel(result: CellResult, name: str, title: str, y: str) -> Panel:
    """One curve over α for each q."""
    series = [
        Series(f"q = {q:g}", result.settings["orders"], values, colour)
        for colour, (q, values) in enumerate(zip(result.settings["q"], result.numbers[name], strict=True))
    ]
    return Panel(title, "order α", y, series, log_x=True, log_y=True)


def share_above_one(values: list[float]) -> float:
    """The share of ratios above 1: of budgets that are overspent."""
    return sum(value > 1.0 for value in values) / len(values)
