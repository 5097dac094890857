"""The records of all silos of a run together, as the silo edition shows them. Sensitive."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from rpdp.display import counts_repr
from rpdp.planning.silo_plan import ACCOUNT_COLUMN_TYPES, COLUMN_TYPES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.federation import RunResult
    from rpdp.planning import Group, SiloPlan


@dataclass(frozen=True)
class AllRecords:
    """One row per record.

    Attributes:
        plan: The silo plans behind each other.
        draws: How often each record was drawn.
        expected: How often on average, given the rounds that its silo joined.
        correct: Whether the final model is right on it, if that was measured.
        overdrawn: How many the plan costs more than they allow.
    """

    plan: SiloPlan
    draws: NDArray[np.int64]
    expected: NDArray[np.float64]
    correct: NDArray[np.bool_] | None
    overdrawn: int

    __repr__ = counts_repr

    @classmethod
    def of(cls, run: RunResult) -> AllRecords | None:
        """All records of a run, in the order of the silos' names; None without any."""
        views = [run.silos[name] for name in sorted(run.silos)]
        if not any(len(view.plan) for view in views):
            return None
        plans = [view.plan for view in views]
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(one, name) for one in plans])
            for name in (*COLUMN_TYPES, *ACCOUNT_COLUMN_TYPES)
        }
        plan = replace(
            plans[0],
            ids=pa.chunked_array([chunk for one in plans for chunk in one.ids.chunks], type=plans[0].ids.type),
            **columns,
        )
        answers = [view.correct for view in views if view.correct is not None]
        return cls(
            plan=plan,
            draws=np.concatenate([view.draws for view in views]),
            expected=np.concatenate([view.expected_draws for view in views]),
            correct=np.concatenate(answers) if len(answers) == len(views) else None,
            overdrawn=sum(view.overdrawn for view in views),
        )

    @property
    def variance(self) -> NDArray[np.float64]:
        """Of the number of draws of each record: binomial."""
        return self.expected * (1.0 - self.plan.q)

    def groups(self) -> list[tuple[Group, NDArray[np.int64]]]:
        """The budget groups of the plan, each with its rows; none where budgets are infinite."""
        if not np.isfinite(self.plan.epsilon).all():
            return []
        budget = self.plan.epsilon
        return [(group, np.flatnonzero((budget >= group.low) & (budget <= group.high))) for group in self.plan.groups()]


def group_metrics(run: RunResult, records: AllRecords) -> list[str]:
    """What was measured on training records by budget; release 0.1 kept which answers are right."""
    if run.groups:
        return list(run.groups[0].values)
    return ["accuracy"] if records.correct is not None else []


def group_value(
    run: RunResult, records: AllRecords, metric: str, group: Group, rows: NDArray[np.int64]
) -> float | None:
    """A metric of the final model on the training records of a group."""
    for one in run.groups:
        if (one.low, one.high) == (group.low, group.high):
            return one.values.get(metric)
    if metric == "accuracy" and records.correct is not None:
        return float(records.correct[rows].mean())
    return None


def group_name(group: Group) -> str:
    """The budgets of a group, such as "0.1" or "0.1–0.16"."""
    return f"{group.low:g}" if group.low == group.high else f"{group.low:.2g}–{group.high:.2g}"
