"""Training methods: how budgets become sampling probabilities, for our method and those it is compared with.

All methods share schedule, σ, δ and accountant, and all that add noise share the mechanism. Each divides by its own
expected batch on *declared* budgets, so that a learning rate means the same for all of them. Sharing σ is fair: at a
given ε the signal-to-noise ratio Σq/σ is nearly the same for every σ.

| method         | each record is sampled as if it allowed   | the promise                                            |
|----------------|-------------------------------------------|--------------------------------------------------------|
| `rpdp`         | its own ε (certified)                     | each record its own ε                                  |
| `scf`          | its own ε (curve fit, accountant)         | each record its own ε; some stop early                 |
| `minimum`      | the smallest ε of all                     | each record its own ε; leaks that smallest one         |
| `dropout`      | the mean ε; those below are left out      | each record its own ε; leaks the mean                  |
| `threshold`    | a public level; those below are left out  | each record its own ε                                  |
| `uniform`      | a public level                            | that level to all; breaks the promise to those below   |
| `dp_fedavg`    | the policy's ceiling                      | the ceiling to all; breaks the promise to those below  |
| `privacy_free` | no limit; no clipping, no noise           | nothing                                                |
| `pooled`       | the same, all records in one place        | nothing                                                |

"Leaks" means that public settings depend on the real budgets of all silos, which no promise covers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from rpdp.checks import require_choice, require_count, require_positive
from rpdp.display import counts_repr
from rpdp.errors import InputError, PlanError, PrivacyRefusal
from rpdp.planning import SiloPlan, Status, assign_allowed, declared_probability, with_declared_batch

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from numpy.typing import NDArray

    from rpdp.planning import Allowances, Planner, PublicPlan

LEAKS_BUDGETS = "not covered: {} is computed from the real budgets of all silos"


@dataclass(frozen=True)
class Declared:
    """What is publicly known before any real budget is seen.

    Attributes:
        epsilon: Budgets drawn from the declared distribution.
        records: Nominal number of training records of a silo.
        max_epsilon: The policy's ceiling.
    """

    epsilon: NDArray[np.float64]
    records: int
    max_epsilon: float

    __repr__ = counts_repr

    def __post_init__(self) -> None:
        require_count("records", self.records)
        require_positive("max_epsilon", self.max_epsilon)
        if self.epsilon.size == 0 or not (self.epsilon > 0.0).all():
            raise InputError("declared budgets must be one or more positive numbers")


@dataclass(frozen=True)
class Method:
    """One row of the table above.

    Attributes:
        name: Its name in study files and tables.
        promise: What it promises to records, in a sentence.
        is_protected: Whether its silos clip and add noise. If not, only simulations may use it.
        is_pooled: Whether all records are in one place, as if there were no silos.
        needs_level: Whether it needs a public level ε.
        note: What its promise does not cover, if anything.
        make_planner: Makes a planner from all budgets of the federation, what was declared, and the level.
    """

    name: str
    promise: str
    make_planner: Callable[[NDArray[np.float64], Declared, float], Planner]
    is_protected: bool = True
    is_pooled: bool = False
    needs_level: bool = False
    note: str | None = None

    def planner(self, everyone: NDArray[np.float64], declared: Declared, level: float | None) -> Planner:
        """The planner that every silo uses; `everyone` holds the budgets of all silos."""
        if self.needs_level and level is None:
            raise InputError(f"method {self.name} needs a level: give the ε at which it samples its records")
        return self.make_planner(everyone, declared, declared.max_epsilon if level is None else level)

    def public(self, public: PublicPlan, declared: Declared, level: float | None) -> PublicPlan:
        """The public plan for this method: B is its expected batch on the declared budgets."""
        noted = public if self.note is None else public.with_note(self.note)
        planner = self.planner(declared.epsilon, declared, level)
        try:
            return with_declared_batch(noted, declared.epsilon, declared.records, planner)
        except PrivacyRefusal as error:
            raise PrivacyRefusal(f"method {self.name}: {error}") from None


def _own(estimator: str) -> Callable[[NDArray[np.float64], Declared, float], Planner]:
    def make(everyone: NDArray[np.float64], declared: Declared, level: float) -> Planner:
        return partial(assign_allowed, estimator=estimator)

    return make


def _at_minimum(everyone: NDArray[np.float64], declared: Declared, level: float) -> Planner:
    return partial(_same_for_all, level=float(everyone.min()), leave_out=True)


def _at_mean(everyone: NDArray[np.float64], declared: Declared, level: float) -> Planner:
    return partial(_same_for_all, level=float(everyone.mean()), leave_out=True)


def _at_level(everyone: NDArray[np.float64], declared: Declared, level: float) -> Planner:
    return partial(_same_for_all, level=require_positive("level", level), leave_out=True)


def _everybody_at_level(everyone: NDArray[np.float64], declared: Declared, level: float) -> Planner:
    return partial(_same_for_all, level=require_positive("level", level), leave_out=False)


def _without_limit(everyone: NDArray[np.float64], declared: Declared, level: float) -> Planner:
    return partial(_unpriced, declared=declared)


def _same_for_all(
    public: PublicPlan, ids: pa.ChunkedArray, left: Allowances, *, level: float, leave_out: bool
) -> SiloPlan:
    """One lifetime ε for all. A record that allows less is left out, or sampled as if it allowed that much."""
    if left.order.any():
        raise PlanError("a method with one ε for all compares budgets of sum accounts; it knows no Rényi accounts")
    taken = level if public.share is None else public.share * level
    allowed = left.amount >= taken
    epsilon = np.where(allowed, taken, 0.0) if leave_out else np.full(len(left.amount), taken)
    plan = assign_allowed(public, ids, replace(left, lifetime=epsilon, amount=epsilon))
    if not leave_out:
        return plan
    status = np.where(allowed, plan.status, np.uint8(Status.BUDGET_TOO_SMALL)).astype(np.uint8)
    return replace(plan, epsilon=left.lifetime, budget=left.amount, status=status, estimator=f"uniform at {level:.6g}")


def _unpriced(public: PublicPlan, ids: pa.ChunkedArray, left: Allowances, *, declared: Declared) -> SiloPlan:
    """Sample every record as often as our method does on average. There is no promise, so the cost is infinite."""
    q = declared_probability(public, declared.epsilon)
    count = len(ids)
    return SiloPlan(
        public=public,
        ids=ids,
        budget=np.full(count, np.inf),
        q=np.full(count, q),
        cost=np.full(count, np.inf),
        active_rounds=np.full(count, public.schedule.rounds, dtype=np.int32),
        status=np.full(count, Status.SAMPLED, dtype=np.uint8),
        estimator="none",
        facts={},
    )


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("rpdp", "each record its own ε", _own("certified")),
        Method("scf", "each record its own ε; some records stop before the last round", _own("scf")),
        Method(
            "minimum",
            "each record its own ε; the smallest of all becomes public",
            _at_minimum,
            note=LEAKS_BUDGETS.format("the ε of method minimum"),
        ),
        Method(
            "dropout",
            "each record its own ε; those below the mean are left out, the mean becomes public",
            _at_mean,
            note=LEAKS_BUDGETS.format("the ε of method dropout"),
        ),
        Method("threshold", "each record its own ε; those below the level are left out", _at_level, needs_level=True),
        Method(
            "uniform",
            "the level to all; breaks the promise to records that allow less",
            _everybody_at_level,
            needs_level=True,
        ),
        Method(
            "dp_fedavg",
            "the policy's ceiling to all; breaks the promise to records that allow less",
            _everybody_at_level,
        ),
        Method("privacy_free", "nothing", _without_limit, is_protected=False),
        Method("pooled", "nothing; every record leaves its silo", _without_limit, is_protected=False, is_pooled=True),
    )
}


def method_named(name: str) -> Method:
    """The method with this name."""
    return METHODS[require_choice("method", name, list(METHODS))]
