"""When answers leave a silo: at a public time, so that timing reveals nothing about records (privacy.md, rule 14)."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

TRAINING_SHARE = 0.9
"""Training must end at this share of `release_after`; the rest is for storing the update."""


@dataclass(frozen=True)
class Timing:
    """The release schedule of one agent.

    Attributes:
        release_after: Seconds from the start of a request's turn until its answer leaves. A round that is not trained
            after nine tenths of them sits out. None: answers leave when they are ready, and their timing is not
            covered by the privacy guarantee.
        clock: A monotonic clock, in seconds.
        sleep: Waits for a number of seconds.
    """

    release_after: float | None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def left(self, began: float) -> float | None:
        """Seconds left for training in a turn that began then; None means unlimited."""
        if self.release_after is None:
            return None
        return max(began + TRAINING_SHARE * self.release_after - self.clock(), 0.0)

    def in_time(self, began: float) -> bool:
        """Whether there is time left for training."""
        return self.left(began) != 0.0

    def hold(self, began: float) -> None:
        """Wait until the answer is due. A late answer waits for the next multiple of `release_after`."""
        if self.release_after is not None:
            passed = self.clock() - began
            multiple = max(1, math.ceil(passed / self.release_after))
            self.sleep(max(multiple * self.release_after - passed, 0.0))
