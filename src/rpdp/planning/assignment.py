"""Makes a silo's own plan from the public plan and the silo's budgets (privacy.md, section 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from rpdp.accounting.delta_table import delta_below
from rpdp.accounting.renyi_filter import ORDERS
from rpdp.checks import require_delta
from rpdp.errors import PlanError
from rpdp.planning.allowances import Allowances
from rpdp.planning.estimators import estimator_named
from rpdp.planning.silo_plan import DELTA_TOLERANCE, SiloPlan, Status

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from numpy.typing import NDArray

    from rpdp.budgets import BudgetTable
    from rpdp.planning.public_plan import PublicPlan

    Rows = NDArray[np.int64]

Planner: TypeAlias = "Callable[[PublicPlan, pa.ChunkedArray, Allowances], SiloPlan]"
"""Makes the silo plan from the public plan, the record ids and what the run may take of each record."""


def assign(public: PublicPlan, budgets: BudgetTable, *, estimator: str, lifetime_delta: float | None) -> SiloPlan:
    """A `SiloPlan` in which no record costs more than its budget; see `PublicPlan.assign`."""
    if lifetime_delta is not None:
        require_delta("lifetime_delta", lifetime_delta)
    allowed = budgets.per_record(_delta_of_subjects(public, budgets, lifetime_delta))
    return assign_allowed(public, budgets.ids, Allowances.of_sums(allowed.epsilon, allowed.delta), estimator=estimator)


def assign_allowed(
    public: PublicPlan, ids: pa.ChunkedArray, allowed: Allowances, *, estimator: str = "certified"
) -> SiloPlan:
    """Like `assign`, from what the run may take of each record. A record with nothing left (0) sits out: no error.

    | account | δ | priced by |
    |---|---|---|
    | sums | the common one, or more | the estimator, at the common δ |
    | sums | smaller, such as a share of a person's | `delta_table`, at its own δ rounded down to a public lattice |
    | Rényi | – | `divergence_curve` at its order |
    """
    if public.request is not None and estimator != "certified":
        raise PlanError(
            f"estimator={estimator!r} finds sampling probabilities, but a plan with a request samples nobody: records "
            "have weights, whose price is exact; use estimator='certified'"
        )
    making = _Assignment(public, allowed, len(ids))
    common = public.delta if allowed.common_delta is None else allowed.common_delta
    sums = allowed.order == 0
    # Tolerate the rounding of a δ that was written and read back.
    is_common = allowed.delta >= common * (1.0 - DELTA_TOLERANCE)
    if (sums & is_common).all():  # the usual case; it spares every column a copy
        making.all_at_common_delta(common, estimator)
    else:
        making.at_common_delta(np.flatnonzero(sums & is_common), common, estimator)
        making.at_own_delta(np.flatnonzero(sums & ~is_common))
    for number in np.unique(allowed.order[~sums]).tolist():
        if estimator != "certified":
            raise PlanError(
                f"estimator={estimator!r} plans for sum accounts only, but these records have Rényi accounts; use "
                "estimator='certified'"
            )
        making.at_order(np.flatnonzero(allowed.order == number), number)
    return SiloPlan(
        public=public,
        ids=ids,
        epsilon=allowed.lifetime,
        budget=allowed.amount,
        q=making.q,
        cost=making.cost,
        delta=making.delta,
        order=allowed.order,
        active_rounds=making.active,
        status=making.status(),
        estimator=estimator,
        facts=making.facts,
    )


class _Assignment:
    """The columns of a plan, filled for some records after others. Each record's entries are its own alone."""

    def __init__(self, public: PublicPlan, allowed: Allowances, size: int) -> None:
        self._public = public
        self._allowed = allowed
        self.q, self.cost, self.delta = np.zeros(size), np.zeros(size), np.zeros(size)
        self.active = np.full(size, public.schedule.rounds, dtype=np.int32)
        self.facts: dict[str, float] = {}

    def all_at_common_delta(self, delta: float, estimator: str) -> None:
        """Plan all records at one δ."""
        estimate = estimator_named(estimator)(self._public.curve_at(delta), self._within_ceiling(slice(None)))
        self.q, self.cost, self.active = estimate.q, estimate.cost, estimate.active_rounds
        self.delta[estimate.q > 0.0] = delta
        self.facts = dict(estimate.facts)

    def at_common_delta(self, rows: Rows, delta: float, estimator: str) -> None:
        """Plan records with sum accounts at the δ that most records have."""
        if rows.size == 0:
            return
        estimate = estimator_named(estimator)(self._public.curve_at(delta), self._within_ceiling(rows))
        self.q[rows], self.cost[rows], self.active[rows] = estimate.q, estimate.cost, estimate.active_rounds
        self.delta[rows] = np.where(estimate.q > 0.0, delta, 0.0)
        self.facts = dict(estimate.facts)

    def at_own_delta(self, rows: Rows) -> None:
        """Plan records with sum accounts that allow less δ than most, each at a δ of its own."""
        own = delta_below(self._allowed.delta[rows])
        for delta in np.unique(own[own > 0.0]).tolist():
            here = rows[own == delta]
            self.q[here], self.cost[here] = self._public.delta_table.certify(self._within_ceiling(here), delta)
            self.delta[here] = np.where(self.q[here] > 0.0, delta, 0.0)

    def at_order(self, rows: Rows, number: int) -> None:
        """Plan records with Rényi accounts of one order."""
        curve = self._public.divergence_curve(float(ORDERS[number]))
        times, most = self._allowed.silos_per_person, self._allowed.amount[rows]
        if self._allowed.max_epsilon is not None:
            highest = np.asarray(self._public.curve.sampling_probability([self._allowed.max_epsilon]))
            most = np.minimum(most, times * curve.divergence(highest)[0])
        q, divergence = curve.certify(most / times)
        cost = times * divergence
        fits = cost <= most  # dividing and multiplying may round up in the last digit
        self.q[rows], self.cost[rows] = np.where(fits, q, 0.0), np.where(fits, cost, 0.0)

    def _within_ceiling(self, rows: Rows | slice) -> NDArray[np.float64]:
        ceiling = self._allowed.max_epsilon
        amount = self._allowed.amount[rows]
        return amount if ceiling is None else np.minimum(amount, ceiling)

    def status(self) -> NDArray[np.uint8]:
        """The reason for each record's probability."""
        status = np.full(self.q.shape, Status.SAMPLED, dtype=np.uint8)
        status[self.q >= 1.0] = Status.ALWAYS
        status[self.q <= 0.0] = Status.BUDGET_TOO_SMALL
        status[(self._allowed.order == 0) & (self._allowed.delta <= 0.0)] = Status.DELTA_TOO_SMALL
        return status


