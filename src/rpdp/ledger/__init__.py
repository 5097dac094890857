"""The accounts of a silo's records: what is reserved, what is charged and what is left.

`Ledger` and its companions load on first use. They need apsw and cryptography; simulations do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpdp.lazy import lazy_names
from rpdp.ledger.account import Account, AccountStatus, Charge, RunStatus
from rpdp.ledger.account_terms import AccountTerms
from rpdp.ledger.budget_accountant import BudgetAccountant
from rpdp.ledger.memory import MemoryAccount
from rpdp.ledger.unused_accounts import runs_that_fit, unused_accounts

if TYPE_CHECKING:
    from rpdp.ledger.ledger import Ledger as Ledger
    from rpdp.ledger.stewardship.actions import Action as Action
    from rpdp.ledger.stewardship.steward_keys import StewardKey as StewardKey
    from rpdp.ledger.stewardship.steward_keys import StewardPublicKey as StewardPublicKey
    from rpdp.ledger.store.chain import PublicHead as PublicHead
    from rpdp.ledger.store.writer_lock import LedgerInUseError as LedgerInUseError

_HOME_OF = {
    "Action": "rpdp.ledger.stewardship.actions",
    "Ledger": "rpdp.ledger.ledger",
    "LedgerInUseError": "rpdp.ledger.store.writer_lock",
    "PublicHead": "rpdp.ledger.store.chain",
    "StewardKey": "rpdp.ledger.stewardship.steward_keys",
    "StewardPublicKey": "rpdp.ledger.stewardship.steward_keys",
}

__all__ = [
    "Account",
    "AccountStatus",
    "AccountTerms",
    "BudgetAccountant",
    "Charge",
    "MemoryAccount",
    "RunStatus",
    "runs_that_fit",
    "unused_accounts",
    *_HOME_OF,
]

__getattr__ = lazy_names(__name__, _HOME_OF)
