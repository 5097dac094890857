"""Membership of a run in compact form: distinct (q, cost, δ, order, active rounds), and a class number per record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rpdp.accounting.renyi_filter import ORDERS
from rpdp.display import counts_repr
from rpdp.errors import PrivacyRefusal
from rpdp.ledger.store.fixed_point import DELTA_SHIFT, EPSILON_SHIFT, rounded_up
from rpdp.ledger.store.roster import ABSENT
from rpdp.ledger.store.schema import DAMAGED, digest_of, pack, unpack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from rpdp.ledger.store.database import Database
    from rpdp.ledger.store.fixed_point import FloatArray, UnitArray
    from rpdp.ledger.store.record_store import Chunk, RecordStore
    from rpdp.ledger.store.run_book import Admission
    from rpdp.planning import SiloPlan


@dataclass(frozen=True, eq=False)
class Classes:
    """The sampling classes of a run. Records of class 0 do not take part; the other classes are numbered from 1."""

    q: FloatArray
    cost: FloatArray
    active: NDArray[np.int32]
    delta: FloatArray
    order: NDArray[np.uint8]

    __repr__ = counts_repr

    def __len__(self) -> int:
        return len(self.q)

    @property
    def index_type(self) -> np.dtype[np.generic]:
        """The smallest type that holds every class number."""
        return np.dtype("<u1" if len(self) <= 2**8 else "<u2" if len(self) <= 2**16 else "<u4")

    @property
    def booked(self) -> UnitArray:
        """The units of ε or ρ that each class books."""
        return rounded_up(self.cost, EPSILON_SHIFT)

    @property
    def booked_delta(self) -> UnitArray:
        """The units of δ that each class books."""
        return rounded_up(self.delta, DELTA_SHIFT)


def classes_of(plan: SiloPlan) -> tuple[Classes, NDArray[np.int64]]:
    """Return the classes of a plan and the class number of each of its records."""
    drawn = plan.q > 0.0
    kept = (plan.q, plan.cost, plan.active_rounds, plan.delta, plan.order)
    columns = [np.where(drawn, column, 0) for column in kept]
    code = np.zeros(len(plan), dtype=np.int64)
    for column in columns:
        where, count = _numbered(column)
        code = _numbered(code * count + where)[0]
    rows = np.zeros(int(code.max()) + 1, dtype=np.int64)  # some record of each class
    rows[code] = np.arange(len(plan))
    order = np.lexsort([column[rows] for column in columns])
    order = order[np.argsort(columns[0][rows][order] > 0.0, kind="stable")]  # the class that does not take part first
    values = [column[rows][order] for column in columns]
    index = np.argsort(order)[code]
    if values[0][0] > 0.0:  # every record takes part: add an empty class 0
        values, index = [np.append(0, column) for column in values], index + 1
    q, cost, active, delta, orders = values
    return Classes(q, cost, active.astype(np.int32), delta, orders.astype(np.uint8)), index


def _numbered(values: NDArray[np.generic]) -> tuple[NDArray[np.int64], int]:
    """Number equal values equally, from 0 in order of appearance; much faster than sorting."""
    encoded = pc.dictionary_encode(pa.array(values))
    return np.asarray(encoded.indices, dtype=np.int64), len(encoded.dictionary)


class MemberStore:
    """The membership of all runs in a database; `seq` is the event that admitted a run."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def write_classes(self, seq: int, classes: Classes) -> None:
        """Store the classes of a run."""
        blobs = (pack(classes.q.astype("<f8")), pack(classes.cost.astype("<f8")), pack(classes.active.astype("<i4")))
        self._database.rows("INSERT INTO class VALUES(?, ?, ?, ?)", (seq, *blobs))
        accounts = (pack(classes.delta.astype("<f8")), pack(classes.order))
        self._database.rows("INSERT INTO class_account VALUES(?, ?, ?)", (seq, *accounts))

    def write(self, seq: int, chunk: Chunk, index: NDArray[np.generic]) -> None:
        """Store the class numbers of a chunk's records."""
        self._database.rows("INSERT INTO member VALUES(?, ?, ?, ?)", (seq, *chunk.key, pack(index)))

    def classes(self, seq: int, count: int, plan_delta: float) -> Classes:
        """Return the classes of a run. Runs of older formats booked the δ of their plan, in sum accounts."""
        found = self._database.rows("SELECT q, cost, active FROM class WHERE seq = ?", (seq,))
        if not found:
            raise PrivacyRefusal(f"the ledger is damaged: the classes of event {seq} are missing; {DAMAGED}")
        q, cost, active = found[0]
        probabilities = unpack(q, "<f8", count).astype(np.float64)
        delta, orders = np.where(probabilities > 0.0, plan_delta, 0.0), np.zeros(count, dtype=np.uint8)
        for stored_delta, stored_orders in self._accounts_of(seq):
            delta = unpack(stored_delta, "<f8", count).astype(np.float64)
            orders = unpack(stored_orders, "u1", count).astype(np.uint8)
        if orders.size and orders.max() >= ORDERS.size:
            raise PrivacyRefusal(f"the ledger is damaged: order {orders.max()} is unknown; {DAMAGED}")
        return Classes(
            probabilities,
            unpack(cost, "<f8", count).astype(np.float64),
            unpack(active, "<i4", count).astype(np.int32),
            delta,
            orders,
        )

    def of(self, admission: Admission) -> Classes:
        """Return the classes of an admitted run."""
        return self.classes(admission.seq, admission.classes, admission.public.delta)

    def _accounts_of(self, seq: int) -> list[tuple[bytes, bytes]]:
        if not self._database.has("class_account"):
            return []
        rows = self._database.rows("SELECT delta, orders FROM class_account WHERE seq = ?", (seq,))
        return [(delta, orders) for delta, orders in rows]

    def index(self, seq: int, chunk: Chunk, classes: Classes) -> NDArray[np.int64] | None:
        """Return the class numbers of a chunk's records; None if none of them takes part."""
        query = "SELECT classes FROM member WHERE seq = ? AND segment = ? AND chunk = ?"
        for (blob,) in self._database.rows(query, (seq, *chunk.key)):
            index = unpack(blob, classes.index_type, chunk.count).astype(np.int64)
            if index.size and index.max() >= len(classes):
                raise PrivacyRefusal(f"the ledger is damaged: class {index.max()} of {len(classes)}; {DAMAGED}")
            return index
        return None

    def digest(self, seq: int) -> str:
        """Return the hash of a run's classes and members as stored in the file."""
        return digest_of(self._parts(seq))

    def _parts(self, seq: int) -> Iterator[bytes]:
        for row in self._database.each("SELECT q, cost, active FROM class WHERE seq = ?", (seq,)):
            yield from row
        for accounts in self._accounts_of(seq):
            yield from accounts
        query = "SELECT segment, chunk, classes FROM member WHERE seq = ? ORDER BY segment, chunk"
        for segment, chunk, blob in self._database.each(query, (seq,)):
            yield repr((segment, chunk)).encode()
            yield blob


def spread(places: NDArray[np.int32], index: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the class numbers of a roster in the order of a chunk; 0 for records outside the roster."""
    padded = np.append(index, 0)
    assert ABSENT == -1  # so that absent records get the padding
    return padded[places]


def add_booking(
    store: RecordStore,
    members: MemberStore,
    admission: Admission,
    places: NDArray[np.int32],
    amount: UnitArray,
    delta: UnitArray,
    sign: int = 1,
) -> None:
    """Add what a run booked, in units, to arrays in the order of a roster, in place; or subtract it."""
    classes = members.of(admission)
    for chunk in store.chunks:
        index = members.index(admission.seq, chunk, classes)
        if index is not None:
            here = places[chunk.rows] != ABSENT
            place, index = places[chunk.rows][here], index[here]
            amount[place] += sign * classes.booked[index]
            delta[place] += sign * classes.booked_delta[index]
