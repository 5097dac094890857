"""The last export of a lost ledger, read back and checked: its chain, and every account as it was then."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from rpdp.accounting.renyi_filter import ORDERS
from rpdp.display import counts_repr
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.ledger.account_terms import AccountTerms
from rpdp.ledger.inspection.export import EXACT
from rpdp.ledger.stewardship.steward_keys import StewardPublicKey
from rpdp.ledger.store.chain import GENESIS, PUBLIC_KINDS, SUCCEED, Event, canonical, head_after, public_head_after
from rpdp.ledger.store.fixed_point import DELTA_SHIFT, EPSILON_SHIFT, rounded_up
from rpdp.ledger.store.record_keys import from_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpdp.ledger.store.chain import PublicHead
    from rpdp.ledger.store.creation import Kind
    from rpdp.ledger.store.fixed_point import FloatArray, UnitArray
    from rpdp.ledger.store.roster import Hashes

_UNUSABLE = "make it with `rpdp ledger export LEDGER NAME.json`, without --without-ids"


@dataclass(frozen=True, eq=False)
class LastExport:
    """What a ledger said of itself in an export with hashes. The accounts are in the order of the file."""

    ledger: str
    kind: Kind
    terms: AccountTerms
    steward: StewardPublicKey | None
    key_check: str
    sha256: str
    events: tuple[Event, ...]
    public_heads: tuple[bytes, ...]
    hashes: Hashes
    subjects: Hashes | None
    epsilon: FloatArray
    delta: FloatArray
    order: NDArray[np.uint8]
    booked: UnitArray
    booked_delta: UnitArray
    withdrawn: NDArray[np.bool_]

    __repr__ = counts_repr

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read an export; refused unless it is one that says everything, and its events belong together."""
        try:
            content = Path(path).read_bytes()
            values = json.loads(content)
            rows, columns = values["records"], {name: place for place, name in enumerate(values["columns"])}
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            raise InputError(f"{path} is not the export of a ledger as JSON ({error}); {_UNUSABLE}") from None
        if "record_hash" not in columns:
            raise InputError(f"{path} is an export without ids, in which no record can be found again; {_UNUSABLE}")
        try:
            return cls._of(values, hashlib.sha256(content).hexdigest(), _Columns(rows, columns))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise InputError(f"{path} is damaged or incomplete ({error!r}); {_UNUSABLE}") from None

    @classmethod
    def _of(cls, values: dict[str, Any], sha256: str, column: _Columns) -> Self:
        events, public_heads = _checked_chain(values)
        created = events[0].facts
        if created["ledger"] != values["ledger"] or values["public_head"]["head"] != public_heads[-1].hex():
            raise ValueError("its events are not those of the ledger that it names")
        steward = created["steward"]
        terms = AccountTerms(
            created.get("account", "sums"), float(created["lifetime_delta"]), int(created.get("silos_per_person", 1))
        )
        booked, booked_delta = column.booked()
        return cls(
            ledger=str(values["ledger"]),
            kind="simulation" if created["kind"] == "simulation" else "production",
            terms=terms,
            steward=None if steward is None else StewardPublicKey(bytes.fromhex(steward)),
            key_check=str(created["key_check"]),
            sha256=sha256,
            events=events,
            public_heads=public_heads,
            hashes=column.hashes("record_hash"),
            subjects=column.subjects(),
            epsilon=column.numbers("epsilon"),
            delta=column.numbers("delta"),
            order=column.orders(),
            booked=booked,
            booked_delta=booked_delta,
            withdrawn=column.numbers("withdrawn") > 0.0,
        )

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def runs(self) -> list[str]:
        """Every run that was ever admitted, in this ledger or in one that it succeeded."""
        earlier = [run for event in self.events if event.kind == SUCCEED for run in event.facts["runs"]]
        return [*earlier, *(event.run for event in self.events if event.kind == "admit")]

    @property
    def committed(self) -> int:
        """How many runs of this ledger had charged a round. Those that were only held may have been cancelled since."""
        return len({event.run for event in self.events if event.kind == "charge"})

    @property
    def holds(self) -> int:
        """How many runs were held: admitted, but neither begun nor cancelled."""
        ended = {event.run for event in self.events if event.kind in ("charge", "cancel")}
        return len({event.run for event in self.events if event.kind == "admit"} - ended)

    def require_history(self, head: PublicHead) -> None:
        """Refuse a head of another ledger, or one that contradicts this history."""
        if head.ledger != self.ledger:
            raise PrivacyRefusal(
                f"the server's head is of ledger {head.ledger[:12]}…, but the export is of ledger {self.ledger[:12]}…; "
                "give the export and the heads of the same silo"
            )
        if head.count < len(self.public_heads) and self.public_heads[head.count].hex() != head.head:
            raise PrivacyRefusal(
                f"the export and the server's head differ at public event {head.count:,}: one of them is of another "
                "history. Find the right export; nothing was made"
            )


