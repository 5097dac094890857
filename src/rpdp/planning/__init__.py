"""Planning: from budgets to sampling probabilities, and to weights in statistics.

`PublicPlan` is the contract between server and silos, and `SiloPlan` holds a silo's own probabilities or weights.
Estimators turn budgets into probabilities; `frontier` shows the trade-off between noise and sampling.
"""

from __future__ import annotations

from rpdp.planning.allowances import PURPOSES, WHOLE, Allowance, Allowances, Purpose
from rpdp.planning.assignment import Planner, assign_allowed, states_its_costs
from rpdp.planning.declared_plan import DECLARED_SAMPLE, declared_plan, declared_probability, with_declared_batch
from rpdp.planning.estimators import (
    AUTHORS_CANDIDATES,
    ESTIMATORS,
    CurveFit,
    Estimate,
    Estimator,
    binary_search,
    certified,
    fit_curve,
    scf,
)
from rpdp.planning.fitting_runs import FittingRuns, LifetimeAllowances, RunGroup, fitting_runs
from rpdp.planning.frontier import FrontierPoint, frontier, knee
from rpdp.planning.public_plan import TUNED_ON_BUDGETS, PublicPlan
from rpdp.planning.recipe import BACKBONES, OPTIMISERS, Recipe
from rpdp.planning.request import REQUEST_ESTIMATORS, MeasureSpec, Request, RequestEstimator
from rpdp.planning.request_noise import (
    ExpectedWeights,
    ValuesInMeasure,
    expected_weights,
    noise_for_weight_1,
    with_best_noise,
)
from rpdp.planning.signal_floor import LEAST_SHARE, LEAST_SIGNAL, floor_of_signal, signal_of_run, signal_of_silos
from rpdp.planning.silo_plan import Group, SiloPlan, Status
from rpdp.planning.words import Words, words_for

__all__ = [
    "AUTHORS_CANDIDATES",
    "BACKBONES",
    "DECLARED_SAMPLE",
    "ESTIMATORS",
    "LEAST_SHARE",
    "LEAST_SIGNAL",
    "OPTIMISERS",
    "PURPOSES",
    "REQUEST_ESTIMATORS",
    "TUNED_ON_BUDGETS",
    "WHOLE",
    "Allowance",
    "Allowances",
    "CurveFit",
    "Estimate",
    "Estimator",
    "ExpectedWeights",
    "FittingRuns",
    "FrontierPoint",
    "Group",
    "LifetimeAllowances",
    "MeasureSpec",
    "Planner",
    "PublicPlan",
    "Purpose",
    "Recipe",
    "Request",
    "RequestEstimator",
    "RunGroup",
    "SiloPlan",
    "Status",
    "ValuesInMeasure",
    "Words",
    "assign_allowed",
    "binary_search",
    "certified",
    "declared_plan",
    "declared_probability",
    "expected_weights",
    "fit_curve",
    "fitting_runs",
    "floor_of_signal",
    "frontier",
    "knee",
    "noise_for_weight_1",
    "scf",
    "signal_of_run",
    "signal_of_silos",
    "states_its_costs",
    "with_best_noise",
    "with_declared_batch",
    "words_for",
]
