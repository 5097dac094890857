"""Local work in a process that can be ended at any time: what an agent trains, and adds up sums, with.

Models, losses and measures are the silo's own code, and a record may make them slow or endless. A thread cannot be
ended, a process can. At the public time the agent ends it, the round sits out, and the next round finds a new process
(privacy.md, rule 16).

    agent ── control ── keeper ── fork ── trainer
      └───────────────── link ───────────────┘

The keeper is forked once, while the agent has no other threads and no ledger yet. It runs no code of the silo's: it
forks a trainer, which inherits models and records without a copy, waits for one byte from the agent, ends the trainer,
and forks the next one. If the agent goes, however it goes, the keeper ends the trainer and itself.

The agent keeps the accounts. Before every step the trainer asks it which records are withdrawn. For a tiny model a
question costs as much as a step, so the trainer first looks at the inbox of the ledger, with one `stat`, and asks only
if something may have arrived there (privacy.md, section 8).
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import socket
import threading
import time
import warnings
import weakref
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rpdp.display import counts_repr
from rpdp.federation.local_training import LocalTraining, make_optimiser
from rpdp.federation.local_work import TrainingWork
from rpdp.federation.messages import Announcement
from rpdp.federation.workers import WorkerError, fork_context, serve_jobs, start_process
from rpdp.ledger.stewardship.directory_watch import DirectoryWatch
from rpdp.planning import PublicPlan, Recipe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray
    from torch import Tensor

    from rpdp.federation.local_training import SamplingPlan
    from rpdp.federation.local_work import LocalWork
    from rpdp.federation.purposes import Purposes
    from rpdp.sampling import Randomness
    from rpdp.training import Kernel, Records

_LOOK_SECONDS = 0.02
"""How often the agent looks whether there is time left while it waits for a trainer, or for a step."""

_PR_SET_PDEATHSIG = 1
"""From <sys/prctl.h>: the signal that a process gets when its parent ends."""


@dataclass(frozen=True)
class _ReceivedPlan:
    """The part of a silo plan that training needs."""

    public: PublicPlan
    q: NDArray[np.float64]
    active_rounds: NDArray[np.int32]

    __repr__ = counts_repr


class TrainingProcess:
    """Does the local work of one silo's rounds in another process.

    Guarantee: `train` returns or raises soon after `in_time` returns False, whatever the silo's own code does.

    Args:
        kernels: By the fingerprint of the model.
        records: The silo's records.
        randomness: Creates the randomness of a run, in the other process.
        threads: Threads for torch. More than one need a process that has not used torch with several threads before.
        training: How a round is trained.
        purposes: What answers plans with requests; None if nothing does.
    """

    def __init__(
        self,
        kernels: Mapping[str, Kernel],
        records: Records,
        randomness: Callable[[], Randomness],
        *,
        threads: int = 1,
        training: type[LocalTraining] = LocalTraining,
        purposes: Purposes | None = None,
    ) -> None:
        _warm_up()
        trainer = _Trainer(kernels, records, randomness, training, purposes, threads)
        here, there = socket.socketpair()
        self._control = here
        self._lock = threading.Lock()  # `close` may come from another thread than `train`
        self._closed = False
        self._link: Connection | None = None
        context = fork_context()
        self._keeper = context.Process(target=_keep, args=(there, trainer), name="rpdp-trainers", daemon=True)
        start_process(self._keeper)
        there.close()
        weakref.finalize(self, here.close)  # then the keeper ends, also where nobody calls `close`

    def train(
        self,
        plan: SamplingPlan,
        announcement: Announcement,
        switched_off: Callable[[], NDArray[np.int64]],
        in_time: Callable[[], bool],
        inbox: Path | None,
    ) -> tuple[Tensor, NDArray[np.int64]] | None:
        """Return the update and how often each record was drawn; None if there was no time.

        `switched_off` is called before every step at which its answer may be new. If it raises, training ends.

        | `inbox` | `switched_off` is called |
        |---|---|
        | None: an account in this process's memory | before every step |
        | a directory | before the first step, and before every step at which the directory may have changed |
        | is missing or cannot be looked at | before every step; the account refuses |
        """
        try:
            link = self._trainer(in_time)
            if link is None:
                return None
            link.send(("train", (inbox, *_packed(plan, announcement))))
            return self._followed(link, switched_off, in_time)
        except BaseException as error:
            self._end_trainer()
            if isinstance(error, EOFError | OSError):
                raise WorkerError("the training process has ended") from None
            raise

    def _followed(
        self, link: Connection, switched_off: Callable[[], NDArray[np.int64]], in_time: Callable[[], bool]
    ) -> tuple[Tensor, NDArray[np.int64]] | None:
        told: NDArray[np.int64] | None = None
        while True:
            while not link.poll(_LOOK_SECONDS):
                if not in_time():
                    self._end_trainer()
                    return None
            good, value = link.recv()
            if good is None:  # a step begins, and a withdrawal may have arrived since the last question
                off = switched_off()
                link.send(None if told is not None and np.array_equal(off, told) else off)
                told = off
            elif good:
                if not in_time():  # it ended between two looks
                    return None
                change, draws = value
                return torch.from_numpy(change), draws
            else:
                raise value

    def _trainer(self, in_time: Callable[[], bool]) -> Connection | None:
        """The connection to the trainer that the keeper has made; None if there was no time to wait for it."""
        while True:
            with self._lock:
                if self._closed:
                    raise WorkerError("the training process was stopped")
                if self._link is None and wait([self._control], 0.0):
                    _, handles, _, _ = socket.recv_fds(self._control, 1, 1)
                    if not handles:
                        raise WorkerError("the process that makes training processes has ended; restart the agent")
                    self._link = Connection(handles[0])
                if self._link is not None:
                    return self._link
            if not in_time():
                return None
            time.sleep(_LOOK_SECONDS)

    def _end_trainer(self) -> None:
        """End the trainer, in the middle of a step if need be. The keeper makes the next one at once."""
        with self._lock, suppress(OSError):
            if self._link is not None:
                self._link.close()
                self._link = None
                if not self._closed:
                    self._control.send(b".")

    def close(self) -> None:
        """End both processes."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._control.close()
        self._keeper.join()
        self._keeper.close()


