"""The hash chain over every event of a ledger, and a second chain over its public events.

The head of each event is SHA-256 over the previous head and the event's own fields as canonical JSON. The second chain
covers what the server may know (privacy.md, rule 14): admissions, charges, releases, cancellations, and which lost
ledger this one succeeds, with nothing derived from a record. Private events leave no trace in it, not even in its
count.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rpdp.errors import InputError, PrivacyRefusal
from rpdp.ledger.store.schema import DAMAGED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rpdp.ledger.store.database import Database

GENESIS = hashlib.sha256(b"rpdp-ledger/1").digest()
PRIVATE_KINDS = ("create", "add", "enrol", "withdraw", "lower", "raise", "reconsent", "prune")
RUN_KINDS = ("admit", "charge", "release", "cancel")
SUCCEED = "succeed"
"""The second event of a successor: which ledger it follows. It is public, and of no run."""

PUBLIC_KINDS = (SUCCEED, *RUN_KINDS)

_END = 100
"""How many of the last events are checked whenever a ledger is opened."""

_COLUMNS = "seq, kind, run, round, joined, payload, head, public_count, public_head"


@dataclass(frozen=True)
class Event:
    """One event as stored in the file. `payload` is canonical JSON."""

    seq: int
    kind: str
    run: str
    round: int
    joined: int
    payload: str
    head: bytes
    public_count: int | None
    public_head: bytes | None

    @property
    def facts(self) -> dict[str, Any]:
        """The decoded payload."""
        facts = json.loads(self.payload)
        if not isinstance(facts, dict):
            raise PrivacyRefusal(f"the ledger is damaged: event {self.seq} states no facts; {DAMAGED}")
        return facts


@dataclass(frozen=True)
class PublicHead:
    """The head of a ledger's public events, which a server keeps and countersigns.

    Attributes:
        ledger: The id of the ledger, drawn at random when it was created.
        count: The number of public events so far.
        head: The head of their chain, in hexadecimal.
    """

    ledger: str
    count: int
    head: str

    def to_json(self) -> str:
        """Return the head as canonical JSON."""
        return canonical(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> PublicHead:
        """Parse the head from JSON."""
        try:
            values = json.loads(text)
            head = cls(str(values["ledger"]), int(values["count"]), str(values["head"]))
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"not the head of a ledger: {type(error).__name__}: {error}") from None
        return head


def kinds_for(run: str) -> tuple[str, ...]:
    """Return the kinds that an event of this run may have; those of no run for the empty name."""
    return RUN_KINDS if run else (*PRIVATE_KINDS, SUCCEED)


def canonical(value: object) -> str:
    """Write a value as JSON in the one form that is hashed and signed."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def head_after(previous: bytes, event: Event) -> bytes:
    """Return the head of the chain after this event."""
    fields = [event.seq, event.kind, event.run, event.round, event.joined, event.payload]
    return hashlib.sha256(previous + canonical(fields).encode()).digest()


def public_head_after(previous: bytes, event: Event) -> bytes:
    """Return the head of the public chain after this event. Only public fields enter it."""
    facts = event.facts
    fields: dict[str, Any] = {"kind": event.kind, "run": event.run}
    if event.kind == "admit":
        fields |= {"plan": facts["public_plan"]["fingerprint"], "rounds": facts["public_plan"]["schedule"]["rounds"]}
    elif event.kind == "charge":
        # Without the coin: a round that was joined and failed must look like a round that was sat out. Without the
        # rounds that were drawn with the first charge, too.
        fields |= {"round": event.round}
    elif event.kind == "cancel":
        # Who cancelled, and the reason if the steward gave one: a reason is public by definition. Without totals.
        fields |= {"by": facts["by"], "reason": facts["reason"]}
    elif event.kind == SUCCEED:
        fields |= {"predecessor": facts["predecessor"]}
    else:
        fields |= {"round": event.round, "sha256": facts["sha256"]}
    return hashlib.sha256(previous + canonical(fields).encode()).digest()


