"""The accounts of the records in a silo's table, with all that decides what a run may take of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rpdp.display import counts_repr
from rpdp.ledger.record_accounts import RecordAccounts

if TYPE_CHECKING:
    from collections.abc import Callable

    from rpdp.budgets import RecordBudgets
    from rpdp.ledger.record_accounts import BookedFor
    from rpdp.planning import Allowance, Allowances


def _nothing_booked(_: Allowance) -> BookedFor:
    return {}


@dataclass(frozen=True)
class SiloAccounts:
    """Sensitive, all of it.

    Attributes:
        accounts: The accounts, in the order of the table.
        stated: The budgets of the table: the smaller of them and those in force count.
        common_delta: The δ of records that have none of their own.
        booked_for: What runs for the purposes with reserved shares have booked.
    """

    accounts: RecordAccounts
    stated: RecordBudgets
    common_delta: float
    booked_for: Callable[[Allowance], BookedFor] = _nothing_booked

    __repr__ = counts_repr

    def allowances(self, allowance: Allowance) -> Allowances:
        """What a run with this allowance may take of each record."""
        return self.accounts.allowances(allowance, self.common_delta, self.stated, self.booked_for(allowance))

    def unused(self) -> SiloAccounts:
        """The same accounts as if nothing had ever been booked, and nobody had withdrawn."""
        kept = self.accounts
        fresh = RecordAccounts(kept.epsilon, kept.delta, kept.order, terms=kept.terms)
        return SiloAccounts(fresh, self.stated, self.common_delta)
