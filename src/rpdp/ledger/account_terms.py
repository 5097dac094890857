"""The terms on which records get their accounts in a silo: the kind of account, the lifetime δ, silos per person."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rpdp.accounting.renyi_filter import order_numbers
from rpdp.budgets import ACCOUNT_KINDS, MOST_SILOS_PER_PERSON, AccountKind
from rpdp.checks import require_choice, require_count, require_delta
from rpdp.errors import BudgetError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.budgets import BudgetTable, RecordBudgets


@dataclass(frozen=True)
class AccountTerms:
    """Fixed when a ledger is created.

    Attributes:
        account: The kind of account of new records.
        lifetime_delta: The δ over all runs for records without a δ of their own.
        silos_per_person: In how many silos of the federation a person may ever have an account. If it is k > 1, a sum
            account holds (ε/k, δ/k), and a Rényi account books every divergence k times.
    """

    account: AccountKind
    lifetime_delta: float
    silos_per_person: int = 1

    def __post_init__(self) -> None:
        require_choice("account", self.account, ACCOUNT_KINDS)
        require_delta("lifetime_delta", self.lifetime_delta)
        require_count("silos_per_person", self.silos_per_person, most=MOST_SILOS_PER_PERSON)

    @property
    def own_delta(self) -> float:
        """The lifetime δ that this silo holds of a record without a δ of its own."""
        return self.lifetime_delta / self.parts

    @property
    def parts(self) -> int:
        """Into how many parts a budget is split among silos; this silo holds one of them."""
        return self.silos_per_person if self.account == "sums" else 1

    @property
    def joint_delta(self) -> float | None:
        """The δ at which all silos of a person enrol their Rényi accounts; None if a person is in one silo alone."""
        return self.own_delta if self.silos_per_person > 1 else None

    def per_record(self, budgets: BudgetTable) -> RecordBudgets:
        """What this silo holds of each record's budget, after splits among silos and among a person's records."""
        if self.silos_per_person > 1 and self.account == "renyi":
            self._require_joint(budgets)
        return budgets.per_record(self.lifetime_delta, parts=self.parts)

    def orders(self, allowed: RecordBudgets) -> NDArray[np.uint8]:
        """The number of the order at which each record is enrolled; 0 for sum accounts."""
        if self.account == "sums":
            return np.zeros(len(allowed.epsilon), dtype=np.uint8)
        assert allowed.delta is not None
        return order_numbers(allowed.epsilon, allowed.delta)

    def _require_joint(self, budgets: BudgetTable) -> None:
        """Refuse tables for which Rényi accounts of several silos would not add up to a person's budget."""
        if budgets.delta is not None and (budgets.delta != self.lifetime_delta).any():
            raise BudgetError(
                f"silos_per_person={self.silos_per_person} needs one δ for all Rényi accounts of a person, but the "
                f"table states others than lifetime_delta={self.lifetime_delta:g}; leave the delta column out, or use "
                "account='sums'"
            )
        if (budgets.subject_sizes() > 1).any():
            raise BudgetError(
                f"silos_per_person={self.silos_per_person} with several records of one person in this silo needs "
                "account='sums' in all silos: Rényi accounts cannot be divided among records and silos at once"
            )
