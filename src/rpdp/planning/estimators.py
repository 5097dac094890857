"""From a budget to a sampling probability: one interface, three estimators.

An estimator takes a `PrivacyCurve` and an array of budgets and returns an `Estimate`: a probability for each budget,
its cost over the whole run, and the number of rounds a record may be active so that it never overspends.

| estimator       | probability                                | active     | the promise holds                |
|-----------------|--------------------------------------------|------------|----------------------------------|
| `certified`     | the largest priced q within the budget     | all rounds | by construction                  |
| `binary_search` | a search per different budget (IDP-SGD)    | all rounds | by construction                  |
| `scf`           | the paper's curve fit, which can overshoot | up to t_j  | because records drop out in time |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
from scipy import optimize

from rpdp.display import counts_repr
from rpdp.errors import InputError, PlanError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

    from rpdp.accounting import PrivacyCurve

AUTHORS_CANDIDATES = np.unique(np.concatenate([np.arange(1, 100) / 100.0, np.arange(1, 100) / 1000.0, [1.0]]))
"""Π of the paper's published code: 0.01 … 0.99 by 0.01, 0.001 … 0.099 by 0.001, and 1."""

_SEARCH_TOLERANCE = 1e-3
_SEARCH_STEPS = 60
_MOST_ALONE = 1024


@dataclass(frozen=True)
class Estimate:
    """What an estimator found, an entry per budget, and what it says about itself."""

    q: NDArray[np.float64]
    cost: NDArray[np.float64]
    """The cost that is reserved: of the rounds in which the record is active. Never above the budget."""

    active_rounds: NDArray[np.int32]
    """A record is active in the announced rounds 1 … active_rounds."""

    facts: Mapping[str, float] = field(default_factory=dict)

    __repr__ = counts_repr


class Estimator(Protocol):
    """A rule that turns budgets into probabilities for the run that a curve describes."""

    def __call__(self, curve: PrivacyCurve, budgets: NDArray[np.float64]) -> Estimate:
        """Probabilities for `budgets`."""
        ...


def certified(curve: PrivacyCurve, budgets: NDArray[np.float64]) -> Estimate:
    """The largest priced q with cost(q) ≤ ε; slack at most 0.5 % of ε (2.5e-4 below ε = 0.05). The default."""
    q, cost = curve.certify(budgets)
    return Estimate(q, cost, _all_rounds(curve, budgets))


def binary_search(curve: PrivacyCurve, budgets: NDArray[np.float64]) -> Estimate:
    """A bisection per different budget, as in IDP-SGD (Boenisch et al. 2023): sound, and slow for many budgets.

    It ends on the safe side, with a cost within 0.1 % below the budget.
    """
    distinct, where = np.unique(budgets, return_inverse=True)
    found = np.array([_search(curve, float(budget)) for budget in distinct]).reshape(-1, 2)
    return Estimate(found[where, 0], found[where, 1], _all_rounds(curve, budgets))


def _search(curve: PrivacyCurve, budget: float) -> tuple[float, float]:
    largest = curve.largest_cost
    if largest <= budget:
        return 1.0, largest
    low, low_cost, high = 0.0, 0.0, 1.0
    for _ in range(_SEARCH_STEPS):
        if low > 0.0 and budget - low_cost <= _SEARCH_TOLERANCE * budget:
            break
        middle = 0.5 * (low + high)
        cost = curve.epsilon(middle)
        if cost <= budget:
            low, low_cost = middle, cost
        else:
            high = middle
    return low, low_cost


@dataclass(frozen=True)
class CurveFit:
    """The paper's f(q) = exp(a q + b) + c, fitted to simulated costs."""

    a: float
    b: float
    c: float
    r_squared: float
    largest_cost: float

    def probabilities(self, budgets: NDArray[np.float64]) -> NDArray[np.float64]:
        """f⁻¹ projected to [0, 1]; 1 from the cost of q = 1 on, 0 where f⁻¹ is negative or undefined."""
        with np.errstate(invalid="ignore", divide="ignore"):
            q = (np.log(budgets - self.c) - self.b) / self.a
        q = np.clip(np.nan_to_num(q, nan=0.0, neginf=0.0), 0.0, 1.0)
        return np.where(budgets >= self.largest_cost, 1.0, q)


