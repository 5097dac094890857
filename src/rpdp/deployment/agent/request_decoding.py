"""Requests to a silo agent, decoded strictly: the server is not trusted.

Everything that is not exactly as `rpdp.federation.frames` describes it is refused with a reason that depends on the
request alone, never on a record.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rpdp.errors import PrivacyRefusal, Reason, RpdpError
from rpdp.federation.messages import Announcement
from rpdp.ledger.store.chain import PublicHead
from rpdp.planning import PublicPlan

if TYPE_CHECKING:
    from torch import Tensor

    from rpdp.federation.frames import Frame

_FIELDS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "hello": {},
    "admit": {"run": str, "plan": dict, "hold": int, "head": (dict, type(None))},
    "cancel": {"run": str, "head": (dict, type(None))},
    "round": {"run": str, "plan": str, "round": int, "correction": bool, "head": (dict, type(None))},
}
_GREETING: dict[str, type | tuple[type, ...]] = {"version": str, "clock": int}
"""A server since release 0.2 says these in its `hello`; nothing of an answer depends on them."""

_HEAD_FIELDS = {"ledger": str, "count": int, "head": str}
_LONGEST_NAME = 100


def checked_facts(request: Frame) -> dict[str, Any]:
    """The facts of a request: all that its kind needs, of the right types, and no others."""
    wanted = _FIELDS.get(request.kind)
    if request.kind == "hello" and len(request.facts) > 1:
        wanted = _GREETING
    if wanted is None or set(request.facts) != {"kind", *wanted}:
        raise PrivacyRefusal(f"request {request.kind!r} with fields {sorted(request.facts)}", Reason.MALFORMED)
    for name, kind in wanted.items():
        value = request.facts[name]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise PrivacyRefusal(f"request {request.kind}: {name} is {type(value).__name__}", Reason.MALFORMED)
    if request.kind != "round" and request.payload:
        raise PrivacyRefusal(f"request {request.kind} with {len(request.payload):,} bytes of payload", Reason.MALFORMED)
    if request.kind == "admit" and request.facts["hold"] < 1:
        raise PrivacyRefusal(f"hold={request.facts['hold']} is not a number of seconds", Reason.MALFORMED)
    for name in wanted:
        text = request.facts[name]
        if isinstance(text, str) and not (0 < len(text) <= _LONGEST_NAME and text.isprintable()):
            raise PrivacyRefusal(f"{name}={text[:_LONGEST_NAME]!r} is not a valid name", Reason.MALFORMED)
    return request.facts


def decode_plan(values: dict[str, Any]) -> PublicPlan:
    """The public plan of an `admit` request."""
    try:
        return PublicPlan.from_json(json.dumps(values))
    except PrivacyRefusal as error:
        raise PrivacyRefusal(str(error), Reason.PLAN) from None
    except (RpdpError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise PrivacyRefusal(f"not a public plan: {error}", Reason.MALFORMED) from None


def decode_head(values: dict[str, Any]) -> PublicHead:
    """The ledger head that the server knows; a head covers at least one event."""
    if {name: type(value) for name, value in values.items()} != _HEAD_FIELDS:
        raise PrivacyRefusal("not the head of a ledger")
    if values["count"] < 1:
        raise PrivacyRefusal(f"not the head of a ledger: count={values['count']}")
    return PublicHead(**values)


def decode_announcement(facts: dict[str, Any], payload: bytes, own: Tensor) -> Announcement:
    """The announcement of a `round` request, for a flat model of the shape and type of `own`."""
    vectors = 2 if facts["correction"] else 1
    wanted = vectors * own.numel() * own.element_size()
    if len(payload) != wanted:
        raise PrivacyRefusal(f"round with a payload of {len(payload):,} bytes instead of {wanted:,}", Reason.SHAPE)
    numbers = np.frombuffer(payload, dtype=f"<f{own.element_size()}").reshape(vectors, -1).copy()
    values = [torch.from_numpy(vector) for vector in numbers]
    correction = values[1] if facts["correction"] else None
    return Announcement(facts["run"], facts["plan"], facts["round"], values[0], correction)