def _keep(control: socket.socket, trainer: _Trainer) -> None:
    """Keep one trainer ready, until the agent goes."""
    # Ctrl-C is for the agent. A service manager's SIGTERM ends all processes; the trainer follows this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Inherited objects are never collected here: their finalisers belong to the agent.
    gc.disable()
    gc.freeze()
    _let_go_of_others(control.fileno())
    ended: list[int] = []
    while True:
        here, there = socket.socketpair()
        child = os.fork()
        if child == 0:
            _die_with_parent()
            control.close()
            here.close()
            trainer.serve(Connection(there.detach()))
        there.close()
        with suppress(OSError):  # the agent has gone, which is noticed below
            socket.send_fds(control, [b"."], [here.fileno()])
        here.close()
        asked = _received(control)
        os.kill(child, signal.SIGKILL)
        ended.append(child)
        # Not waited for before the next one is made: a process that dumps its core, or frees much memory, takes a while
        # to go. If a record was the cause, the next round would be late and show it.
        ended = [one for one in ended if os.waitpid(one, os.WNOHANG if asked else 0)[0] == 0]
        if not asked:
            return


def _received(control: socket.socket) -> bytes:
    try:
        return control.recv(1)
    except OSError:
        return b""


def _let_go_of_others(kept: int) -> None:
    """Let go of every inherited file but the standard streams: a ledger's lock, an agent's end of another connection.

    Each file is replaced by the null device, not closed: Arrow has a pipe of its own, which it closes in every fork,
    and it ends the process if that fails.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for handle in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if handle > 2 and handle not in (kept, null):
            with suppress(OSError):  # that of the listing itself, which is closed by now
                os.fstat(handle)
                os.dup2(null, handle)
    os.close(null)


def _die_with_parent() -> None:
    """Let the system end this process when the keeper ends (on Linux; elsewhere only if the keeper can)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class _Trainer:
    """What a trainer inherits, and does."""

    def __init__(
        self,
        kernels: Mapping[str, Kernel],
        records: Records,
        randomness: Callable[[], Randomness],
        training: type[LocalTraining],
        purposes: Purposes | None,
        threads: int,
    ) -> None:
        self._kernels = kernels
        self._records = records
        self._randomness = randomness
        self._training = training
        self._purposes = purposes
        self._threads = threads

    def serve(self, link: Connection) -> None:
        """Train rounds until the process is ended."""
        try:
            gc.enable()
            # A filter that turns warnings into errors must not turn a bad record into a failed round.
            warnings.resetwarnings()
            serve_jobs(link, {"train": lambda *given: self._train(link, *given)}, self._threads)
        finally:
            os.kill(os.getpid(), signal.SIGKILL)  # at once: what the agent would clean up at its end is not ours

    def _train(
        self,
        link: Connection,
        inbox: Path | None,
        plan: str,
        q: NDArray[np.float64],
        active_rounds: NDArray[np.int32],
        *announced: Any,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        public = PublicPlan.from_json(plan)
        announcement = _unpacked(*announced)
        work = self._work(public)
        randomness = self._randomness().child("round", announcement.round)
        off = np.zeros(0, dtype=np.int64)

        def ask() -> NDArray[np.int64]:
            nonlocal off
            link.send((None, None))
            changed = link.recv()
            off = off if changed is None else changed
            return off

        # An account in the agent's memory leaves no trace that could be seen from here: it is asked each time.
        switched_off = ask if inbox is None else DirectoryWatch(inbox, ask).latest
        change, draws = work.run(_ReceivedPlan(public, q, active_rounds), announcement, switched_off, randomness)
        return change.numpy(), draws

    def _work(self, public: PublicPlan) -> LocalWork:
        """What the rounds of a plan do here, as in `Silo`, which has checked the plan."""
        kernel = self._kernels.get(str(public.model_fingerprint))
        if public.request is not None and self._purposes is not None:
            return self._purposes.work(public, None if kernel is None else kernel.model.values.data)
        return TrainingWork(self._kernels[str(public.model_fingerprint)], self._records, self._training)


def _packed(plan: SamplingPlan, announcement: Announcement) -> tuple[Any, ...]:
    """A plan and an announcement as plain text and arrays, which can be sent through a pipe."""
    values = announcement.values.numpy()
    correction = None if announcement.correction is None else announcement.correction.numpy()
    settings = (announcement.run, announcement.plan, announcement.round)
    return (plan.public.to_json(), plan.q, plan.active_rounds, *settings, values, correction)


def _unpacked(run: str, plan: str, number: int, values: Any, correction: Any) -> Announcement:
    shift = None if correction is None else torch.from_numpy(correction)
    return Announcement(run, plan, number, torch.from_numpy(values), shift)


def _warm_up() -> None:
    """Do now what is slow the first time, so that it makes no round late: one optimiser step, torch's compiler.

    No step uses the compiler, but parts of torch load it at their first use, which must not be during a round.
    """
    import_module("torch._dynamo")
    values = torch.zeros(1)
    values.grad = torch.zeros(1)
    make_optimiser(Recipe(), 1, values).step()
