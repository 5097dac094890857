"""The tables of a ledger file, and how arrays are stored in them.

The table `event` holds the chain and is authoritative. The other tables hold bulk data whose hash an event states
(`segment`, `enrolment`, `carried`, `class`, `class_account`, `member`, `change`, `outbox`), or sums that can be
recomputed from it (`total`). Bulk rows never change. Only updates are ever removed, by an event that records the
removal. Every reservation, and every cancellation, rewrites the totals, and its event states the hash of all of them.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import TYPE_CHECKING

import numpy as np

from rpdp.errors import PrivacyRefusal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

FORMAT = 4
"""Format 2 has the event "cancel", which older versions would not heed: they would charge a cancelled run. Format 3 has
Rényi accounts, and prices at a record's own δ. Format 4 has successors of lost ledgers, whose records begin with what
was booked before."""

OLDER_FORMATS = (1, 2, 3)
"""Their events mean today what they meant then, so they are read as they are. They lack the tables of later formats,
and are upgraded before they are written."""

APPLICATION_ID = 0x72706470
"""'rpdp' in ASCII: what `file` and SQLite see in the header."""

CHUNK = 65_536
"""Records per row of bulk data."""

_PROBE = 8192
"""Bytes compressed as a trial before the whole array is; hashes do not shrink."""

_ACCOUNT_TABLES = {
    "enrolment": (
        "CREATE TABLE enrolment(seq INTEGER NOT NULL, segment INTEGER NOT NULL, chunk INTEGER NOT NULL, "
        "orders BLOB NOT NULL, PRIMARY KEY(seq, segment, chunk)) STRICT"
    ),
    "class_account": (
        "CREATE TABLE class_account(seq INTEGER PRIMARY KEY, delta BLOB NOT NULL, orders BLOB NOT NULL) STRICT"
    ),
}
"""The order of each Rényi account, and the δ and order of each sampling class."""

_SUCCESSION_TABLES = {
    "carried": (
        "CREATE TABLE carried(seq INTEGER NOT NULL, segment INTEGER NOT NULL, chunk INTEGER NOT NULL, "
        "epsilon BLOB NOT NULL, delta BLOB NOT NULL, PRIMARY KEY(seq, segment, chunk)) STRICT"
    ),
}
"""What the records of a successor begin with, in units: what may have been spent in the ledger that was lost."""

LATER_TABLES = {3: _ACCOUNT_TABLES, 4: _SUCCESSION_TABLES}
"""The tables that came with each later format."""

FIRST_TABLES = {
    "event": (
        "CREATE TABLE event(seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, run TEXT NOT NULL, round INTEGER NOT NULL, "
        "joined INTEGER NOT NULL, payload TEXT NOT NULL, head BLOB NOT NULL, public_count INTEGER, public_head BLOB) "
        "STRICT"
    ),
    "segment": (
        "CREATE TABLE segment(seq INTEGER NOT NULL, chunk INTEGER NOT NULL, count INTEGER NOT NULL, "
        "first BLOB NOT NULL, hashes BLOB NOT NULL, epsilon BLOB NOT NULL, delta BLOB NOT NULL, subjects BLOB, "
        "PRIMARY KEY(seq, chunk)) STRICT"
    ),
    "total": (
        "CREATE TABLE total(segment INTEGER NOT NULL, chunk INTEGER NOT NULL, epsilon BLOB NOT NULL, "
        "delta BLOB NOT NULL, PRIMARY KEY(segment, chunk)) STRICT"
    ),
    "class": (
        "CREATE TABLE class(seq INTEGER PRIMARY KEY, q BLOB NOT NULL, cost BLOB NOT NULL, active BLOB NOT NULL) STRICT"
    ),
    "member": (
        "CREATE TABLE member(seq INTEGER NOT NULL, segment INTEGER NOT NULL, chunk INTEGER NOT NULL, "
        "classes BLOB NOT NULL, PRIMARY KEY(seq, segment, chunk)) STRICT"
    ),
    "change": "CREATE TABLE change(seq INTEGER PRIMARY KEY, action TEXT NOT NULL UNIQUE, body BLOB NOT NULL) STRICT",
    "outbox": "CREATE TABLE outbox(seq INTEGER PRIMARY KEY, payload BLOB NOT NULL) STRICT",
}
INDEXES = {
    "event_of_round": "CREATE UNIQUE INDEX event_of_round ON event(run, kind, round) WHERE run <> ''",
    "event_of_kind": "CREATE INDEX event_of_kind ON event(kind, seq) WHERE run = '' OR kind = 'admit'",
    "event_public": "CREATE UNIQUE INDEX event_public ON event(public_count) WHERE public_count IS NOT NULL",
}


def statements(file_format: int = FORMAT, after: int = 0) -> list[str]:
    """Return what makes the tables of a format, or only those that came after an earlier one."""
    first = [*FIRST_TABLES.values(), *INDEXES.values()] if after < 1 else []
    later = [made for since, tables in LATER_TABLES.items() if after < since <= file_format for made in tables.values()]
    return first + later


def pack(array: NDArray[np.generic]) -> bytes:
    """Return an array as bytes, compressed if that helps."""
    raw = np.ascontiguousarray(array).tobytes()
    worthwhile = len(zlib.compress(raw[:_PROBE], 1)) < 0.9 * min(_PROBE, len(raw))
    return b"z" + zlib.compress(raw, 1) if worthwhile else b"r" + raw


def unpack(blob: bytes, dtype: np.dtype[np.generic] | str, count: int) -> NDArray[np.generic]:
    """Return the packed array. Anything but `count` numbers means that the ledger is damaged."""
    kind = np.dtype(dtype)
    try:
        raw = (
            zlib.decompress(memoryview(blob)[1:], bufsize=count * kind.itemsize + 64) if blob[:1] == b"z" else blob[1:]
        )
    except zlib.error as error:
        raise PrivacyRefusal(f"the ledger is damaged: {error}; {DAMAGED}") from None
    if blob[:1] not in (b"z", b"r") or len(raw) != count * kind.itemsize:
        raise PrivacyRefusal(f"the ledger is damaged: {len(raw):,} bytes for {count:,} × {kind}; {DAMAGED}")
    return np.frombuffer(raw, kind)


DAMAGED = "nothing was done. Run `rpdp ledger verify` to see what changed, and go back to a copy that passes"


def digest_of(parts: Iterable[bytes]) -> str:
    """Return SHA-256 over parts of any length, with unambiguous boundaries between them."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()
