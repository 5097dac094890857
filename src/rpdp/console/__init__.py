"""The steward's console: pages on what a silo's ledger proves, for this machine alone. It shows; it decides nothing.

Every number comes from `rpdp.ledger`, every action goes through the functions of `rpdp ledger`, and no page loads
anything from anywhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpdp.lazy import lazy_names

if TYPE_CHECKING:
    from rpdp.console.console_server import ConsoleServer as ConsoleServer
    from rpdp.console.console_silo import ConsoleSilo as ConsoleSilo

_HOME_OF = {
    "ConsoleServer": "rpdp.console.console_server",
    "ConsoleSilo": "rpdp.console.console_silo",
}

__all__ = [*_HOME_OF]

__getattr__ = lazy_names(__name__, _HOME_OF)
