"""Accounts of records as arrays: what each allows for life, what is booked, and what one run may take.

Both kinds of account (privacy.md, section 7) count whole units of one amount, so that sums are exact: ε in a sum
account, which also counts δ, and the divergence ρ at a fixed order in a Rényi account, whose lifetime budget is B.
Memory accounts, ledgers, their overview and their verification all use this one class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpdp.accounting.renyi_filter import lifetime_divergence
from rpdp.budgets.validation import LARGEST_EPSILON
from rpdp.display import counts_repr
from rpdp.errors import PrivacyRefusal
from rpdp.ledger.store.fixed_point import (
    DELTA_SHIFT,
    DELTA_TOLERANCE,
    EPSILON_SHIFT,
    amounts,
    fits_amount,
    fits_delta,
    left_of,
    rounded_up,
)
from rpdp.planning import WHOLE, Allowance, Allowances

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rpdp.budgets import RecordBudgets
    from rpdp.ledger.account_terms import AccountTerms
    from rpdp.ledger.store.fixed_point import FloatArray, UnitArray
    from rpdp.planning import Purpose, SiloPlan

    BookedFor = Mapping[Purpose, tuple[UnitArray, UnitArray]]
    """What runs of some purposes have booked: units of the amount, and of δ."""


class RecordAccounts:
    """The accounts of some records, in a fixed order.

    Attributes:
        epsilon: The lifetime ε in force.
        delta: The lifetime δ in force.
        order: The number of the order of a Rényi account; 0 for a sum account.
        booked: What is booked: units of ε, or of ρ.
        booked_delta: Units of δ that are booked; 0 in a Rényi account.
        withdrawn: Who has withdrawn.
        terms: The terms on which they were opened; None for one silo by itself.
    """

    def __init__(
        self,
        epsilon: FloatArray,
        delta: FloatArray,
        order: NDArray[np.uint8],
        *,
        terms: AccountTerms | None = None,
    ) -> None:
        size = len(epsilon)
        self.epsilon = epsilon
        self.delta = delta
        self.order = order
        self.terms = terms
        self.booked: UnitArray = np.zeros(size, dtype=np.int64)
        self.booked_delta: UnitArray = np.zeros(size, dtype=np.int64)
        self.withdrawn = np.zeros(size, dtype=bool)

    __repr__ = counts_repr

    def __len__(self) -> int:
        return len(self.epsilon)

    @property
    def silos_per_person(self) -> int:
        """In how many silos a person may have an account."""
        return 1 if self.terms is None else self.terms.silos_per_person

    def lifetime(self, stated: RecordBudgets | None = None) -> tuple[FloatArray, FloatArray]:
        """The lifetime budgets: ε or B, and δ. With `stated`, of the smaller of the budget in force and that one."""
        return lifetime_budgets(*self._in_force(stated), self.order, self.terms)

    def _in_force(self, stated: RecordBudgets | None) -> tuple[FloatArray, FloatArray]:
        if stated is None:
            return self.epsilon, self.delta
        assert stated.delta is not None
        return np.minimum(self.epsilon, stated.epsilon), np.minimum(self.delta, stated.delta)

    def left(self) -> tuple[FloatArray, FloatArray]:
        """What is left of each amount, and of δ; nothing of records that have withdrawn."""
        everything = self.allowances(WHOLE, 0.0)
        return everything.amount, everything.delta

    @property
    def share_used(self) -> FloatArray:
        """The share of the lifetime budget that is booked: of ε, or of B; 1 if there is no budget."""
        budget, _ = self.lifetime()
        used = np.ones(len(self))
        return np.divide(amounts(self.booked, EPSILON_SHIFT), budget, out=used, where=budget > 0.0)

    def allowances(
        self,
        allowance: Allowance,
        lifetime_delta: float,
        stated: RecordBudgets | None = None,
        booked_for: BookedFor | None = None,
    ) -> Allowances:
        """What one run may take of each record: a share of its lifetime budget, and no more than is left of it.

        Args:
            allowance: The allowance of the run.
            lifetime_delta: The δ of records that have none of their own; a share of it is the common δ of the run.
            stated: The budgets of the silo's own table: the smaller of them and those in force count.
            booked_for: What runs for the purposes with reserved shares have booked.
        """
        budget, delta = self.lifetime(stated)
        amount = left_of(budget, self.booked, EPSILON_SHIFT)
        own_delta = left_of(delta, self.booked_delta, DELTA_SHIFT)
        for purpose, share in allowance.kept_for_others.items():
            booked, booked_delta = (booked_for or {}).get(purpose, (self.booked[:0], self.booked_delta[:0]))
            amount = _without(amount, share * budget, booked, EPSILON_SHIFT)
            own_delta = _without(own_delta, share * delta, booked_delta, DELTA_SHIFT)
        amount = np.where(self.withdrawn, 0.0, np.minimum(amount, allowance.share * budget))
        own_delta = np.where(self.withdrawn, 0.0, np.minimum(own_delta, allowance.share * delta))
        return Allowances(
            self._in_force(stated)[0],
            amount,
            own_delta,
            self.order,
            common_delta=allowance.share * lifetime_delta,
            max_epsilon=allowance.max_epsilon,
            silos_per_person=self.silos_per_person,
        )

    def require(self, plan: SiloPlan, allowance: Allowance, booked_for: BookedFor | None = None) -> None:
        """Refuse a plan unless it fits into what the allowance gives of every account, at every record's own order."""
        drawn = plan.q > 0.0
        allowed = self.allowances(allowance, 0.0, None, booked_for)
        over = drawn & ~(fits_amount(plan.cost, self.lifetime()[0], self.booked) & (plan.cost <= allowed.amount))
        over |= drawn & ~fits_delta(plan.delta, self.delta, self.booked_delta)
        over |= drawn & (plan.delta > allowed.delta * (1.0 + 2.0 * DELTA_TOLERANCE))
        over |= drawn & self.withdrawn
        if over.any():
            raise PrivacyRefusal(
                f"{int(over.sum()):,} records would go over their budgets or their allowance for one run, or have "
                "withdrawn; nothing was reserved. Make the plan from what is left (`left`) immediately before "
                "reserving it"
            )
        other = drawn & (plan.order != self.order)
        if other.any():
            raise PrivacyRefusal(
                f"{int(other.sum()):,} records are planned for another kind of account, or another order, than they "
                "were enrolled with; nothing was reserved. The order of an account never changes"
            )

    def book(self, plan: SiloPlan, sign: int = 1) -> None:
        """Add a plan that was reserved, or subtract one that was cancelled."""
        drawn = plan.q > 0.0
        # Methods that promise nothing state an infinite cost, in simulations: it takes more than any budget.
        cost = np.minimum(plan.cost, LARGEST_EPSILON)
        self.booked += sign * np.where(drawn, rounded_up(cost, EPSILON_SHIFT), 0)
        self.booked_delta += sign * np.where(drawn, rounded_up(plan.delta, DELTA_SHIFT), 0)

    @property
    def is_off(self) -> NDArray[np.bool_]:
        """Which records must not be drawn in any run: withdrawn, or booked beyond a budget that was lowered."""
        return self.withdrawn | is_overbooked(*self.lifetime(), self.booked, self.booked_delta)


