"""Ask silos an inquiry, and read what they release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from rpdp.display import counts_repr
from rpdp.errors import InputError
from rpdp.federation.released_sums import ReleasedSums, release_sums
from rpdp.statistics.estimate import LEVEL, NoisyEstimate
from rpdp.statistics.noisy_sums import NoisySums
from rpdp.training import Records

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rpdp.federation import Silo
    from rpdp.planning import PublicPlan
    from rpdp.statistics.inquiry import Inquiry


@dataclass(frozen=True)
class Answers:
    """What silos answered to an inquiry. The promise covers it: anything may be computed from it.

    Attributes:
        inquiry: What was asked.
        released: The noisy sums of every silo.
    """

    inquiry: Inquiry
    released: ReleasedSums

    __repr__ = counts_repr

    def estimates(self, *, level: float = LEVEL, silo: str | None = None) -> list[NoisyEstimate]:
        """The numbers with their intervals, over all silos or of one: its release is its own, and costs nothing more.

        Args:
            level: How often intervals cover, at least.
            silo: The name of one silo.
        """
        released = self.released.by_silo
        if silo is not None and silo not in released:
            raise InputError(f"silo={silo!r} was not asked; these were: {', '.join(self.released.silos)}")
        chosen = released if silo is None else {silo: released[silo]}
        return self.inquiry.estimates(NoisySums.of(self.released.public, chosen), level=level)


def ask(
    inquiry: Inquiry,
    public: PublicPlan,
    silos: Sequence[Silo],
    *,
    seed: int | None = None,
    run: str = "",
    heads: str | Path | None = None,
) -> Answers:
    """Ask all silos, in this process.

    With a seed it is **a simulation**, which protects nobody. Without one it is real, and silos need production ledgers
    (see `release_sums`).

    Args:
        inquiry: The statistics.
        public: The plan, with the request of this inquiry: `RequestTerms.plan`.
        silos: Silos that answer statistics (`Silo(measured={"statistics": ColumnSource(...)})`).
        seed: Fixes the noise of a simulation.
        run: The id of a real run.
        heads: The file in which a real run keeps the latest public head of every ledger.
    """
    if public.request != inquiry.request:
        raise InputError("the plan is for another request than this inquiry; make it with RequestTerms.plan")
    return Answers(inquiry, release_sums(public, silos, seed=seed, run=run, heads=heads))


def bare_records(count: int) -> Records:
    """Records that hold nothing: statistics read columns, and no model sees these."""
    return Records.of(torch.zeros(count, 1), torch.zeros(count))
