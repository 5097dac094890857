"""Makes a silo's own plan from the public plan and the silo's budgets (privacy.md, section 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from rpdp.checks import require_delta
from rpdp.planning.estimators import estimator_named
from rpdp.planning.silo_plan import SiloPlan, Status

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from numpy.typing import NDArray

    from rpdp.budgets import BudgetTable, RecordBudgets
    from rpdp.planning.estimators import Estimate
    from rpdp.planning.public_plan import PublicPlan

Planner: TypeAlias = "Callable[[PublicPlan, pa.ChunkedArray, RecordBudgets], SiloPlan]"
"""Makes the silo plan from the public plan, the record ids and what each record has left."""


def assign(public: PublicPlan, budgets: BudgetTable, *, estimator: str, lifetime_delta: float | None) -> SiloPlan:
    """A `SiloPlan` in which no record costs more than its budget; see `PublicPlan.assign`."""
    if lifetime_delta is not None:
        require_delta("lifetime_delta", lifetime_delta)
    allowed = budgets.per_record(_delta_of_subjects(public, budgets, lifetime_delta))
    return assign_allowed(public, budgets.ids, allowed, estimator=estimator)


def assign_allowed(
    public: PublicPlan, ids: pa.ChunkedArray, allowed: RecordBudgets, *, estimator: str = "certified"
) -> SiloPlan:
    """Like `assign`, from what each single record allows. A record with nothing left (0) sits out; that is no error."""
    delta_short = (
        np.zeros(len(ids), dtype=bool)
        if allowed.delta is None
        else allowed.delta < public.delta * (1.0 - 1e-12)  # tolerate the rounding of a δ that was written and read back
    )
    usable = np.where(delta_short, 0.0, allowed.epsilon) if delta_short.any() else allowed.epsilon
    estimate = estimator_named(estimator)(public.curve, usable)
    return SiloPlan(
        public=public,
        ids=ids,
        budget=allowed.epsilon,
        q=estimate.q,
        cost=estimate.cost,
        active_rounds=estimate.active_rounds,
        status=_status(estimate, delta_short),
        estimator=estimator,
        facts=dict(estimate.facts),
    )


def _delta_of_subjects(public: PublicPlan, budgets: BudgetTable, lifetime_delta: float | None) -> float | None:
    """The lifetime δ to use. If none is stated, subjects get the plan's own δ.

    Group composition then leaves each record of a subject with several records less than the plan's δ, so they sit out.
    """
    if lifetime_delta is None and budgets.delta is None and budgets.subjects is not None:
        return public.delta
    return lifetime_delta


def _status(estimate: Estimate, delta_short: NDArray[np.bool_]) -> NDArray[np.uint8]:
    status = np.full(estimate.q.shape, Status.SAMPLED, dtype=np.uint8)
    status[estimate.q >= 1.0] = Status.ALWAYS
    status[estimate.q <= 0.0] = Status.BUDGET_TOO_SMALL
    status[delta_short] = Status.DELTA_TOO_SMALL
    return status