def lifetime_budgets(
    epsilon: FloatArray, delta: FloatArray, order: NDArray[np.uint8], terms: AccountTerms | None
) -> tuple[FloatArray, FloatArray]:
    """What an account may book for life: ε and δ of a sum account, B and no δ of a Rényi account."""
    rows = order > 0
    if not rows.any():
        return epsilon, delta
    budget, own_delta = epsilon.copy(), delta.copy()
    positive = rows & (delta > 0.0)  # without δ there is no Rényi account: nothing may be booked
    budget[rows], own_delta[rows] = 0.0, 0.0
    joint_delta = None if terms is None else terms.joint_delta
    budget[positive] = lifetime_divergence(epsilon[positive], delta[positive], order[positive], joint_delta)
    return budget, own_delta


def is_overbooked(
    budget: FloatArray, delta: FloatArray, booked: UnitArray, booked_delta: UnitArray
) -> NDArray[np.bool_]:
    """Return where more is booked than the budget in force allows, beyond the rounding of a booking that fitted."""
    most_delta = rounded_up(np.minimum(delta * (1.0 + 2.0 * DELTA_TOLERANCE), 1.0), DELTA_SHIFT) + 1
    return (booked > rounded_up(budget, EPSILON_SHIFT)) | (booked_delta > most_delta)


def _without(left: FloatArray, reserved: FloatArray, booked: UnitArray, shift: int) -> FloatArray:
    """What is left besides a reserved share, of which some is booked already."""
    used = amounts(booked, shift) if booked.size else np.zeros(len(left))
    return np.maximum(left - np.maximum(reserved - used, 0.0), 0.0)
