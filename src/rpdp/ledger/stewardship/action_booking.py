"""Booking steward actions as events in the chain: each exactly once, even after a crash."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from rpdp.ledger.stewardship.actions import KINDS, Action

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rpdp.ledger.stewardship.steward_keys import StewardPublicKey
    from rpdp.ledger.store.chain import Chain
    from rpdp.ledger.store.database import Database


class ActionBook:
    """Books actions in the chain. The caller opens the transaction."""

    def __init__(self, database: Database, chain: Chain, steward: StewardPublicKey | None) -> None:
        self._database = database
        self._chain = chain
        self._steward = steward
        self.booked: set[str] = set()
        self.reload()

    def reload(self) -> None:
        """Load from the file which actions are booked."""
        self.booked = {name for (name,) in self._database.rows("SELECT action FROM change")}

    def book(self, actions: Sequence[Action]) -> None:
        """Append the events of these actions, except those that the file holds already."""
        for action in actions:
            action.require_signature(self._steward)
            if self._database.rows("SELECT 1 FROM change WHERE action = ?", (action.name,)):
                continue
            facts = {
                "action": action.name,
                "at": action.at,
                "reason": action.reason,
                "records": len(action.hashes),
                "signature": action.signature.hex(),
                "sha256": sha256(action.body).hexdigest(),
                **({} if action.actor is None else {"actor": action.actor}),
            }
            seq = self._chain.append(action.kind, facts)
            self._database.rows("INSERT INTO change VALUES(?, ?, ?)", (seq, action.name, action.body))

    def done(self, actions: Sequence[Action]) -> None:
        """Mark these actions as booked, after their transaction was committed."""
        self.booked.update(action.name for action in actions)

    def actions(self, before: int | None = None, after: int = 0) -> list[Action]:
        """Return the booked actions in order: all of them, or those before event `before` and after event `after`."""
        signatures = {event.seq: bytes.fromhex(event.facts["signature"]) for event in self._chain.events(*KINDS)}
        until = 2**62 if before is None else before
        rows = self._database.each(
            "SELECT seq, body FROM change WHERE seq > ? AND seq < ? ORDER BY seq", (after, until)
        )
        return [Action.from_body(body, signatures.get(seq, b"")) for seq, body in rows]
