"""The accounts of a silo's records: what is reserved, charged and left."""

from __future__ import annotations

from rpdp.ledger.account import Account, AccountStatus, Charge, RunStatus
from rpdp.ledger.accountant import BudgetAccountant
from rpdp.ledger.memory import MemoryAccount

__all__ = ["Account", "AccountStatus", "BudgetAccountant", "Charge", "MemoryAccount", "RunStatus"]
