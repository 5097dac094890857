"""Work that takes longer than a page may: each job runs in a process of its own, and tells how far it is.

So the server stays quick and small, whatever is counted, verified or audited beside it. A job is given paths and
settings, never the steward's key. It ends with the console.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rpdp.errors import RpdpError

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from rpdp.ledger.progress_callback import Progress

T = TypeVar("T")
_TELL_EVERY = 0.2


class BackgroundJob(Generic[T]):
    """A function that runs in another process, and its result.

    Args:
        title: What it does, for people.
        work: A function of a module; its last argument is called as the work advances.
        arguments: Its other arguments.
    """

    def __init__(self, title: str, work: Callable[..., T], *arguments: Any) -> None:
        self.title = title
        self.progress = ("starting", 0, 0)
        self.result: T | None = None
        self.problem = ""
        self._ended = threading.Event()
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=_work, args=(theirs, work, arguments), daemon=True)
        self._process.start()
        theirs.close()
        threading.Thread(target=self._follow, args=(ours,), daemon=True).start()

    def _follow(self, pipe: Connection) -> None:
        try:
            while True:
                kind, value = pipe.recv()
                if kind == "progress":
                    self.progress = value
                    continue
                if kind == "done":
                    self.result = value
                else:
                    self.problem = value
                break
        except (EOFError, OSError):
            self.problem = "it was ended before it was done"
        finally:
            pipe.close()
            self._process.join()
            self._ended.set()

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return not self._ended.is_set()

    @property
    def percent(self) -> int:
        """How much of the present step is done, from 0 to 100."""
        _, done, of = self.progress
        return min(100, 100 * done // of) if of else 0

    def wait(self, seconds: float) -> bool:
        """Wait for the end for some time, and return whether it has come."""
        return self._ended.wait(seconds)

    def stop(self) -> None:
        """End it now."""
        self._process.terminate()


def _work(pipe: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the console, which ends its jobs
    try:
        result = work(*arguments, _teller(pipe))
    except RpdpError as error:
        pipe.send(("problem", str(error)))
    except Exception as error:  # the console goes on, and says what happened
        pipe.send(("problem", f"{type(error).__name__}: {error}"))
    else:
        pipe.send(("done", result))


def _teller(pipe: Connection) -> Progress:
    last = 0.0

    def tell(what: str, done: int, of: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _TELL_EVERY or done == of:
            last = now
            pipe.send(("progress", (what, done, of)))

    return tell
