"""Stop a server on SIGTERM or Ctrl-C, whatever its main thread is waiting for."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def stop_on_signal(stop: Callable[[], None]) -> None:
    """Call `stop` at SIGTERM or Ctrl-C.

    Python runs signal handlers in the main thread only. The system may deliver a signal to any other thread, and a
    waiting main thread then sleeps on. So a thread of its own waits for the byte that Python writes to a pipe in
    whichever thread the signal arrives.
    """
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    threading.Thread(target=_wait, args=(read, stop), name="rpdp-stop", daemon=True).start()


def _wait(read: int, stop: Callable[[], None]) -> None:
    os.read(read, 1)
    stop()
