"""Steward actions: withdraw records, lower their budgets, and, with a signature, raise them or take them back in.

An action is a small file: a signature line, a JSON header, and the records with their new budgets as arrays. It takes
effect from the next local step on and never refunds anything.

| action | effect | needs |
|---|---|---|
| withdraw | never drawn again | write access to the inbox |
| lower | the smaller of old and new budget; below what is booked: never drawn again | write access to the inbox |
| raise | the larger of old and new budget | the signature of the steward whose key the ledger was created with |
| reconsent | drawn again, from the next run on; what was booked stays booked | that signature |

Each names its actor and a reason. Actions of release 0.1 name no actor.
"""

from __future__ import annotations

import json
import secrets
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
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from rpdp.ledger.stewardship.steward_keys import StewardKey, StewardPublicKey
    from rpdp.ledger.store.fixed_point import FloatArray

ActionKind = Literal["withdraw", "lower", "raise", "reconsent"]
KINDS: tuple[ActionKind, ...] = ("withdraw", "lower", "raise", "reconsent")
SIGNED: tuple[ActionKind, ...] = ("raise", "reconsent")
"""What allows more than before needs the steward's signature."""

_MAGIC = b"rpdp-action/1"
_DOMAIN = b"rpdp-steward-action\n"


@dataclass(frozen=True, eq=False)
class Action:
    """One steward action. A budget of NaN stays as it is.

    Its name is random and says nothing about its place among others: the inbox counts actions as they arrive.
    """

    kind: ActionKind
    ledger: str
    hashes: NDArray[np.uint64]
    epsilon: FloatArray
    delta: FloatArray
    reason: str = ""
    actor: str | None = None
    name: str = field(default_factory=lambda: secrets.token_hex(16))
    at: str = field(default_factory=lambda: datetime.now(UTC).isoformat("T", "seconds"))
    signature: bytes = b""

    __repr__ = counts_repr

    @property
    def body(self) -> bytes:
        """The bytes that are signed and stored."""
        header = {
            "kind": self.kind,
            "ledger": self.ledger,
            "name": self.name,
            "at": self.at,
            "reason": self.reason,
            "records": len(self.hashes),
        }
        if self.actor is not None:  # the bytes of an action without an actor must stay what was signed and hashed
            header["actor"] = self.actor
        arrays = as_bytes(self.hashes) + self.epsilon.astype("<f8").tobytes() + self.delta.astype("<f8").tobytes()
        return canonical(header).encode() + b"\n" + arrays

    def signed(self, key: StewardKey) -> Action:
        """Return the same action with a steward's signature."""
        return Action.from_body(self.body, key.sign(_DOMAIN + self.body))

    def require_signature(self, key: StewardPublicKey | None) -> None:
        """Refuse an action that allows more and that the ledger's steward has not signed."""
        if self.kind not in SIGNED:
            return
        if key is None:
            raise PrivacyRefusal(
                "this ledger was created without a steward key, so its budgets can never be raised, and a withdrawal "
                "is for good"
            )
        if not key.is_signature(self.signature, _DOMAIN + self.body):
            what = "raise the budgets of" if self.kind == "raise" else "take back in"
            raise PrivacyRefusal(
                f"action {self.name} would {what} {len(self.hashes):,} records, but its signature is not "
                "that of this ledger's steward; nothing was changed. Sign it with the steward's key"
            )

    def to_bytes(self) -> bytes:
        """Return the action as the contents of a file."""
        return b"\n".join([_MAGIC, self.signature.hex().encode() or b"-", self.body])

    @classmethod
    def from_bytes(cls, content: bytes) -> Action:
        """Parse the contents of a file."""
        magic, _, rest = content.partition(b"\n")
        signature, _, body = rest.partition(b"\n")
        if magic != _MAGIC:
            raise InputError(f"not a steward action of this version: it starts with {magic[:20]!r}, not {_MAGIC!r}")
        try:
            return cls.from_body(body, b"" if signature == b"-" else bytes.fromhex(signature.decode("ascii")))
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"not a steward action: {type(error).__name__}: {error}") from None

    @classmethod
    def from_body(cls, body: bytes, signature: bytes) -> Action:
        """Parse the stored bytes of an action."""
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
            actor=None if header.get("actor") is None else str(header["actor"]),
            name=str(header["name"]),
            at=str(header["at"]),
            signature=signature,
        )


def apply_actions(
    actions: Sequence[Action],
    find: Callable[[NDArray[np.uint64]], NDArray[np.int64]],
    epsilon: FloatArray,
    delta: FloatArray,
    withdrawn: NDArray[np.bool_],
    order: NDArray[np.uint8],
) -> None:
    """Apply actions to arrays of budgets and withdrawals, in place.

    `find` returns the row of each hash in the arrays, or −1 for records that are not in them; those are skipped.
    """
    if not actions:
        return
    found = find(np.concatenate([action.hashes for action in actions]))  # one lookup for all: each has its overhead
    ends = np.cumsum([len(action.hashes) for action in actions])
    for action, here in zip(actions, np.split(found, ends[:-1]), strict=True):
        known = here >= 0
        rows = here[known]
        if action.kind in ("withdraw", "reconsent"):
            withdrawn[rows] = action.kind == "withdraw"
            continue
        change_budgets(action, rows, known, epsilon, delta, order)


def change_budgets(
    action: Action,
    rows: NDArray[np.int64],
    named: NDArray[np.bool_] | NDArray[np.int64],
    epsilon: FloatArray,
    delta: FloatArray,
    order: NDArray[np.uint8],
) -> None:
    """Lower or raise the budgets in some rows, in place; `named` are their places in the action."""
    # An action cannot act against its kind: lower never raises, raise never lowers. Both ignore NaN.
    combine = np.fmin if action.kind == "lower" else np.fmax
    epsilon[rows] = combine(epsilon[rows], action.epsilon[named])
    # The δ of a Rényi account is never raised, whatever a steward has signed.
    is_fixed = (order[rows] > 0) & (action.kind == "raise")
    delta[rows] = np.where(is_fixed, delta[rows], combine(delta[rows], action.delta[named]))
