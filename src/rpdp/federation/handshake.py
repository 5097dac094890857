"""What server and silo say of themselves before a run: name, release of rpdp, clock. All of it is public.

The server asks with its release and its clock; the silo answers with its own. A request without them is answered, too.
Neither release nor clock decides whether a run is admitted. Where they differ, both sides' logs say so, because what
follows from it (a refused key, a certificate that seems to have ended, a hold that ends too early) does not.

A frame of another protocol cannot be read at all; `rpdp.federation.frames` says from its first bytes which release sent
it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rpdp.federation.frames import Frame
from rpdp.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_SKEW = 60.0
"""Seconds that two clocks may differ before somebody is told. A message over Flower may take several."""

_LONGEST_VERSION = 40
_LARGEST_CLOCK = 1 << 53


@dataclass(frozen=True)
class Greeting:
    """What one side has said of itself.

    Attributes:
        version: Its release of rpdp; "" if it has not said.
        ahead: Seconds by which its clock is ahead of ours; None if it has not said.
    """

    version: str = ""
    ahead: float | None = None

    @classmethod
    def of(cls, facts: Mapping[str, Any], now: float | None = None) -> Greeting:
        """Read a greeting from the facts of a `hello`, in either direction. What is not well formed is left out."""
        version, clock = facts.get("version"), facts.get("clock")
        text = version[:_LONGEST_VERSION] if isinstance(version, str) and version.isprintable() else ""
        if not isinstance(clock, int) or isinstance(clock, bool) or abs(clock) > _LARGEST_CLOCK:
            return cls(text)
        return cls(text, clock - (time.time() if now is None else now))

    def remarks(self, who: str) -> list[str]:
        """What to tell the people at our side about the other side, if anything."""
        told = []
        if self.version and self.version != __version__:
            told.append(f"{who} runs rpdp {self.version}; here is rpdp {__version__}")
        if self.ahead is not None and abs(self.ahead) > MOST_SKEW:
            direction = "ahead of" if self.ahead > 0 else "behind"
            told.append(
                f"the clock of {who} is {duration(abs(self.ahead))} {direction} the one here; set both by NTP "
                "(`timedatectl`): holds, keys and certificates go by the clock"
            )
        return told


def own_greeting() -> dict[str, Any]:
    """What this side says of itself: whole seconds, which is all that a skew needs."""
    return {"version": __version__, "clock": int(time.time())}


def hello() -> Frame:
    """The request with which a server begins."""
    return Frame({"kind": "hello", **own_greeting()})


def duration(seconds: float) -> str:
    """A number of seconds as people say it: 45 s, 12 min, 3.0 h, 2.0 days."""
    for size, unit, places in ((86400.0, "days", 1), (3600.0, "h", 1), (60.0, "min", 0)):
        if seconds >= 1.5 * size or (size == 3600.0 and seconds >= size):
            return f"{seconds / size:.{places}f} {unit}"
    return f"{seconds:.0f} s"
