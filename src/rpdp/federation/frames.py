"""The wire between a server, or the Flower app that carries its words, and a silo agent: one request, one answer.

A frame is a fixed header (magic with the version, length of the facts, length of the payload), facts as JSON, and a
payload of plain little-endian numbers. Every length is checked before memory is taken; nothing in a frame is executed
or unpickled. Standard library only: a Flower app starts a new process for every message and loads this.

| request | facts | payload | answers |
|---|---|---|---|
| hello | | | hello: silo, is_simulation |
| admit | run, plan (the public plan), head (the newest that the server knows) | | admitted |
| round | run, plan (its fingerprint), round, correction (is there one), head | model, correction | update, sat-out |

Answers to admit and round carry `head`, the newest of the ledger's public events. Every request can be answered with
`refused` and one word of `rpdp.errors.Reason`; a client that cannot reach its agent says `unreachable` in its place.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rpdp.errors import PrivacyRefusal, Reason

if TYPE_CHECKING:
    from collections.abc import Callable

MAGIC = b"rpdp-sa1"
_FAMILY = MAGIC[:-1]
_HEADER = struct.Struct("<8sIQ")
HEADER_BYTES = _HEADER.size
MOST_FACTS = 1 << 20
"""A public plan with weights for ten thousand silos fits."""


@dataclass(frozen=True)
class Frame:
    """A request or an answer."""

    facts: dict[str, Any]
    payload: bytes = b""

    @property
    def kind(self) -> str:
        """What it is: a request's or an answer's name."""
        return str(self.facts.get("kind"))

    def to_bytes(self) -> bytes:
        """As it travels."""
        facts = json.dumps(self.facts, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
        return _HEADER.pack(MAGIC, len(facts), len(self.payload)) + facts + self.payload

    @classmethod
    def from_bytes(cls, data: bytes, most_payload: int) -> Frame:
        """From a whole frame; anything before or after it is refused."""
        view = memoryview(data)
        place = 0

        def take(count: int) -> bytes:
            nonlocal place
            place += count
            return bytes(view[place - count : place])

        frame = cls.read(take, most_payload)
        if place != len(data):
            raise PrivacyRefusal(f"a frame of {place:,} bytes came in {len(data):,}", Reason.MALFORMED)
        return frame

    @classmethod
    def read(cls, take: Callable[[int], bytes], most_payload: int) -> Frame:
        """From `take`, which gives so many bytes, or fewer at the end."""
        magic, facts, payload = _HEADER.unpack(_whole(take, HEADER_BYTES))
        if magic != MAGIC:
            same = magic[:-1] == _FAMILY
            raise PrivacyRefusal(f"a frame begins with {magic!r}", Reason.VERSION if same else Reason.MALFORMED)
        if facts > MOST_FACTS or payload > most_payload:
            raise PrivacyRefusal(
                f"a frame of {facts:,} + {payload:,} bytes; at most {MOST_FACTS:,} + {most_payload:,} are read",
                Reason.TOO_LARGE,
            )
        return cls(_facts(_whole(take, facts)), _whole(take, payload))


def refused(reason: Reason) -> Frame:
    """The answer to a request that is refused."""
    return Frame({"kind": "refused", "reason": reason.value})


UNREACHABLE = Frame({"kind": "unreachable"})
"""What a client answers for an agent that does not answer."""


def _whole(take: Callable[[int], bytes], count: int) -> bytes:
    data = take(count)
    if len(data) != count:
        raise PrivacyRefusal(f"a frame ended after {len(data):,} of {count:,} bytes", Reason.MALFORMED)
    return data


def _facts(text: bytes) -> dict[str, Any]:
    try:
        facts = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise PrivacyRefusal(f"the facts of a frame are no JSON: {error}", Reason.MALFORMED) from None
    if not isinstance(facts, dict):
        raise PrivacyRefusal(f"the facts of a frame are {type(facts).__name__}, not an object", Reason.MALFORMED)
    return facts


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _finite(text: str) -> float:
    """1e999 is infinity by another name."""
    number = float(text)
    if not math.isfinite(number):
        _refuse_constant(text)
    return number


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Two values of one name would let two readers read two things."""
    facts = dict(pairs)
    if len(facts) != len(pairs):
        raise ValueError("a name occurs twice")
    return facts