def fit_curve(
    curve: PrivacyCurve,
    candidates: ArrayLike = AUTHORS_CANDIDATES,
    start: tuple[float, float, float] = (1.0, 1.0, 1.0),
) -> CurveFit:
    """Simulation and curve fitting, stages I and II of the paper's Algorithm 2."""
    points = np.unique(np.asarray(candidates, dtype=np.float64))
    if points.size < 4 or points[0] <= 0.0 or points[-1] > 1.0:
        raise InputError(f"candidates must be at least 4 different numbers in (0, 1], got {points.size}")
    costs = curve.epsilon(points)

    def model(q: NDArray[np.float64], a: float, b: float, c: float) -> NDArray[np.float64]:
        return np.exp(np.minimum(a * q + b, 700.0)) + c

    try:
        (a, b, c), _ = optimize.curve_fit(model, points, costs, p0=start, maxfev=20_000)
    except (RuntimeError, optimize.OptimizeWarning) as error:
        raise PlanError(f"scf: the exponential fit did not converge ({error}); use estimator='certified'") from None
    residual = float(((costs - model(points, a, b, c)) ** 2).sum())
    total = float(((costs - costs.mean()) ** 2).sum())
    r_squared = 1.0 - residual / total if total > 0 else 1.0
    return CurveFit(float(a), float(b), float(c), r_squared, curve.largest_cost)


def scf(curve: PrivacyCurve, budgets: NDArray[np.float64], candidates: ArrayLike = AUTHORS_CANDIDATES) -> Estimate:
    """The paper's Simulation-CurveFitting, kept sound by the budget accountant.

    The fitted curve can lie below the true one, so some records would overspend: `facts["violation"]` is the largest
    cost(q)/ε over the budgets given. Each record is therefore active only in rounds 1 … t_j, the largest t whose cost
    is within its budget. t_j follows from public settings and the record's own budget; nothing adapts to the run.
    """
    fit = fit_curve(curve, candidates)
    q = fit.probabilities(budgets)
    whole_run = _price(curve, q)
    active, cost = _active_rounds(curve, q, budgets, whole_run)
    facts = {
        "a": fit.a,
        "b": fit.b,
        "c": fit.c,
        "r_squared": fit.r_squared,
        "candidates": float(np.unique(np.asarray(candidates)).size),
        "violation": float(np.max(whole_run / budgets, initial=0.0, where=budgets > 0.0)),
        "records_cut_short": float((active < curve.schedule.rounds).sum()),
    }
    return Estimate(np.where(active > 0, q, 0.0), cost, active, facts)


def _active_rounds(
    curve: PrivacyCurve,
    q: NDArray[np.float64],
    budgets: NDArray[np.float64],
    whole_run: NDArray[np.float64],
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """For each record the largest t with cost(q; first t announced rounds) ≤ ε, and that cost, by bisection over t."""
    rounds = curve.schedule.rounds
    enough = np.where(whole_run <= budgets, rounds, 0).astype(np.int32)
    too_many = np.full(budgets.shape, rounds + 1, dtype=np.int32)
    too_many[enough == 0] = rounds
    cost = np.where(enough == rounds, whole_run, 0.0)
    while True:
        open_ones = np.flatnonzero(too_many - enough > 1)
        if open_ones.size == 0:
            return enough, cost
        middle = (enough[open_ones] + too_many[open_ones]) // 2
        for announced in np.unique(middle):
            rows = open_ones[middle == announced]
            prices = _price(curve.after(int(announced)), q[rows])
            fits = prices <= budgets[rows]
            enough[rows[fits]], cost[rows[fits]] = announced, prices[fits]
            too_many[rows[~fits]] = announced


def _price(curve: PrivacyCurve, q: NDArray[np.float64]) -> NDArray[np.float64]:
    """What each q costs; of many, rounded up to points that all silos of a federation share."""
    return curve.epsilon(q) if np.unique(q).size <= _MOST_ALONE else curve.epsilon_above(q)


def _all_rounds(curve: PrivacyCurve, budgets: NDArray[np.float64]) -> NDArray[np.int32]:
    return np.full(budgets.shape, curve.schedule.rounds, dtype=np.int32)


ESTIMATORS: dict[str, Estimator] = {"certified": certified, "scf": scf, "binary_search": binary_search}


def estimator_named(name: str) -> Estimator:
    """An estimator by its name."""
    if name not in ESTIMATORS:
        raise InputError(f"estimator={name!r} must be one of {', '.join(ESTIMATORS)}")
    return ESTIMATORS[name]
