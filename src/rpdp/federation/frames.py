"""The wire format between a server, or the Flower app that carries its messages, and a silo agent.

Each request gets one answer; both are frames. A frame is a fixed header (magic with the version, length of the facts,
length of the payload), facts as JSON in UTF-8, and a payload of little-endian numbers. Every length is checked before
memory is allocated, and nothing in a frame is executed or unpickled. This module uses only the standard library,
because a Flower app loads it in a new process for every message.

| request | facts | payload | answers |
|---|---|---|---|
| hello | version, clock (both or neither) | | hello: silo, is_simulation, version, clock |
| admit | run, plan (the public plan), hold (seconds), head (the latest that the server knows) | | admitted |
| cancel | run, head | | cancelled |
| round | run, plan (its fingerprint), round, correction (is there one), head | model, correction | update, sat-out |

Answers to admit, cancel and round carry `head`, the latest head of the ledger's public events. Any request can be
answered with `refused` and one value of `rpdp.errors.Reason`. A client that cannot reach its agent answers
`unreachable` for it. `admitted` also names, in `uncovered`, the runs that the silo's steward cancelled without a public
reason: the server's report says so.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rpdp.errors import PrivacyRefusal, Reason
from rpdp.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable

MAGIC = b"rpdp-sa2"
_FAMILY = MAGIC[:-1]
RELEASES = {b"rpdp-sa1": "0.1", MAGIC: "0.2"}
"""The releases of rpdp by the protocol that they speak."""

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
        """The name of the request or answer."""
        return str(self.facts.get("kind"))

    def to_bytes(self) -> bytes:
        """Return the frame as it is sent."""
        facts = json.dumps(self.facts, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
        return _HEADER.pack(MAGIC, len(facts), len(self.payload)) + facts + self.payload

    @classmethod
    def from_bytes(cls, data: bytes, most_payload: int) -> Frame:
        """Parse a whole frame; extra bytes are refused."""
        view = memoryview(data)
        place = 0

        def take(count: int) -> bytes:
            nonlocal place
            place += count
            return bytes(view[place - count : place])

        frame = cls.read(take, most_payload)
        if place != len(data):
            raise PrivacyRefusal(f"a frame of {place:,} bytes arrived in {len(data):,} bytes", Reason.MALFORMED)
        return frame

    @classmethod
    def read(cls, take: Callable[[int], bytes], most_payload: int) -> Frame:
        """Read a frame from `take`, which returns the requested number of bytes, or fewer at the end."""
        magic, facts, payload = _HEADER.unpack(_whole(take, HEADER_BYTES))
        if magic != MAGIC:
            if magic[:-1] != _FAMILY:
                raise PrivacyRefusal(f"a frame begins with {magic!r}, not {MAGIC!r}", Reason.MALFORMED)
            release = f"rpdp {RELEASES[magic]}" if magic in RELEASES else "another release"
            raise PrivacyRefusal(
                f"the other side speaks protocol {magic.decode('ascii', 'replace')} ({release}), this one "
                f"{MAGIC.decode()} (rpdp {__version__}); install the same release at both sides",
                Reason.VERSION,
            )
        if facts > MOST_FACTS or payload > most_payload:
            raise PrivacyRefusal(
                f"a frame has {facts:,} + {payload:,} bytes; at most {MOST_FACTS:,} + {most_payload:,} are accepted",
                Reason.TOO_LARGE,
            )
        return cls(_facts(_whole(take, facts)), _whole(take, payload))


def refused(reason: Reason) -> Frame:
    """Return the answer to a request that is refused."""
    return Frame({"kind": "refused", "reason": reason.value})


UNREACHABLE = Frame({"kind": "unreachable"})
"""The client's answer for an agent that it cannot reach."""


def _whole(take: Callable[[int], bytes], count: int) -> bytes:
    data = take(count)
    if len(data) != count:
        raise PrivacyRefusal(f"a frame ended after {len(data):,} of {count:,} bytes", Reason.MALFORMED)
    return data


def _facts(text: bytes) -> dict[str, Any]:
    try:
        # Decoded here: given bytes, `json.loads` guesses the encoding and takes UTF-16, UTF-32 and lone surrogates too.
        words = text.decode("utf-8", errors="strict")
        facts = json.loads(words, parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise PrivacyRefusal(f"the facts of a frame are not JSON in UTF-8: {error}", Reason.MALFORMED) from None
    if not isinstance(facts, dict):
        raise PrivacyRefusal(f"the facts of a frame are {type(facts).__name__}, not an object", Reason.MALFORMED)
    return facts


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a finite number")


def _finite(text: str) -> float:
    """Parse a float and refuse infinity, which 1e999 would become."""
    number = float(text)
    if not math.isfinite(number):
        _refuse_constant(text)
    return number


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a name that occurs twice, because different parsers would read different values."""
    facts = dict(pairs)
    if len(facts) != len(pairs):
        raise ValueError("a name occurs twice")
    return facts
