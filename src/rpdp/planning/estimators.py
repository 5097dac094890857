"""Estimators: from a budget to a sampling probability (privacy.md, section 6).

An estimator takes a curve of costs and an array of budgets. It returns an `Estimate`: for each budget a probability,
its cost, and the number of rounds in which the record may be active without overspending.

| estimator       | probability                                | active     | the promise holds                |
|-----------------|--------------------------------------------|------------|----------------------------------|
| `certified`     | the largest tabulated q within the budget  | all rounds | by construction                  |
| `binary_search` | a search per distinct budget (IDP-SGD)     | all rounds | by construction                  |
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

    from rpdp.accounting.costs import CostCurve

AUTHORS_CANDIDATES = np.unique(np.concatenate([np.arange(1, 100) / 100.0, np.arange(1, 100) / 1000.0, [1.0]]))
"""Π in the paper's published code: 0.01 … 0.99 by 0.01, 0.001 … 0.099 by 0.001, and 1."""

_SEARCH_TOLERANCE = 1e-3
_SEARCH_STEPS = 60


@dataclass(frozen=True)
class Estimate:
    """The result of an estimator, with one entry per budget; `facts` holds numbers about the estimate itself."""

    q: NDArray[np.float64]
    cost: NDArray[np.float64]
    """The cost to reserve, for the rounds in which the record is active. Never above the budget."""

    active_rounds: NDArray[np.int32]
    """A record is active in the announced rounds 1 … active_rounds."""

    facts: Mapping[str, float] = field(default_factory=dict)

    __repr__ = counts_repr


class Estimator(Protocol):
    """A rule that turns budgets into sampling probabilities for the run of a given curve."""

    def __call__(self, curve: CostCurve, budgets: NDArray[np.float64]) -> Estimate:
        """Sampling probabilities for `budgets`."""
        ...


def certified(curve: CostCurve, budgets: NDArray[np.float64]) -> Estimate:
    """The largest tabulated q with cost(q) ≤ ε; slack at most 0.5 % of ε (2.5e-4 below ε = 0.05). The default."""
    q, cost = curve.certify(budgets)
    return Estimate(q, cost, _all_rounds(curve, budgets))


def binary_search(curve: CostCurve, budgets: NDArray[np.float64]) -> Estimate:
    """One bisection per distinct budget, as in IDP-SGD (Boenisch et al. 2023): sound, but slow for many budgets.

    It ends on the safe side, with a cost at most 0.1 % below the budget.
    """
    distinct, where = np.unique(budgets, return_inverse=True)
    q_and_cost = np.array([_search(curve, float(budget)) for budget in distinct]).reshape(-1, 2)
    return Estimate(q_and_cost[where, 0], q_and_cost[where, 1], _all_rounds(curve, budgets))


def _search(curve: CostCurve, budget: float) -> tuple[float, float]:
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
    """The paper's f(q) = exp(a q + b) + c, fitted to computed costs."""

    a: float
    b: float
    c: float
    r_squared: float
    largest_cost: float

    def probabilities(self, budgets: NDArray[np.float64]) -> NDArray[np.float64]:
        """f⁻¹ projected to [0, 1]: 1 for budgets of at least cost(1), 0 where f⁻¹ is negative or undefined."""
        with np.errstate(invalid="ignore", divide="ignore"):
            q = (np.log(budgets - self.c) - self.b) / self.a
        q = np.clip(np.nan_to_num(q, nan=0.0, neginf=0.0), 0.0, 1.0)
        return np.where(budgets >= self.largest_cost, 1.0, q)


def fit_curve(
    curve: CostCurve,
    candidates: ArrayLike = AUTHORS_CANDIDATES,
    start: tuple[float, float, float] = (1.0, 1.0, 1.0),
) -> CurveFit:
    """Simulation and curve fitting: stages I and II of the paper's Algorithm 2."""
    points = np.unique(np.asarray(candidates, dtype=np.float64))
    if points.size < 4 or points[0] <= 0.0 or points[-1] > 1.0:
        raise InputError(
            f"candidates must be at least 4 distinct numbers in (0, 1], got {points.size}: "
            f"{np.array2string(points, threshold=6)}"
        )
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


def scf(curve: CostCurve, budgets: NDArray[np.float64], candidates: ArrayLike = AUTHORS_CANDIDATES) -> Estimate:
    """The paper's Simulation-CurveFitting, made sound by the budget accountant.

    The fitted curve can lie below the true one, so some records would overspend; `facts["violation"]` is the largest
    cost(q)/ε over the given budgets. Each record is therefore active only in rounds 1 … t_j, where t_j is the largest t
    whose cost is within its budget. It depends only on public settings and the record's own budget, never on the run
    or on other records: each q is priced at a fixed point just above it, however many there are.
    """
    fit = fit_curve(curve, candidates)
    q = fit.probabilities(budgets)
    whole_run = curve.epsilon_above(q)
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
    curve: CostCurve,
    q: NDArray[np.float64],
    budgets: NDArray[np.float64],
    whole_run: NDArray[np.float64],
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """For each record, the largest t with cost(q; first t announced rounds) ≤ ε, and that cost, by bisection over t."""
    rounds = curve.schedule.rounds
    enough = np.where(whole_run <= budgets, rounds, 0).astype(np.int32)
    too_many = np.full(budgets.shape, rounds + 1, dtype=np.int32)
    too_many[enough == 0] = rounds
    cost = np.where(enough == rounds, whole_run, 0.0)
    while True:
        unfinished = np.flatnonzero(too_many - enough > 1)
        if unfinished.size == 0:
            return enough, cost
        middle = (enough[unfinished] + too_many[unfinished]) // 2
        for announced in np.unique(middle):
            rows = unfinished[middle == announced]
            prices = curve.after(int(announced)).epsilon_above(q[rows])
            fits = prices <= budgets[rows]
            enough[rows[fits]], cost[rows[fits]] = announced, prices[fits]
            too_many[rows[~fits]] = announced


def _all_rounds(curve: CostCurve, budgets: NDArray[np.float64]) -> NDArray[np.int32]:
    return np.full(budgets.shape, curve.schedule.rounds, dtype=np.int32)


ESTIMATORS: dict[str, Estimator] = {"certified": certified, "scf": scf, "binary_search": binary_search}


def estimator_named(name: str) -> Estimator:
    """The estimator with this name."""
    if name not in ESTIMATORS:
        raise InputError(f"estimator={name!r} must be one of {', '.join(ESTIMATORS)}")
    return ESTIMATORS[name]
