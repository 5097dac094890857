"""What each method really spends per record: its probabilities, priced by both accountants and from below."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rpdp.accounting import PrivacyCurve, Schedule, calibrate_noise, paper_type_1
from rpdp.budgets import distribution
from rpdp.planning import AUTHORS_CANDIDATES, ESTIMATORS, fit_curve

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from rpdp.accounting import Accountant

    Array = NDArray[np.float64]

OVER = 1.0 + 1e-9
"""A ratio of spent to allowed above this is an overdraft, not rounding."""


def spent(settings: Mapping[str, Any], device: str) -> dict[str, Any]:
    """One method at one setting on the budgets of one distribution.

    `pld` and `rdp` are upper bounds, the latter what the paper would compute; where `lower`, a lower bound on the true
    cost, exceeds a budget, the promise is broken beyond dispute.
    """
    schedule = Schedule(settings["rounds"], settings["local_steps"], participation=settings["participation"])
    delta = settings["delta"]
    sigma = settings["noise_multiplier"] or calibrate_noise(
        schedule, epsilon=settings["max_epsilon"], delta=delta, accountant="rdp"
    )
    budgets = distribution(settings["distribution"], overrides=settings.get("overrides")).sample(
        settings["records"], settings["seed"]
    )
    curves: dict[Accountant, PrivacyCurve] = {
        name: PrivacyCurve(schedule, noise_multiplier=sigma, delta=delta, accountant=name) for name in ("pld", "rdp")
    }
    q, rounds = METHODS[settings["method"]](curves, budgets)
    drawn = q > 0.0
    found: dict[str, Any] = {
        "noise_multiplier": sigma,
        "expected_batch": float(q.sum()),
        "left_out": int((~drawn).sum()),
    }
    costs: dict[str, Array] = {name: _cost(curve, q, rounds) for name, curve in curves.items()}
    costs["lower"] = _lower(curves["pld"], q, rounds)
    for name, cost in costs.items():
        ratio = cost / budgets
        found[name] = {
            "mean": float(ratio.mean()),
            "largest": float(ratio.max()),
            "over": float((ratio > OVER).mean()),
        }
    return found


def _cost(curve: PrivacyCurve, q: Array, rounds: Array) -> Array:
    """Of each record in the rounds in which it is active."""
    cost = np.zeros(q.shape)
    for announced in np.unique(rounds[rounds > 0]):
        rows = np.flatnonzero(rounds == announced)
        part = curve if announced == curve.schedule.rounds else curve.after(int(announced))
        cost[rows] = part.epsilon(q[rows])
    return cost


def _lower(curve: PrivacyCurve, q: Array, rounds: Array) -> Array:
    cost = np.zeros(q.shape)
    for announced in np.unique(rounds[rounds > 0]):
        rows = np.flatnonzero((rounds == announced) & (q > 0.0))
        part = curve if announced == curve.schedule.rounds else curve.after(int(announced))
        levels, where = np.unique(q[rows], return_inverse=True)
        cost[rows] = part.bounds(levels).lower[where]
    return cost


def _estimated(estimator: str, accountant: Accountant) -> Callable[[dict[Accountant, PrivacyCurve], Array], Any]:
    def chosen(curves: dict[Accountant, PrivacyCurve], budgets: Array) -> tuple[Array, Array]:
        found = ESTIMATORS[estimator](curves[accountant], budgets)
        return found.q, found.active_rounds.astype(np.float64)

    return chosen


def _published(curves: dict[Accountant, PrivacyCurve], budgets: Array) -> tuple[Array, Array]:
    """SCF as published: nobody checks what F gives."""
    return _all_rounds(curves, fit_curve(curves["rdp"]).probabilities(budgets))


def _type_1(curves: dict[Accountant, PrivacyCurve], budgets: Array) -> tuple[Array, Array]:
    """The largest q whose cost by the paper's Type I formula, which is not a bound, is within the budget."""
    curve = curves["rdp"]
    grid = np.unique(np.concatenate([AUTHORS_CANDIDATES, np.geomspace(1e-4, 1.0, 400)]))
    claimed = paper_type_1(curve.schedule, grid, noise_multiplier=curve.noise_multiplier, delta=curve.target_delta)
    place = np.searchsorted(np.maximum.accumulate(claimed), budgets, side="right")
    return _all_rounds(curves, np.where(place > 0, grid[np.maximum(place - 1, 0)], 0.0))


def _uniform(level: Callable[[Array], float]) -> Callable[[dict[Accountant, PrivacyCurve], Array], Any]:
    def chosen(curves: dict[Accountant, PrivacyCurve], budgets: Array) -> tuple[Array, Array]:
        common = level(budgets)
        q = curves["pld"].sampling_probability(common)
        return _all_rounds(curves, np.where(budgets >= common, q, 0.0))

    return chosen


def _everybody_at_mean(curves: dict[Accountant, PrivacyCurve], budgets: Array) -> tuple[Array, Array]:
    q = curves["pld"].sampling_probability(float(budgets.mean()))
    return _all_rounds(curves, np.full(budgets.shape, q))


def _all_rounds(curves: dict[Accountant, PrivacyCurve], q: Array) -> tuple[Array, Array]:
    return q, np.full(q.shape, float(curves["rdp"].schedule.rounds))


METHODS: dict[str, Callable[[dict[Accountant, PrivacyCurve], Array], tuple[Array, Array]]] = {
    "certified, PLD (ours)": _estimated("certified", "pld"),
    "certified, RDP": _estimated("certified", "rdp"),
    "binary search, RDP": _estimated("binary_search", "rdp"),
    "SCF as published": _published,
    "SCF under the accountant": _estimated("scf", "rdp"),
    "largest q by the paper's Type I": _type_1,
    "Minimum": _uniform(lambda budgets: float(budgets.min())),
    "Dropout": _uniform(lambda budgets: float(budgets.mean())),
    "uniform at the mean": _everybody_at_mean,
}
