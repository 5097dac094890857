"""Requests that tests put together: a plan, code that answers it, and silos that have both."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rpdp import BudgetTable, PublicPlan
from rpdp.errors import InputError
from rpdp.federation import Policy, Silo
from rpdp.federation.cells import NO_CELL, Cells
from rpdp.planning import MeasureSpec, Request
from tests.federation.world import make_ids, make_records

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray
    from torch import Tensor

    from rpdp.ledger import Account
    from rpdp.planning import Purpose

TWO = Request("everyone", (MeasureSpec("count", 1), MeasureSpec("histogram", 4)))


def make_asked(
    rounds: int = 1, *, request: Request = TWO, purpose: Purpose = "statistics", **changes: Any
) -> PublicPlan:
    settings = {"noise_multiplier": 1.0, "delta": 1e-3, **changes}
    return PublicPlan.of_request(request, purpose=purpose, rounds=rounds, **settings)


class Bins:
    """Counts records, and how many are in each of four bins: record i in bin i mod 4.

    Args:
        count: The number of records.
        failing: Records for which it raises.
        cells: What records have in place of that, by position.
    """

    def __init__(
        self,
        count: int,
        *,
        failing: Collection[int] = (),
        cells: dict[int, tuple[list[int], list[float]]] | None = None,
    ) -> None:
        self._count = count
        self._failing = failing
        self._cells = cells or {}
        self.calls: list[list[int]] = []
        self.values: list[Tensor] = []

    def __len__(self) -> int:
        return self._count

    def require(self, request: Request) -> None:
        if request.size > 5:
            raise InputError(f"{request.size} cells are not five")

    def cells(self, request: Request, values: Tensor, rows: NDArray[np.int64]) -> Cells:
        self.calls.append(rows.tolist())
        self.values.append(values)
        if set(rows.tolist()) & set(self._failing):
            raise RuntimeError("a record")
        index = np.column_stack([np.zeros_like(rows), 1 + rows % 4, np.full_like(rows, NO_CELL)])
        value = np.column_stack([np.ones(len(rows)), np.ones(len(rows)), np.full(len(rows), np.nan)])
        for place, row in enumerate(rows.tolist()):
            if row in self._cells:
                index[place], value[place] = self._cells[row]
        return Cells(index, value)


def request_silo(
    name: str,
    public: PublicPlan,
    count: int = 12,
    *,
    source: Bins | None = None,
    held_out: NDArray[np.bool_] | None = None,
    account: Account | None = None,
    epsilon: float | NDArray[np.float64] = 20.0,
    policy: Policy | None = None,
) -> Silo:
    """A silo that answers requests of both purposes."""
    bins = Bins(count) if source is None else source
    return Silo(
        name,
        make_records(count),
        BudgetTable(make_ids(count, name), np.broadcast_to(np.asarray(epsilon, dtype=np.float64), (count,)).copy()),
        policy=replace(Policy.of(public), max_runs=9, lifetime_delta=0.1) if policy is None else policy,
        account=account,
        measured={"statistics": bins} if held_out is None else {"statistics": bins, "evaluation": bins},
        held_out=held_out,
    )
