"""A public plan from what is declared: σ from a ceiling, and the normaliser B from declared sizes and budgets.

B divides the noisy sum of every step, so it sets how long a step is; it costs nothing. A good B is the expected batch,
Σ q over a silo's records. Real budgets and exact counts must not choose it, because it is public (privacy.md, rules 2
and 13). A declared distribution and a nominal size may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from rpdp.accounting import Schedule, calibrate_noise
from rpdp.checks import require_count
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.planning.allowances import Allowances
from rpdp.planning.assignment import assign_allowed
from rpdp.planning.public_plan import PublicPlan

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from rpdp.budgets.distributions import Distribution
    from rpdp.planning.assignment import Planner

DECLARED_SAMPLE = 1000
"""How many sampled budgets represent a declared distribution."""


def declared_plan(
    schedule: Schedule,
    *,
    budgets: Distribution | ArrayLike,
    records: int,
    delta: float,
    max_epsilon: float = 10.0,
    clip_norm: float = 1.0,
    weights: float | dict[str, float] = 1.0,
    **settings: Any,
) -> PublicPlan:
    """Return a public plan whose noise and normaliser come from declarations alone.

    | setting | where it comes from |
    |---|---|
    | σ | a record in every batch costs at most `max_epsilon` |
    | B | the expected batch of a silo with `records` records whose budgets are like `budgets` |

    Args:
        schedule: Rounds, local steps and participation.
        budgets: How strict people are, as far as is known publicly: a distribution, or example budgets ε. Never the
            real ones.
        records: The nominal number of records of a silo.
        delta: δ of the run.
        max_epsilon: The most that a record may pay, however much it allows.
        clip_norm: L. With one-layer models, the usual length of a gradient at the start is a good choice.
        weights: Weights of the silos in the average, from declared sizes.
        **settings: Other settings of `PublicPlan`, such as `recipe` or `share`.

    >>> plan = declared_plan(Schedule(6, 10, participations=6), budgets=[0.1, 1.0, 1.0, 5.0], records=200, delta=1e-4)
    >>> round(plan.noise_multiplier, 2), round(plan.normaliser)
    (3.53, 42)
    """
    for name in ("noise_multiplier", "normaliser"):
        if name in settings:
            raise InputError(f"{name} is what this function chooses; to state it yourself, use PublicPlan(…)")
    count = require_count("records", records)
    declared = _sampled(budgets)
    sigma = calibrate_noise(schedule, epsilon=max_epsilon, delta=delta, accountant=settings.get("accountant", "pld"))
    plan = PublicPlan(
        schedule,
        noise_multiplier=sigma,
        delta=delta,
        clip_norm=clip_norm,
        normaliser=1.0,
        weights=weights,
        **settings,
    )
    return with_declared_batch(plan, declared, count)


def with_declared_batch(
    public: PublicPlan, budgets: NDArray[np.float64], records: int, planner: Planner = assign_allowed
) -> PublicPlan:
    """The plan with B set to the batch to expect in a silo of `records` records whose budgets are like `budgets`.

    Of each lifetime budget the run takes what the plan asks for (`share`), as it will at the silos.
    """
    batch = records * declared_probability(public, budgets, planner)
    if batch <= 0.0:
        raise PrivacyRefusal(
            "no declared budget is large enough for a single draw, so there is no batch to expect; use fewer rounds or "
            "local steps, more noise (a smaller max_epsilon), or a larger share"
        )
    return public.with_normaliser(max(1.0, batch))


def declared_probability(public: PublicPlan, budgets: NDArray[np.float64], planner: Planner = assign_allowed) -> float:
    """The mean sampling probability of records with unused accounts, whose budgets are like `budgets`."""
    rows = pa.chunked_array([pa.array([str(row) for row in range(budgets.size)], pa.string())])
    return float(planner(public, rows, Allowances.of_new_accounts(public, budgets)).q.mean())


def _sampled(budgets: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    given = budgets.sample(DECLARED_SAMPLE, 0) if hasattr(budgets, "sample") else np.asarray(budgets, dtype=np.float64)
    if given.ndim != 1 or given.size == 0 or not (given > 0.0).all() or not np.isfinite(given).all():
        raise InputError("budgets must be a distribution, or one or more positive numbers")
    return np.asarray(given)