def _delta_of_subjects(public: PublicPlan, budgets: BudgetTable, lifetime_delta: float | None) -> float | None:
    """The lifetime δ to use. If none is stated, persons have the plan's own δ, which their records share."""
    if lifetime_delta is None and budgets.delta is None and budgets.subjects is not None:
        return public.delta
    return lifetime_delta


def states_its_costs(plan: SiloPlan, allowed: Allowances) -> bool:
    """Whether every record of a plan reserves at least what its probability costs, by the rules of `assign_allowed`."""
    public, drawn = plan.public, plan.q > 0.0
    common = public.delta if allowed.common_delta is None else allowed.common_delta
    for number in np.unique(plan.order[drawn]).tolist():
        of_order = drawn & (plan.order == number)
        if number:
            curve = public.divergence_curve(float(ORDERS[number]))
            is_whole = (plan.active_rounds[of_order] == public.schedule.rounds).all()
            if not is_whole or not curve.covers(plan.q[of_order], plan.cost[of_order], allowed.silos_per_person).all():
                return False
            continue
        for delta in np.unique(plan.delta[of_order]).tolist():
            if not _covers_at(plan, np.flatnonzero(of_order & (plan.delta == delta)), delta, is_common=delta == common):
                return False
    if allowed.max_epsilon is None or not drawn.any():
        return True
    highest = float(public.curve.sampling_probability(allowed.max_epsilon))
    renyi = drawn & (plan.order > 0)
    return bool((plan.q[renyi] <= highest).all() and (plan.cost[drawn & ~renyi] <= allowed.max_epsilon).all())


def _covers_at(plan: SiloPlan, rows: Rows, delta: float, *, is_common: bool) -> bool:
    """Whether records with sum accounts that book this δ reserve what their probabilities cost at it."""
    if not is_common:
        table = plan.public.delta_table
        is_whole = (plan.active_rounds[rows] == plan.public.schedule.rounds).all()
        return bool(is_whole and table.covers(plan.q[rows], plan.cost[rows], delta).all())
    curve = plan.public.curve_at(delta)
    for rounds in np.unique(plan.active_rounds[rows]).tolist():
        here = rows[plan.active_rounds[rows] == rounds]
        if not curve.after(rounds).covers(plan.q[here], plan.cost[here]).all():
            return False
    return True
