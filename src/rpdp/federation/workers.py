"""Worker processes for the simulator: each holds all silos, trains one at a time with one thread.

Workers are forked after admission, so they see records and models without a copy, and anybody's model and loss can be
used without pickling. With one worker everything runs in this process, with the same bits: each job depends on its
arguments and keyed random streams only.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from contextlib import contextmanager, suppress
from importlib import import_module
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
    """Nothing to do with a single result."""


class Pool(Protocol):
    """Runs named jobs."""

    def map(
        self, name: str, arguments: Sequence[tuple[Any, ...]], on_result: Callable[[int, Any], None] = _ignore
    ) -> list[Any]:
        """The results of one job for each tuple of arguments, in order; `on_result` is told each when it is there."""
        ...

    def close(self) -> None:
        """Stop the workers."""
        ...


class WorkerError(RpdpError):
    """A worker process ended or failed in a way that is not about the input."""


class InProcess:
    """No worker: jobs run here, one after the other; the caller sees to one thread, as in a worker."""

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
        """Nothing to stop."""


class Forked:
    """Forked workers; a job goes to whichever is free."""

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
            with suppress(OSError):  # a worker that has died is noticed when its answer is read
                link.send((name, arguments))
            busy[link] = index

    def _receive(self, link: Connection) -> tuple[bool, Any]:
        try:
            good, value = link.recv()
        except (EOFError, OSError):
            return False, WorkerError(
                "a worker process died (out of memory?); nothing of its round was released. Use fewer workers"
            )
        return bool(good), value

    def close(self) -> None:
        """Close the links; workers end by themselves, or are ended after a moment."""
        for link in self._links:
            link.close()
        for process in self._processes:
            process.join(timeout=2.0)
            if process.is_alive():
                process.terminate()
                process.join()


def make_pool(jobs: dict[str, Job], workers: int) -> Pool:
    """A pool of so many workers; one means this process."""
    return Forked(jobs, workers) if workers > 1 else InProcess(jobs)


def run_jobs(jobs: Sequence[Callable[[], None]], workers: int, on_done: Callable[[int], None]) -> None:
    """Run all jobs, a few at a time; the first error ends the rest and is raised here.

    A job leaves its result in files. With one worker jobs run in this process, one after the other.
    """
    count = min(workers, len(jobs)) if hasattr(os, "fork") else 1
    pool = make_pool({"job": lambda index: jobs[index]()}, count)
    try:
        pool.map("job", [(index,) for index in range(len(jobs))], lambda index, _: on_done(index))
    finally:
        pool.close()


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def default_workers(parameters: int, silos: int) -> int:
    """As many as there are cores and silos; one for tiny models, and where forking after CUDA would fail."""
    if parameters < 2_000 or torch.cuda.is_available() or not hasattr(os, "fork"):
        return 1
    return max(1, min(silos, cores()))


def fork_context() -> multiprocessing.context.ForkContext:
    """Processes by fork, after loading what every optimiser loads at its first step: once, not in each process."""
    import_module("torch._dynamo")
    return multiprocessing.get_context("fork")


def start_process(process: ForkProcess) -> None:
    """Start a process with Ctrl-C held back: raised inside the machinery of a fork it would be lost."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def one_thread() -> Iterator[None]:
    """One intra-op thread, so that sums have the same order everywhere."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _serve(link: Connection, others: list[Connection], jobs: dict[str, Job]) -> None:
    """A worker's life: jobs until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started us
    for other in others:
        other.close()
    torch.set_num_threads(1)
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