class Chain:
    """The end of the chain in a database. The caller of `append` opens the transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.reload()

    def reload(self) -> None:
        """Load the state from the file: when opening it, and after a transaction was rolled back."""
        self.seq, self.head, self.public_count, self.public_head = 0, GENESIS, 0, GENESIS
        for seq, head in self._database.rows("SELECT seq, head FROM event ORDER BY seq DESC LIMIT 1"):
            self.seq, self.head = seq, head
        public = "SELECT public_count, public_head FROM event WHERE public_count IS NOT NULL ORDER BY public_count DESC"
        for count, head in self._database.rows(f"{public} LIMIT 1"):
            self.public_count, self.public_head = count, head

    def append(
        self, kind: str, facts: Mapping[str, Any], *, run: str = "", number: int = 0, joined: bool = False
    ) -> int:
        """Append an event and return its number in the chain."""
        if kind not in kinds_for(run):
            raise InputError(f"kind={kind!r} must be one of {kinds_for(run)}")
        plain = Event(self.seq + 1, kind, run, number, int(joined), canonical(dict(facts)), b"", None, None)
        head = head_after(self.head, plain)
        count, public = None, None
        if kind in PUBLIC_KINDS:
            count, public = self.public_count + 1, public_head_after(self.public_head, plain)
        self._database.rows(
            f"INSERT INTO event({_COLUMNS}) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (plain.seq, kind, run, number, int(joined), plain.payload, head, count, public),
        )
        self.seq, self.head = plain.seq, head
        if count is not None and public is not None:
            self.public_count, self.public_head = count, public
        return plain.seq

    def events(self, *kinds: str, run: str | None = None) -> Iterator[Event]:
        """Iterate over the events in order, optionally only those of some kinds or of one run."""
        terms, values = ["1"], list[object](kinds)
        if kinds:
            terms.append(f"kind IN ({', '.join('?' * len(kinds))})")
        if kinds and run is None and not {"charge", "release", "cancel"}.intersection(kinds):
            terms.append("(run = '' OR kind = 'admit')")  # lets SQLite use the index without rounds
        if run is not None:
            terms.append("run = ? AND run <> ''")
            values.append(run)
        query = f"SELECT {_COLUMNS} FROM event WHERE {' AND '.join(terms)} ORDER BY seq"  # noqa: S608
        for row in self._database.each(query, values):
            yield Event(*row)

    def require_end(self) -> None:
        """Refuse a chain whose last events do not match their heads. `verify` checks all of them."""
        query = f"SELECT {_COLUMNS} FROM event ORDER BY seq DESC LIMIT {_END}"  # noqa: S608
        events = [Event(*row) for row in self._database.rows(query)][::-1]
        for before, event in itertools.pairwise(events):
            if head_after(before.head, event) != event.head:
                raise PrivacyRefusal(f"the ledger is damaged: event {event.seq} was changed; {DAMAGED}")

    def require(self, acknowledged: PublicHead, ledger: str) -> None:
        """Refuse a ledger that is older than an acknowledged head, or has a different history."""
        if acknowledged.ledger != ledger:
            raise PrivacyRefusal(
                f"the acknowledged head belongs to ledger {acknowledged.ledger[:12]}…, but this is ledger "
                f"{ledger[:12]}…; use the right one"
            )
        if acknowledged.count > self.public_count:
            raise PrivacyRefusal(
                f"this ledger is older than its acknowledged state: it has {self.public_count:,} public events, but "
                f"{acknowledged.count:,} were acknowledged. A restored backup would forget charges; {ROLLED_BACK}"
            )
        if self.public_head_at(acknowledged.count).hex() != acknowledged.head:
            raise PrivacyRefusal(
                f"this ledger's history differs from the acknowledged one at public event {acknowledged.count:,}; "
                f"{ROLLED_BACK}"
            )

    def public_head_at(self, count: int) -> bytes:
        """Return the head of the public chain after `count` events; empty if there are fewer."""
        if count == 0:
            return GENESIS
        for (head,) in self._database.rows("SELECT public_head FROM event WHERE public_count = ?", (count,)):
            return bytes(head)
        return b""


ROLLED_BACK = (
    "restore the latest file. If it is lost, `rpdp ledger recover` makes a successor from the last export, in which "
    "all that may have been spent is booked"
)
