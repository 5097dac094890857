"""The statement of succession: what a server must be shown before it accepts the successor of a lost ledger.

A server refuses a silo whose ledger is not the one that it knows, so a new ledger cannot hide what was spent. The way
back is visible on both sides: the successor's chain begins with the ledger that it succeeds, this statement shows that
to the server, and somebody there accepts it, by name and with a reason.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rpdp.errors import InputError
from rpdp.ledger.store.chain import GENESIS, SUCCEED, Event, PublicHead, canonical, public_head_after

if TYPE_CHECKING:
    from rpdp.ledger.ledger_base import LedgerBase

FORMAT = "rpdp-succession/1"


@dataclass(frozen=True)
class Succession:
    """Which ledger succeeds which. It holds nothing that a server may not know.

    Attributes:
        predecessor: The latest public head of the lost ledger that the successor was made from.
        successor: The first public head of the successor, a hash of that statement.
    """

    predecessor: PublicHead
    successor: PublicHead

    def __post_init__(self) -> None:
        event = Event(2, SUCCEED, "", 0, 0, canonical({"predecessor": asdict(self.predecessor)}), b"", None, None)
        if (self.successor.count, self.successor.head) != (1, public_head_after(GENESIS, event).hex()):
            raise InputError("the head of the successor is not that of a ledger which succeeds this predecessor")

    @classmethod
    def of(cls, ledger: LedgerBase) -> Succession:
        """Return what a ledger says of itself; refused unless it is a successor."""
        if ledger.predecessor is None:
            raise InputError(f"{ledger.files.database} succeeds no other ledger, so there is nothing to state")
        return cls(ledger.predecessor, PublicHead(ledger.id, 1, ledger.chain.public_head_at(1).hex()))

    def to_json(self) -> str:
        """Return the statement as JSON."""
        return canonical({"format": FORMAT, **asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> Succession:
        """Parse the statement; refused if it is not what a successor says of itself."""
        try:
            values = json.loads(text)
            if values["format"] != FORMAT:
                raise ValueError(f"its format is {values['format']!r}, not {FORMAT!r}")
            heads = [PublicHead.from_json(json.dumps(values[name])) for name in ("predecessor", "successor")]
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"not a statement of succession: {type(error).__name__}: {error}") from None
        return cls(*heads)
