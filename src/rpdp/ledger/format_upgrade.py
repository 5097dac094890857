"""Upgrading a ledger of an older format: new tables and a new number, in one transaction; no row is touched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rpdp.ledger.ledger_base import LedgerBase
from rpdp.ledger.store.schema import FORMAT

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class FormatUpgrade:
    """The format that a ledger had, and the one that it has now."""

    before: int
    after: int


class _LedgerToUpgrade(LedgerBase):
    """A ledger of any format, open as its writer. The checks of every writer come before this."""

    before: int = FORMAT

    def _begin_writing(self) -> None:
        self.before = self.database.format
        if self.before != FORMAT:
            with self._writing():
                self.database.upgrade()


def upgrade(path: str | Path) -> FormatUpgrade:
    """Make a ledger one of today's format, on disk when this returns. One of today's format is left as it is.

    Guarantee: events, accounts, heads and notes stay exactly as they were, and an interruption leaves the old file. As
    for every writer, it is refused while another process writes, or if the file was rolled back or changed.
    """
    with _LedgerToUpgrade(path, writable=True) as opened:
        return FormatUpgrade(opened.before, opened.database.format)
