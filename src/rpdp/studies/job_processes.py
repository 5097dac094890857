"""Jobs in processes of their own, a few at a time: for many short runs of tiny models, each with one thread."""

from __future__ import annotations

import os
import signal
from collections import deque
from contextlib import suppress
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

from rpdp.errors import RpdpError
from rpdp.federation.workers import fork_context, start_process

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkProcess

    Job = Callable[[], None]


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def run_jobs(jobs: Sequence[Job], workers: int, on_done: Callable[[int], None]) -> None:
    """Run all jobs, each in a forked process; the first error ends the others and is raised here.

    A job leaves its result in files: only an error comes back. With one worker jobs run here, one after the other.
    """
    if workers <= 1 or not hasattr(os, "fork"):
        for index, job in enumerate(jobs):
            job()
            on_done(index)
        return
    waiting, running = deque(range(len(jobs))), dict[int, "_Running"]()
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                index = waiting.popleft()
                running[index] = _Running(jobs[index])
            wait([each.link for each in running.values()])
            for index in [index for index, each in running.items() if each.link.poll()]:
                running.pop(index).finish()
                on_done(index)
    finally:
        for each in running.values():
            each.stop()


class _Running:
    def __init__(self, job: Job) -> None:
        context = fork_context()
        self.link, there = context.Pipe(duplex=False)
        self._process: ForkProcess = context.Process(target=_work, args=(job, there))
        start_process(self._process)
        there.close()

    def finish(self) -> None:
        try:
            error = self.link.recv()
        except EOFError:
            error = RpdpError("a worker process died (out of memory?); use fewer workers")
        self._process.join()
        self.link.close()
        if error is not None:
            raise error

    def stop(self) -> None:
        self._process.terminate()
        self._process.join()
        self.link.close()


def _work(job: Job, link: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started us
    outcome: RpdpError | None
    try:
        import torch

        torch.set_num_threads(1)
        job()
        outcome = None
    except RpdpError as error:
        outcome = error
    except BaseException as error:  # whatever it is, the parent must hear of it
        outcome = RpdpError(f"{type(error).__name__}: {error}")
    with suppress(OSError):  # the parent was killed
        link.send(outcome)
