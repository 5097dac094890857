"""What a test and the process that trains can both see: the loss runs there, the test looks here."""

from __future__ import annotations

import json
import mmap
import multiprocessing
import struct
from typing import TYPE_CHECKING, Any

from rpdp.federation import Silo
from rpdp.federation.local_training import LocalTraining

if TYPE_CHECKING:
    from multiprocessing.synchronize import Event
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from rpdp.training import NoisyStep, Records

_DOUBLE = struct.Struct("d")


class SharedNumber:
    """A number in memory that forked processes share."""

    def __init__(self, value: float = 0.0) -> None:
        self._memory = mmap.mmap(-1, _DOUBLE.size)
        self.value = value

    @property
    def value(self) -> float:
        return float(_DOUBLE.unpack(self._memory[:])[0])

    @value.setter
    def value(self, value: float) -> None:
        self._memory[:] = _DOUBLE.pack(value)


def shared_event() -> Event:
    """An event that forked processes share. One that may be killed while it asks needs a `SharedNumber` instead."""
    return multiprocessing.get_context("fork").Event()


def noting(path: Path) -> type[Silo]:
    """A silo whose training notes in a file what every step draws."""

    class Noting(LocalTraining):
        def _release(self, step: NoisyStep, records: Records, drawn: NDArray[np.int64]) -> None:
            super()._release(step, records, drawn)
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(drawn.tolist()) + "\n")

    return type("NotingSilo", (Silo,), {"training": Noting})


def noted(path: Path) -> list[Any]:
    """What was noted since the last call."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return [json.loads(line) for line in lines]
