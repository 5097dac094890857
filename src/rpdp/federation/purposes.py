"""Which of a silo's records serve runs of which purpose, and what code answers them.

| purpose | records | what else a silo needs |
|---|---|---|
| training | all that are not held out | a model |
| evaluation | those that are held out | code that measures, and a model |
| statistics | all | code that measures |
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from rpdp.errors import InputError, PrivacyRefusal, Reason
from rpdp.federation.exact_sums import require_exact
from rpdp.federation.sums import SumsWork
from rpdp.planning import Status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray
    from torch import Tensor

    from rpdp.federation.cells import CellSource
    from rpdp.planning import PublicPlan, Purpose, SiloPlan


class Purposes:
    """What one silo does with its records.

    Args:
        name: The silo.
        records: How many records it has.
        measured: Its code that answers requests, by purpose.
        held_out: Which records are kept for evaluation; None if it takes part in none.
    """

    def __init__(
        self,
        name: str,
        records: int,
        measured: Mapping[Purpose, CellSource] | None,
        held_out: NDArray[np.bool_] | None,
    ) -> None:
        self._name = name
        self._records = records
        self._measured = dict(measured or {})
        self._held_out = held_out
        for purpose, source in self._measured.items():
            if purpose not in ("evaluation", "statistics"):
                raise InputError(
                    f"silo {name}: measured names {purpose!r}; only evaluation and statistics are measured"
                )
            if len(source) != records:
                raise InputError(f"silo {name}: the code for {purpose} has {len(source):,} of {records:,} records")
        if held_out is not None and (held_out.dtype != np.bool_ or held_out.shape != (records,)):
            raise InputError(
                f"silo {name}: held_out is {held_out.dtype} of shape {held_out.shape}; it must say True or False for "
                f"each of the {records:,} records"
            )
        if held_out is None and "evaluation" in self._measured:
            raise InputError(f"silo {name}: evaluation needs held_out, which says what records are kept for it")

    def require(self, public: PublicPlan) -> None:
        """Refuse a plan that this silo has no code for. What it has is the same whatever its records hold."""
        if public.request is None:
            return
        try:
            self.source(public.purpose).require(public.request)
            require_exact(public.request, public.noise_multiplier, self._records)
        except InputError as error:
            raise PrivacyRefusal(
                f"silo {self._name}: the request is refused: {error}; nothing was reserved", Reason.POLICY
            ) from None

    @property
    def answered(self) -> tuple[Purpose, ...]:
        """The purposes whose requests it answers."""
        return tuple(sorted(self._measured))

    def source(self, purpose: Purpose) -> CellSource:
        """The code that answers requests of a purpose; refused if there is none."""
        if purpose not in self._measured:
            raise InputError(f"purpose={purpose!r} is not one that it answers")
        return self._measured[purpose]

    def work(self, public: PublicPlan, model: Tensor | None) -> SumsWork:
        """What the rounds of a plan with a request do here; `model` is the flat model of an evaluation."""
        assert public.request is not None
        announced = torch.zeros(0) if model is None or public.purpose == "statistics" else model
        rows = np.flatnonzero(self.serves(public.purpose))
        return SumsWork(self._measured[public.purpose], public.request, rows, announced)

    def limited(self, plan: SiloPlan, *, is_new: bool) -> SiloPlan:
        """Return the plan without the records that serve other purposes. In a new plan they reserve nothing."""
        serves = self.serves(plan.public.purpose)
        if serves.all():
            return plan
        status = np.where(serves, plan.status, np.uint8(Status.OTHER_PURPOSE))
        limited = replace(plan, q=np.where(serves, plan.q, 0.0), status=status)
        if not is_new:  # what was reserved stays reserved
            return limited
        return replace(limited, cost=np.where(serves, plan.cost, 0.0), delta=np.where(serves, plan.delta, 0.0))

    def serves(self, purpose: Purpose) -> NDArray[np.bool_]:
        """Which records serve runs of this purpose."""
        if self._held_out is None or purpose == "statistics":
            return np.ones(self._records, dtype=np.bool_)
        return self._held_out if purpose == "evaluation" else ~self._held_out
