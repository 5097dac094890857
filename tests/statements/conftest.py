from __future__ import annotations

from tests.ledger.conftest import memory

__all__ = ["memory"]
