"""What one run may take of each record: the allowance of the silo's policy, applied to what is left in the accounts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from rpdp.accounting.renyi_filter import lifetime_divergence, order_numbers
from rpdp.checks import require_choice, require_fraction, require_positive
from rpdp.display import counts_repr
from rpdp.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.planning.public_plan import PublicPlan

Purpose = Literal["training", "evaluation", "statistics"]
PURPOSES: tuple[Purpose, ...] = get_args(Purpose)


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """How much of a record's lifetime budget one run may take.

    Args:
        share: The largest share of the lifetime budget: of ε and δ in a sum account, of B in a Rényi account.
        purpose: What the run is for.
        max_epsilon: The largest ε of the run alone, at the δ of its plan; None for no such limit.
        reserved: Shares of the lifetime budget that are kept for purposes. A run for another purpose cannot take them.
    """

    share: float
    purpose: Purpose = "training"
    max_epsilon: float | None = None
    reserved: Mapping[Purpose, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_fraction("share", self.share)
        require_choice("purpose", self.purpose, PURPOSES)
        if self.max_epsilon is not None:
            require_positive("max_epsilon", self.max_epsilon)
        object.__setattr__(self, "reserved", checked_reserves(self.reserved))

    @property
    def kept_for_others(self) -> dict[Purpose, float]:
        """The reserved shares that this run cannot take."""
        return {purpose: share for purpose, share in self.reserved.items() if purpose != self.purpose}


def checked_reserves(reserved: Mapping[Purpose, float]) -> dict[Purpose, float]:
    """Return reserved shares by purpose; together they are at most the whole budget."""
    if not isinstance(reserved, Mapping):
        raise InputError(f"reserved={reserved!r} must map purposes ({', '.join(PURPOSES)}) to shares")
    for purpose, share in reserved.items():
        require_choice("reserved", purpose, PURPOSES)
        require_fraction(f"reserved.{purpose}", share)
    if sum(reserved.values()) > 1.0 + 1e-9:
        raise InputError(f"reserved={dict(reserved)} adds up to more than the whole budget (1)")
    return dict(reserved)


WHOLE = Allowance(share=1.0)
"""All that is left: for simulations of one run, and to show what is left."""


@dataclass(frozen=True)
class Allowances:
    """What one run may take of each record, in the unit of its account. Arrays are in the order of the table.

    Attributes:
        lifetime: The lifetime ε in force, by which records are grouped and shown.
        amount: What the run may take: ε of a sum account, ρ (as booked) of a Rényi account.
        delta: The δ at which a record with a sum account may be priced; infinite if it states none.
        order: The number of the order of a Rényi account (`accounting.renyi_filter.ORDERS`); 0 for a sum account.
        common_delta: The δ of records with a sum account and no δ of their own: public, from the silo's policy. None
            means the δ of the plan.
        max_epsilon: The largest ε of the run alone; None for no such limit.
        silos_per_person: A Rényi account books the divergence of a run this many times.
    """

    lifetime: NDArray[np.float64]
    amount: NDArray[np.float64]
    delta: NDArray[np.float64]
    order: NDArray[np.uint8]
    common_delta: float | None = None
    max_epsilon: float | None = None
    silos_per_person: int = 1

    __repr__ = counts_repr

    @classmethod
    def of_sums(cls, epsilon: NDArray[np.float64], delta: NDArray[np.float64] | None = None) -> Allowances:
        """All of these budgets, in sum accounts: for one run by itself."""
        own = np.full(len(epsilon), np.inf) if delta is None else delta
        return cls(epsilon, epsilon, own, np.zeros(len(epsilon), dtype=np.uint8))

    @classmethod
    def of_new_accounts(cls, public: PublicPlan, epsilon: NDArray[np.float64]) -> Allowances:
        """What a run of this plan may take of unused accounts with these lifetime budgets: its share.

        Of a person who may have accounts in k silos, a sum account holds a k-th part, as in `AccountTerms`.
        """
        share = 1.0 if public.share is None else public.share
        delta = public.delta if public.lifetime_delta is None else public.lifetime_delta
        if public.account != "renyi":
            part = share / public.silos_per_person
            own = np.full(len(epsilon), part * delta)
            return cls(epsilon, part * epsilon, own, np.zeros(len(epsilon), np.uint8), common_delta=part * delta)
        whole = np.full(len(epsilon), delta)
        order = order_numbers(epsilon, whole)
        joint = None if public.silos_per_person == 1 else delta
        amount = share * lifetime_divergence(epsilon, whole, order, joint)
        return cls(epsilon, amount, np.zeros(len(epsilon)), order, silos_per_person=public.silos_per_person)

    def rows(self, index: NDArray[np.bool_] | NDArray[np.int64]) -> Allowances:
        """The allowances of some records."""
        return replace(
            self,
            lifetime=self.lifetime[index],
            amount=self.amount[index],
            delta=self.delta[index],
            order=self.order[index],
        )

    @property
    def epsilon(self) -> NDArray[np.float64]:
        """What the run may take of sum accounts; NaN for Rényi accounts, of which no ε can be split off."""
        return np.where(self.order == 0, self.amount, np.nan)
