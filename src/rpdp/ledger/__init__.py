"""The accounts of a silo's records: what is reserved, charged and left.

`Ledger` and what belongs to it load on first use: they need apsw and cryptography, simulations do not.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rpdp.ledger.account import Account, AccountStatus, Charge, RunStatus
from rpdp.ledger.accountant import BudgetAccountant
from rpdp.ledger.memory import MemoryAccount

if TYPE_CHECKING:
    from rpdp.ledger.actions import Action as Action
    from rpdp.ledger.chain import PublicHead as PublicHead
    from rpdp.ledger.ledger import Ledger as Ledger
    from rpdp.ledger.lock import LedgerInUseError as LedgerInUseError
    from rpdp.ledger.steward import StewardKey as StewardKey
    from rpdp.ledger.steward import StewardPublicKey as StewardPublicKey

_HOME_OF = {
    "Action": "rpdp.ledger.actions",
    "Ledger": "rpdp.ledger.ledger",
    "LedgerInUseError": "rpdp.ledger.lock",
    "PublicHead": "rpdp.ledger.chain",
    "StewardKey": "rpdp.ledger.steward",
    "StewardPublicKey": "rpdp.ledger.steward",
}

__all__ = ["Account", "AccountStatus", "BudgetAccountant", "Charge", "MemoryAccount", "RunStatus", *_HOME_OF]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'rpdp.ledger' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value
