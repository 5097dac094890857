"""To stop a server when it is told to, whatever its main thread waits for."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def stop_when_told(stop: Callable[[], None]) -> None:
    """Call `stop` at SIGTERM or Ctrl-C.

    Python runs its own handlers in the main thread alone. The system may give a signal to any other thread, and a main
    thread that waits then sleeps on: so a thread waits for the byte that is written wherever the signal lands.
    """
    told, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    threading.Thread(target=_wait, args=(told, stop), name="rpdp-stop", daemon=True).start()


def _wait(told: int, stop: Callable[[], None]) -> None:
    os.read(told, 1)
    stop()
