"""What a steward may do to records: withdraw them, lower their budgets, raise them with a signature.

An action is a small file: a signature line, a header in JSON, and the records with their new budgets as arrays. What
it says holds from the next local step on; it never gives anything back.

| action | effect | needs |
|---|---|---|
| withdraw | never drawn again | the writer of the file |
| lower | the smaller of old and new budget; below what is booked: never drawn again | the writer of the file |
| raise | the larger of old and new budget | the signature of the steward whose key the ledger was created with |
"""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

import numpy as np

from rpdp.budgets.validation import LARGEST_EPSILON
from rpdp.display import counts_repr
from rpdp.errors import InputError, PrivacyRefusal
from rpdp.ledger.store.chain import canonical
from rpdp.ledger.store.record_keys import HASH_BYTES, as_bytes, from_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from rpdp.ledger.stewardship.steward_keys import StewardKey, StewardPublicKey
    from rpdp.ledger.store.units import FloatArray

ActionKind = Literal["withdraw", "lower", "raise"]
KINDS: tuple[ActionKind, ...] = ("withdraw", "lower", "raise")
_MAGIC = b"rpdp-action/1"
_DOMAIN = b"rpdp-steward-action\n"


@dataclass(frozen=True, eq=False)
class Action:
    """One steward action. Budgets that stay as they are NaN."""

    kind: ActionKind
    ledger: str
    hashes: NDArray[np.uint64]
    epsilon: FloatArray
    delta: FloatArray
    reason: str = ""
    name: str = field(default_factory=lambda: f"{time.time_ns():020d}-{secrets.token_hex(8)}")
    at: str = field(default_factory=lambda: datetime.now(UTC).isoformat("T", "seconds"))
    signature: bytes = b""

    __repr__ = counts_repr

    @property
    def body(self) -> bytes:
        """What is signed and stored."""
        header = {
            "kind": self.kind,
            "ledger": self.ledger,
            "name": self.name,
            "at": self.at,
            "reason": self.reason,
            "records": len(self.hashes),
        }
        arrays = as_bytes(self.hashes) + self.epsilon.astype("<f8").tobytes() + self.delta.astype("<f8").tobytes()
        return canonical(header).encode() + b"\n" + arrays

    def signed(self, key: StewardKey) -> Action:
        """The same action with a steward's signature."""
        return Action.from_body(self.body, key.sign(_DOMAIN + self.body))

    def require_signature(self, key: StewardPublicKey | None) -> None:
        """Refuse a raise that the ledger's steward has not signed."""
        if self.kind != "raise":
            return
        if key is None:
            raise PrivacyRefusal("this ledger was created without a steward key: budgets in it can never be raised")
        if not key.is_signature(self.signature, _DOMAIN + self.body):
            raise PrivacyRefusal(
                f"action {self.name}: the budgets of {len(self.hashes):,} records are to be raised, and the "
                "signature is not that of this ledger's steward; nothing was changed"
            )

    def to_bytes(self) -> bytes:
        """As a file."""
        return b"\n".join([_MAGIC, self.signature.hex().encode() or b"-", self.body])

    @classmethod
    def from_bytes(cls, content: bytes) -> Action:
        """From a file."""
        magic, _, rest = content.partition(b"\n")
        signature, _, body = rest.partition(b"\n")
        if magic != _MAGIC:
            raise InputError("not a steward action of this version")
        try:
            return cls.from_body(body, b"" if signature == b"-" else bytes.fromhex(signature.decode("ascii")))
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"not a steward action: {type(error).__name__}: {error}") from None

    @classmethod
    def from_body(cls, body: bytes, signature: bytes) -> Action:
        """From what is stored."""
        line, _, arrays = body.partition(b"\n")
        header = json.loads(line)
        count = int(header["records"])
        if header["kind"] not in KINDS or len(arrays) != count * (HASH_BYTES + 16):
            raise ValueError(f"{header['kind']!r} of {count} records in {len(arrays)} bytes")
        budgets = np.frombuffer(arrays, "<f8", offset=count * HASH_BYTES).astype(np.float64)
        if not (np.isnan(budgets) | ((budgets >= 0.0) & (budgets <= LARGEST_EPSILON))).all():
            raise ValueError(f"a budget outside 0 … {LARGEST_EPSILON:g}")
        return cls(
            header["kind"],
            str(header["ledger"]),
            from_bytes(arrays[: count * HASH_BYTES]),
            budgets[:count],
            budgets[count:],
            reason=str(header["reason"]),
            name=str(header["name"]),
            at=str(header["at"]),
            signature=signature,
        )


def apply_actions(
    actions: Iterable[Action],
    find: Callable[[NDArray[np.uint64]], NDArray[np.int64]],
    epsilon: FloatArray,
    delta: FloatArray,
    withdrawn: NDArray[np.bool_],
) -> None:
    """Bring budgets and withdrawals to what is in force after these actions, in place.

    `find` gives the row of each hash in the arrays, or −1: records that are not there are passed over.
    """
    for action in actions:
        found = find(action.hashes)
        known = found >= 0
        rows = found[known]
        if action.kind == "withdraw":
            withdrawn[rows] = True
            continue
        combine = np.fmin if action.kind == "lower" else np.fmax  # both take the number where the other is NaN
        epsilon[rows] = combine(epsilon[rows], action.epsilon[known])
        delta[rows] = combine(delta[rows], action.delta[known])