class _Columns:
    """The rows of an export, by column."""

    def __init__(self, rows: list[list[Any]], places: dict[str, int]) -> None:
        self._columns = {name: [row[place] for row in rows] for name, place in places.items()}

    def numbers(self, name: str) -> FloatArray:
        values = np.array(self._columns[name], dtype=np.float64)
        if not np.isfinite(values).all() or (values < 0.0).any():
            raise ValueError(f"a number of column {name} is not one")
        return values

    def hashes(self, name: str) -> Hashes:
        return from_bytes(bytes.fromhex("".join(self._columns[name])))

    def subjects(self) -> Hashes | None:
        """A record without a subject is a person of its own, named by its own hash."""
        named = self._columns.get("subject_hash", [])
        if not any(named):
            return None
        own = self._columns["record_hash"]
        return from_bytes(bytes.fromhex("".join(one or other for one, other in zip(named, own, strict=True))))

    def orders(self) -> NDArray[np.uint8]:
        if "order" not in self._columns:
            return np.zeros(len(self._columns["record_hash"]), dtype=np.uint8)
        numbers = self.numbers("order")
        if (numbers >= ORDERS.size).any() or (numbers % 1.0).any():
            raise ValueError("an order is not one of the list")
        return numbers.astype(np.uint8)

    def booked(self) -> tuple[UnitArray, UnitArray]:
        """What is booked, in units; of an export of release 0.1 no less than it says, rounded up."""
        if set(EXACT[:2]) <= set(self._columns):
            units = [np.array(self._columns[name], dtype=np.int64) for name in EXACT[:2]]
            if min(int(one.min(initial=0)) for one in units) < 0:
                raise ValueError("less than nothing is booked")
            return units[0], units[1]
        epsilon, delta = self.numbers("spent_epsilon"), self.numbers("spent_delta")
        return _at_least(epsilon, EPSILON_SHIFT), _at_least(delta, DELTA_SHIFT)


def _at_least(amount: FloatArray, shift: int) -> UnitArray:
    """The units that a float may stand for at most: it is the largest one that does not exceed them."""
    return rounded_up(np.where(amount > 0.0, np.nextafter(amount, np.inf), 0.0), shift)


def _checked_chain(values: dict[str, Any]) -> tuple[tuple[Event, ...], tuple[bytes, ...]]:
    """Return the events of an export, and the head of the public chain after none, one, two … public events."""
    events, head, public = [], GENESIS, [GENESIS]
    for place, one in enumerate(values["events"], start=1):
        payload = canonical(one["facts"])
        run, number, joined = str(one.get("run", "")), int(one.get("round", 0)), int(one.get("joined", 0))
        event = Event(int(one["seq"]), str(one["kind"]), run, number, joined, payload, b"", None, None)
        head = head_after(head, event)
        if event.seq != place or head.hex() != one["head"]:
            raise ValueError(f"event {place} was changed")
        if event.kind in PUBLIC_KINDS:
            public.append(public_head_after(public[-1], event))
        events.append(event)
    return tuple(events), tuple(public)
