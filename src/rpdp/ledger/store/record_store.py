"""The records of a ledger: hashes, lifetime budgets and booked totals, in chunks of up to 65,536 records.

Records that are added together form a segment. It is sorted by hash, so that neither the file nor its order shows which
record came first. A segment never changes; later changes by stewards are in the table `change`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rpdp.accounting.renyi_filter import ORDERS
from rpdp.display import counts_repr
from rpdp.errors import PrivacyRefusal
from rpdp.ledger.progress_callback import silent
from rpdp.ledger.store.record_keys import HASH_BYTES, as_bytes, from_bytes
from rpdp.ledger.store.roster import ABSENT, Roster, sorted_order
from rpdp.ledger.store.schema import CHUNK, DAMAGED, digest_of, pack, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from rpdp.ledger.progress_callback import Progress
    from rpdp.ledger.store.database import Database
    from rpdp.ledger.store.fixed_point import FloatArray, UnitArray

    Hashes = NDArray[np.uint64]


@dataclass(frozen=True)
class Chunk:
    """A chunk of records: its segment (the event that added it), its number there, and its start among all records."""

    segment: int
    number: int
    count: int
    start: int

    @property
    def key(self) -> tuple[int, int]:
        """The key under which its rows are stored."""
        return self.segment, self.number

    @property
    def rows(self) -> slice:
        """Its slice of arrays over all records of the ledger."""
        return slice(self.start, self.start + self.count)


@dataclass(frozen=True)
class NewRecords:
    """Records to add to a ledger."""

    hashes: Hashes
    epsilon: FloatArray
    delta: FloatArray
    order: NDArray[np.uint8]
    subjects: Hashes | None

    __repr__ = counts_repr


class RecordStore:
    """The records in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.reload()

    def reload(self) -> None:
        """Load the list of chunks from the file."""
        self.chunks: list[Chunk] = []
        for segment, number, count in self._database.rows("SELECT seq, chunk, count FROM segment ORDER BY seq, chunk"):
            if not isinstance(count, int) or not 0 < count <= CHUNK:
                raise PrivacyRefusal(f"the ledger is damaged: a chunk of {count!r} records; {DAMAGED}")
            self.chunks.append(Chunk(segment, number, count, len(self)))

    def __len__(self) -> int:
        return self.chunks[-1].rows.stop if self.chunks else 0

    def write(self, segment: int, new: NewRecords, progress: Progress = silent) -> dict[str, Any]:
        """Store a segment and return the facts that its event states about it."""
        order = sorted_order(new.hashes)
        hashes = new.hashes[order]
        if (hashes[1:] == hashes[:-1]).all(axis=1).any():
            raise PrivacyRefusal("two records have the same 128-bit hash; create the ledger again with another key")
        parts: list[bytes] = []
        for number, start in enumerate(range(0, len(order), CHUNK)):
            rows = order[start : start + CHUNK]
            stored = as_bytes(hashes[start : start + CHUNK])
            subjects = None if new.subjects is None else as_bytes(new.subjects[rows])
            row = [stored, pack(new.epsilon[rows]), pack(new.delta[rows]), subjects]
            self._database.rows(
                "INSERT INTO segment VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
                (segment, number, len(rows), stored[:HASH_BYTES], *row),
            )
            parts += _covered(number, len(rows), row)
            if new.order.any():
                self.write_orders(segment, Chunk(segment, number, len(rows), start), new.order[rows])
            progress("writing records", start + len(rows), len(order))
        facts: dict[str, Any] = {"count": len(order), "sha256": digest_of(parts)}
        return facts | ({"orders": self.orders_digest(segment)} if new.order.any() else {})

    def write_orders(self, seq: int, chunk: Chunk, orders: NDArray[np.uint8]) -> None:
        """Store the orders at which event `seq` enrols a chunk's records."""
        self._database.rows("INSERT INTO enrolment VALUES(?, ?, ?, ?)", (seq, *chunk.key, pack(orders)))

    def orders(self, chunk: Chunk, before: int | None = None) -> NDArray[np.uint8]:
        """Return the numbers of the orders of a chunk's records, 0 for sum accounts: now, or before event `before`."""
        if self._database.has("enrolment"):
            query = "SELECT orders FROM enrolment WHERE segment = ? AND chunk = ? AND seq < ? ORDER BY seq DESC LIMIT 1"
            until = 2**62 if before is None else before
            for (blob,) in self._database.rows(query, (*chunk.key, until)):
                orders = unpack(blob, "u1", chunk.count).astype(np.uint8)
                if orders.size and orders.max() >= ORDERS.size:
                    raise PrivacyRefusal(f"the ledger is damaged: order {orders.max()} is unknown; {DAMAGED}")
                return orders
        return np.zeros(chunk.count, dtype=np.uint8)

    def orders_digest(self, seq: int) -> str:
        """Return the hash of the orders that an event states, as stored in the file."""
        query = "SELECT segment, chunk, orders FROM enrolment WHERE seq = ? ORDER BY segment, chunk"
        rows = self._database.each(query, (seq,))
        return digest_of(part for *key, orders in rows for part in (repr(key).encode(), orders))

    def gather_orders(self, places: NDArray[np.int32], size: int) -> NDArray[np.uint8]:
        """Return the numbers of orders in the order of a roster."""
        result = np.zeros(size, dtype=np.uint8)
        for chunk in self.chunks:
            place = places[chunk.rows]
            here = place != ABSENT
            result[place[here]] = self.orders(chunk)[here]
        return result

    def digest(self, segment: int) -> str:
        """Return the hash of a segment as stored in the file."""
        columns = "chunk, count, first, hashes, epsilon, delta, subjects"
        query = f"SELECT {columns} FROM segment WHERE seq = ? ORDER BY chunk"  # noqa: S608
        return digest_of(self._parts(query, segment))

    def _parts(self, query: str, segment: int) -> Iterator[bytes]:
        for number, count, first, *row in self._database.each(query, (segment,)):
            yield from _covered(number, count, row)
            if row[0][:HASH_BYTES] != first:
                yield b"the first hash is another than is said"

    def hashes(self, chunk: Chunk) -> Hashes:
        """Return the hashes of a chunk's records in ascending order."""
        (blob,) = self._one("SELECT hashes FROM segment WHERE seq = ? AND chunk = ?", chunk)
        if len(blob) != chunk.count * HASH_BYTES:
            raise PrivacyRefusal(
                f"the ledger is damaged: {len(blob)} bytes of hashes for {chunk.count} records; {DAMAGED}"
            )
        return from_bytes(blob)

    def budgets(self, chunk: Chunk) -> tuple[FloatArray, FloatArray]:
        """Return the ε and δ with which a chunk's records were added."""
        epsilon, delta = self._one("SELECT epsilon, delta FROM segment WHERE seq = ? AND chunk = ?", chunk)
        return unpack(epsilon, "<f8", chunk.count).astype(np.float64), unpack(delta, "<f8", chunk.count).astype(
            np.float64
        )

    def totals(self, chunk: Chunk) -> tuple[UnitArray, UnitArray]:
        """Return what is booked for a chunk's records, in units."""
        found = self._database.rows("SELECT epsilon, delta FROM total WHERE segment = ? AND chunk = ?", chunk.key)
        if not found:
            return np.zeros(chunk.count, dtype=np.int64), np.zeros(chunk.count, dtype=np.int64)
        epsilon, delta = found[0]
        return unpack(epsilon, "<i8", chunk.count).astype(np.int64), unpack(delta, "<i8", chunk.count).astype(np.int64)

    def write_totals(self, chunk: Chunk, epsilon: UnitArray, delta: UnitArray) -> None:
        """Store the new totals of a chunk's records."""
        self._database.rows(
            "INSERT OR REPLACE INTO total VALUES(?, ?, ?, ?)",
            (*chunk.key, pack(epsilon.astype("<i8")), pack(delta.astype("<i8"))),
        )

    def write_carried(self, seq: int, chunk: Chunk, epsilon: UnitArray, delta: UnitArray) -> None:
        """Store what event `seq` says was booked of a chunk's records in a ledger that was lost."""
        blobs = (pack(epsilon.astype("<i8")), pack(delta.astype("<i8")))
        self._database.rows("INSERT INTO carried VALUES(?, ?, ?, ?, ?)", (seq, *chunk.key, *blobs))

    def carried(self, chunk: Chunk) -> tuple[UnitArray, UnitArray]:
        """Return what a chunk's records began with, in units: 0 unless their ledger is a successor."""
        if self._database.has("carried"):
            query = "SELECT epsilon, delta FROM carried WHERE segment = ? AND chunk = ?"
            for epsilon, delta in self._database.rows(query, chunk.key):
                units = [unpack(blob, "<i8", chunk.count).astype(np.int64) for blob in (epsilon, delta)]
                return units[0], units[1]
        return np.zeros(chunk.count, dtype=np.int64), np.zeros(chunk.count, dtype=np.int64)

    def carried_digest(self, seq: int) -> str:
        """Return the hash of what an event carried over, as stored in the file."""
        query = "SELECT segment, chunk, epsilon, delta FROM carried WHERE seq = ? ORDER BY segment, chunk"
        rows = self._database.each(query, (seq,))
        return digest_of(part for *key, epsilon, delta in rows for part in (repr(key).encode(), epsilon, delta))

    def totals_digest(self) -> str:
        """Return the hash of all totals as stored in the file."""
        rows = self._database.each("SELECT segment, chunk, epsilon, delta FROM total ORDER BY segment, chunk")
        return digest_of(part for *key, epsilon, delta in rows for part in (repr(key).encode(), epsilon, delta))

    def places(self, roster: Roster, progress: Progress = silent) -> NDArray[np.int32]:
        """Return, for each record of the ledger, its position in a roster, or −1."""
        places = np.empty(len(self), dtype=np.int32)
        for chunk in self.chunks:
            places[chunk.rows] = roster.find(self.hashes(chunk))
            progress("finding records", chunk.rows.stop, len(self))
        return places

    def gather(
        self, places: NDArray[np.int32], size: int, read: Callable[[Chunk], tuple[NDArray[Any], NDArray[Any]]]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return two columns of the ledger in the order of a roster."""
        kind = np.int64 if read == self.totals else np.float64
        first, second = np.zeros(size, dtype=kind), np.zeros(size, dtype=kind)
        for chunk in self.chunks:
            place = places[chunk.rows]
            here = place != ABSENT
            one, two = read(chunk)
            first[place[here]], second[place[here]] = one[here], two[here]
        return first, second

    def find(self, record: NDArray[np.uint64]) -> tuple[Chunk, int] | None:
        """Return the chunk of one record and its place there. Reads only one chunk per segment."""
        wanted = as_bytes(record)
        by_key = {chunk.key: chunk for chunk in self.chunks}
        for segment in dict.fromkeys(chunk.segment for chunk in self.chunks):
            last = "SELECT chunk FROM segment WHERE seq = ? AND first <= ? ORDER BY chunk DESC LIMIT 1"
            for (number,) in self._database.rows(last, (segment, wanted)):
                chunk = by_key[segment, number]
                hashes = self.hashes(chunk)
                at = np.flatnonzero((hashes == record).all(axis=1))
                if at.size:
                    return chunk, int(at[0])
        return None

    def subjects(self, chunk: Chunk) -> Hashes | None:
        """Return the hashes of the subjects of a chunk's records, if they were given."""
        (blob,) = self._one("SELECT subjects FROM segment WHERE seq = ? AND chunk = ?", chunk)
        return None if blob is None else from_bytes(blob)

    def of_subject(self, subject: Hashes) -> Hashes:
        """Return the hashes of all records of a subject, given the subject's hash."""
        found = [np.zeros((0, 2), dtype=np.uint64)]
        for chunk in self.chunks:
            subjects = self.subjects(chunk)
            if subjects is not None:
                found.append(self.hashes(chunk)[(subjects == subject).all(axis=1)])
        return np.concatenate(found)

    def _one(self, query: str, chunk: Chunk) -> tuple[Any, ...]:
        found = self._database.rows(query, chunk.key)
        if not found:
            raise PrivacyRefusal(f"the ledger is damaged: chunk {chunk.key} is missing; {DAMAGED}")
        return found[0]


def _covered(number: int, count: int, row: list[Any]) -> list[bytes]:
    """Return the parts of a row that the hash of its segment covers."""
    return [repr((number, count)).encode(), *(b"-" if part is None else b"+" + part for part in row)]
