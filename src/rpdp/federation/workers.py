"""Worker processes for the simulator: each holds all silos and trains one at a time with one thread.

Workers are forked after admission, so they see records and models without a copy, and any model and loss can be used
without pickling. With one worker everything runs in this process, with bit-identical results: each job depends only on
its arguments and on keyed random streams.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, Protocol

import torch

from rpdp.errors import RpdpError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkProcess

    Job = Callable[..., Any]


def _ignore(index: int, result: Any) -> None:
    """Ignore a single result."""


class Pool(Protocol):
    """A pool that runs named jobs."""

    def map(
        self, name: str, arguments: Sequence[tuple[Any, ...]], on_result: Callable[[int, Any], None] = _ignore
    ) -> list[Any]:
        """Run one job for each tuple of arguments and return the results in order.

        `on_result` is called with the index and the result of each job as soon as it finishes.
        """
        ...

    def close(self) -> None:
        """Stop the workers."""
        ...


class WorkerError(RpdpError):
    """A worker process died, or failed in a way that the input does not explain."""


class InProcess:
    """A pool without workers: jobs run in this process in turn. The caller sets one thread, as a worker does."""

    def __init__(self, jobs: dict[str, Job]) -> None:
        self._jobs = jobs

    def map(
        self, name: str, arguments: Sequence[tuple[Any, ...]], on_result: Callable[[int, Any], None] = _ignore
    ) -> list[Any]:
        """Run the jobs in order."""
        results = []
        for index, each in enumerate(arguments):
            results.append(self._jobs[name](*each))
            on_result(index, results[-1])
        return results

    def close(self) -> None:
        """Do nothing: there are no workers to stop."""


class Forked:
    """A pool of forked workers; each job goes to the next free worker."""

    def __init__(self, jobs: dict[str, Job], workers: int) -> None:
        context = fork_context()
        self._links: list[Connection] = []
        self._processes: list[ForkProcess] = []
        for _ in range(workers):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there, [*self._links, here], jobs), daemon=True)
            start_process(process)
            there.close()
            self._links.append(here)
            self._processes.append(process)

    def map(
        self, name: str, arguments: Sequence[tuple[Any, ...]], on_result: Callable[[int, Any], None] = _ignore
    ) -> list[Any]:
        """Run the jobs, each on the next free worker."""
        waiting = deque(enumerate(arguments))
        results: list[Any] = [None] * len(arguments)
        busy: dict[Connection, int] = {}
        failure: BaseException | None = None
        for link in self._links:
            self._hand_out(link, name, waiting, busy)
        while busy:
            ready = wait(list(busy))
            for link in [link for link in busy if link in ready]:
                index = busy.pop(link)
                good, value = self._receive(link)
                if good:
                    results[index] = value
                    on_result(index, value)
                else:
                    failure = failure or value
                    waiting.clear()
                self._hand_out(link, name, waiting, busy)
        if failure is not None:
            raise failure
        return results

    def _hand_out(self, link: Connection, name: str, waiting: deque[Any], busy: dict[Connection, int]) -> None:
        if waiting:
            index, arguments = waiting.popleft()
            with suppress(OSError):  # a dead worker is noticed when its answer is read
                link.send((name, arguments))
            busy[link] = index

    def _receive(self, link: Connection) -> tuple[bool, Any]:
        try:
            good, value = link.recv()
        except (EOFError, OSError):
            return False, WorkerError(
                "a worker process died, perhaps out of memory; nothing of its round was released. Use fewer workers"
            )
        return bool(good), value

    def close(self) -> None:
        """Close the connections. Workers then end by themselves, or are terminated after two seconds."""
        for link in self._links:
            link.close()
        for process in self._processes:
            process.join(timeout=2.0)
            if process.is_alive():
                process.terminate()
                process.join()


def make_pool(jobs: dict[str, Job], workers: int) -> Pool:
    """Return a pool of `workers` workers; one means this process."""
    return Forked(jobs, workers) if workers > 1 else InProcess(jobs)


def run_jobs(jobs: Sequence[Callable[[], None]], workers: int, on_done: Callable[[int], None]) -> None:
    """Run all jobs, a few at a time. The first error stops the rest and is raised here.

    A job leaves its result in files. With one worker, jobs run in this process in turn.
    """
    count = min(workers, len(jobs)) if hasattr(os, "fork") else 1
    pool = make_pool({"job": lambda index: jobs[index]()}, count)
    try:
        pool.map("job", [(index,) for index in range(len(jobs))], lambda index, _: on_done(index))
    finally:
        pool.close()


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def default_workers(parameters: int, silos: int) -> int:
    """Return the smaller number of cores and silos; one for tiny models, and where forking after CUDA would fail."""
    if parameters < 2_000 or torch.cuda.is_available() or not hasattr(os, "fork"):
        return 1
    return max(1, min(silos, cores()))


def fork_context() -> multiprocessing.context.ForkContext:
    """Return the context for forked processes."""
    return multiprocessing.get_context("fork")


def start_process(process: ForkProcess) -> None:
    """Start a process with Ctrl-C blocked, because an interrupt raised during a fork would be lost."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one intra-op thread, so that sums are computed in the same order everywhere."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _serve(link: Connection, others: list[Connection], jobs: dict[str, Job]) -> None:
    """Run jobs in a worker until the other end closes the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C
    # Close inherited ends of other connections; otherwise their workers would not notice that the parent has gone.
    for other in others:
        other.close()
    serve_jobs(link, jobs)


def serve_jobs(link: Connection, jobs: dict[str, Job], threads: int = 1) -> None:
    """Run the jobs that arrive, and send back (True, the result) or (False, the error), until the other end closes."""
    torch.set_num_threads(threads)
    while True:
        try:
            name, arguments = link.recv()
        except (EOFError, OSError):
            return
        try:
            answer = (True, jobs[name](*arguments))
        except RpdpError as error:
            answer = (False, error)
        except Exception as error:
            answer = (False, WorkerError(f"{type(error).__name__}: {error}"))
        try:
            link.send(answer)
        except (BrokenPipeError, OSError):
            return
