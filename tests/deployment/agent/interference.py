"""The non-interference experiment: the same conversation with two agents, one of which holds the target record.

The asker is a server: it sees kinds, sizes, reasons and times of answers, and nothing else. Both agents get the same
requests at the same moment. A *unit* is one round with what goes with it: the announcement, "hello" while it is
answered and after it, and a request that is refused but needs a turn, so that it shows when the agent has one. Where
agents carry two runs, a round of the other run is announced in place of the first "hello", and waits for its turn. In
some cases a unit is an admission instead, "hello" while it is answered, and its cancellation.

A unit differs if an answer differs in kind, reason or size, or if the times of the whole unit differ by more than
`RESOLUTION`; its sign says which agent is the larger. If the target causes nothing, the two agents are exchangeable in
every unit, and both signs are equally likely: load on the machine may make units differ, but not in one direction. So:

1. `SCREENED` units. If the signs do not favour one agent by `SUSPICIOUS` or more, the case is indistinguishable.
2. Otherwise `CONFIRMED` fresh units, then as many again. A sign test on the units that differ, at `ALARM` / 2 for each
   look, decides. False alarms happen with probability at most `ALARM` for a case, whatever the screening found.
3. On a machine that starves one process for a minute the two are not exchangeable. So agents get as much more time as
   the machine is slower than it could be, and what is found must be found again with two new processes.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from math import comb
from typing import TYPE_CHECKING, Any

import numpy as np

from rpdp.deployment.agent.agent_client import Unreachable, ask
from rpdp.federation.frames import Frame
from tests.deployment.agent import interference_zoo as zoo
from tests.deployment.agent.interference_host import BESIDE, RELEASE_AFTER, ROUNDS, Case, serve
from tests.deployment.agent.scene import MOST, RUN, admission, announcement, cancellation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from rpdp import PublicPlan

ALARM = 4e-5
SCREENED = 5
SUSPICIOUS = 2
CONFIRMED = 17
"""The fewest units that can reach the level: 2⁻¹⁶ < `ALARM` / 2."""

RESOLUTION = 0.1
"""Share of `release_after`."""

ADMISSION_SECONDS = 60.0
"""An admission computes the whole table of its plan; many agents do so at once here."""

PATIENCE = 4.0
"""Times `release_after`."""

STOPPED = 10.0
"""Seconds in which SIGTERM must end an agent."""

WITH, WITHOUT = "with", "without"
HELLO = Frame({"kind": "hello"})


# The server's choices


def announced_model(case: Case) -> NDArray[np.float32]:
    """The flat model that a hostile server announces."""
    values = np.concatenate([value.detach().numpy().reshape(-1) for value in zoo.make_model(case.model).parameters()])
    size = len(values)
    made: dict[str, Callable[[], Any]] = {
        "zeros": lambda: np.zeros(size),
        "its own": lambda: values,
        "1e30": lambda: np.full(size, 1e30),
        "alternating": lambda: 1e30 * (-1.0) ** np.arange(size),
        "largest": lambda: np.full(size, float(np.finfo(np.float32).max)),
        "denormal": lambda: np.full(size, 1e-42),
        "crafted": lambda: _crafted(size),
        "crafted, modest": lambda: _crafted(size, 1e20),
    }
    return np.asarray(made[case.weights](), dtype=np.float32)


def _crafted(size: int, huge: float = 1e30) -> NDArray[np.float64]:
    """Two ReLU units that are 0 for every record with a first feature below 20, and cancel at infinity above it."""
    first = np.zeros((2, zoo.FEATURES))
    first[:, 0] = huge
    values = np.concatenate([first.reshape(-1), [-20.0 * huge] * 2, [huge, -huge], [0.0]])
    assert len(values) == size, "for the models with two ReLU units"
    return values


# The two worlds

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch._dynamo", "tests.deployment.agent.interference_host"])


@dataclass
class World:
    """One agent, as the server meets it."""

    folder: Path
    process: Any
    state: str
    text: Any
    release_after: float = RELEASE_AFTER

    def ask(self, request: Frame) -> tuple[tuple[str, str, int], float]:
        """What a server sees of the answer (kind, reason, size), and the time that it took."""
        began = time.monotonic()
        try:
            patience = PATIENCE * self.release_after + (ADMISSION_SECONDS if request.kind == "admit" else 0.0)
            data = ask(self.folder / "s", request.to_bytes(), timeout=patience)
            answer = Frame.from_bytes(data, MOST)
            seen = (answer.kind, str(answer.facts.get("reason")), _size(answer))
        except Unreachable:
            seen = ("nothing", "", 0)
        return seen, time.monotonic() - began

    def stop(self) -> float:
        """Ask it to end by SIGTERM; the seconds that it took, or infinity."""
        began = time.monotonic()
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGTERM)
        self.process.join(STOPPED)
        return time.monotonic() - began if self.process.exitcode is not None else float("inf")

    def end(self) -> None:
        """End the process and everything that it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()


def _size(answer: Frame) -> int:
    """The length of an answer; that of the ledger's head counts with its public numbers as they are."""
    return len(answer.to_bytes())


def open_world(folder: Path, case: Case, with_target: bool, leak: str | None = None) -> World:
    """Start an agent in a process of its own, and wait until it serves or refuses to."""
    here, there = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=serve, args=(folder, case, with_target, leak, there))
    process.start()
    there.close()
    world = World(folder, process, "silent", "", case.release_after)
    try:
        if here.poll(60.0):
            world.state, world.text = here.recv()
    except EOFError:
        world.state = "died"
    here.close()
    until = time.monotonic() + 10.0
    while world.state == "ready" and not (folder / "s").exists() and time.monotonic() < until:
        time.sleep(0.01)
    return world


# The conversation


@dataclass
class Unit:
    """One round with both agents."""

    seen: dict[str, list[tuple[str, str, int]]] = field(default_factory=dict)
    times: dict[str, list[float]] = field(default_factory=dict)
    release_after: float = RELEASE_AFTER

    @property
    def sign(self) -> int:
        """0 if the agents cannot be told apart; else which one is larger, in kinds and sizes or else in time."""
        one, other = self.seen[WITH], self.seen[WITHOUT]
        if one != other:
            return 1 if one > other else -1
        late = sum(self.times[WITH]) - sum(self.times[WITHOUT])
        return 0 if abs(late) <= RESOLUTION * self.release_after else (1 if late > 0 else -1)


class Conversation:
    """The same requests to both agents at the same moment."""

    def __init__(self, case: Case, worlds: dict[str, World], pool: ThreadPoolExecutor) -> None:
        self.public: PublicPlan = case.public
        self.worlds = worlds
        self._pool = pool
        self._case = case
        self._model = announced_model(case)
        self._next = 1
        self._tried = 0

    def ask(self, *requests: Frame, meanwhile: Frame = HELLO) -> Unit:
        """Ask both, and something else while the first request is answered; who is asked first changes."""

        def talk(world: World) -> list[tuple[tuple[str, str, int], float]]:
            first = self._pool.submit(world.ask, requests[0])
            time.sleep(self._case.release_after / 3)
            other = world.ask(meanwhile)
            return [first.result(), other, *(world.ask(request) for request in requests[1:])]

        order = [WITH, WITHOUT] if (self._next + self._tried) % 2 else [WITHOUT, WITH]
        asked = {name: self._pool.submit(talk, self.worlds[name]) for name in order}
        unit = Unit(release_after=self._case.release_after)
        for name, future in asked.items():
            unit.seen[name], unit.times[name] = map(list, zip(*future.result(), strict=True))
        return unit

    def admit(self) -> Unit:
        """Propose the plan, of two runs if the agents are to carry two."""
        runs = [RUN, BESIDE] if self._case.beside else [RUN]
        return self.ask(HELLO, *(admission(self.public, run) for run in runs))

    def try_admission(self) -> Unit:
        """Propose the plan for a run of another name, and cancel that run."""
        self._tried += 1
        run = f"try {self._tried}"
        return self.ask(admission(self.public, run), cancellation(run))

    def round(self) -> Unit:
        """Announce the next round; then "hello", and a request that needs a turn and nothing else."""
        number, self._next = self._next, self._next + 1
        meanwhile = self._announced(BESIDE, number) if self._case.beside else HELLO
        return self.ask(self._announced(RUN, number), HELLO, announcement(self.public, ROUNDS + 1), meanwhile=meanwhile)

    def _announced(self, run: str, number: int) -> Frame:
        frame = announcement(self.public, number, run=run)
        payload = self._model.tobytes()
        correction = self._case.correction
        if correction is not None:
            payload += np.full(len(self._model), correction, dtype=np.float32).tobytes()
        facts = {**frame.facts, "correction": correction is not None}
        return Frame(facts, payload)


# Verdicts


GOOD_WORDS = ("refused", "indistinguishable", "not covered")


@dataclass(frozen=True)
class Verdict:
    """How a case ended: one of `GOOD_WORDS`, "LEAK", or "NO UPDATE": silence on both sides would show nothing."""

    case: str
    word: str
    detail: str
    units: int = 0

    @property
    def is_good(self) -> bool:
        return self.word in GOOD_WORDS


def sign_test(signs: Sequence[int]) -> float:
    """The two-sided p-value of a sign test; units that do not differ do not count."""
    larger, smaller = signs.count(1), signs.count(-1)
    count, most = larger + smaller, max(larger, smaller)
    return min(1.0, 2.0 * sum(comb(count, each) for each in range(most, count + 1)) / 2.0**count)


def examine(case: Case, worlds: dict[str, World]) -> Verdict:
    """Converse with both agents, and judge."""
    one, other = worlds[WITH], worlds[WITHOUT]
    if one.state != "ready" or other.state != "ready":
        if (one.state, one.text) == (other.state, other.text) and one.state == "refused":
            return Verdict(case.name, "refused", f"check: {_short(one.text)}")
        return Verdict(case.name, "LEAK", f"at the start: {one.state} {one.text} / {other.state} {other.text}")
    with ThreadPoolExecutor(4) as pool:
        talk = Conversation(case, worlds, pool)
        if not case.admissions and (ended := _admitted(case, talk.admit())) is not None:
            return ended
        unit = talk.try_admission if case.admissions else talk.round
        verdict = _judge(case, [unit() for _ in range(SCREENED)], unit)
    stopped = {name: world.stop() for name, world in worlds.items()}
    if max(stopped.values()) > STOPPED and verdict.is_good:
        return Verdict(case.name, "LEAK", f"SIGTERM did not end it: {stopped}", verdict.units)
    if verdict.word == "LEAK" and one.text and one.text == other.text:
        return Verdict(case.name, "not covered", f"{'; '.join(one.text)}: {verdict.detail}", verdict.units)
    return verdict


def _admitted(case: Case, unit: Unit) -> Verdict | None:
    """None if both agents admitted the run; else how the case ended."""
    if unit.seen[WITH] != unit.seen[WITHOUT]:
        return Verdict(case.name, "LEAK", f"admission: {unit.seen}")
    kind, reason, _ = unit.seen[WITH][-1]
    if kind == "nothing":
        return Verdict(case.name, "NO UPDATE", "admission: no answer in time")
    return None if kind == "admitted" else Verdict(case.name, "refused", f"admission: {reason}")


def _judge(case: Case, screened: list[Unit], more: Callable[[], Unit]) -> Verdict:
    signs = [unit.sign for unit in screened]
    if abs(sum(signs)) < SUSPICIOUS:
        while not (case.overflows or _done(screened)):  # the machine may be so busy that rounds are late
            if len(screened) == 4 * SCREENED:
                return Verdict(case.name, "NO UPDATE", _seen(screened), len(screened))
            screened.append(more())
        return Verdict(case.name, "indistinguishable", _seen(screened), len(screened))
    fresh: list[Unit] = []
    for _ in range(2):
        fresh += [more() for _ in range(CONFIRMED)]
        chance = sign_test([unit.sign for unit in fresh])
        if chance < ALARM / 2:
            return Verdict(case.name, "LEAK", f"{_difference(fresh)}, p = {chance:.1g}", len(screened + fresh))
    return Verdict(case.name, "indistinguishable", f"{_seen(fresh)}, p = {chance:.1g}", len(screened + fresh))


def _done(units: list[Unit]) -> bool:
    """Whether both agents did once what was asked."""
    first = [{unit.seen[name][0][0] for name in (WITH, WITHOUT)} for unit in units]
    return {"update"} in first or {"admitted"} in first


def _seen(units: list[Unit]) -> str:
    kinds = sorted({unit.seen[WITH][0][0] for unit in units})
    worst = max(abs(sum(unit.times[WITH]) - sum(unit.times[WITHOUT])) for unit in units)
    return f"{' and '.join(kinds)}, within {1000 * worst:.0f} ms"


def _difference(units: list[Unit]) -> str:
    def told(name: str) -> str:
        kinds = [each[0] if each[1] == "None" else each[1] for each in units[-1].seen[name]]
        return f"{'/'.join(kinds)} in {np.mean([sum(unit.times[name]) for unit in units]):.2f} s"

    return f"{told(WITH)} against {told(WITHOUT)}"


def _short(text: str) -> str:
    return text.removeprefix("/silo.toml: ")[:90]


def run_cases(
    folder: Path, cases: Sequence[Case], *, leaks: Sequence[str | None] = (), at_once: int = 8
) -> list[Verdict]:
    """Examine cases, some at a time: agents spend most of their time waiting. A control has the agent of a leak.

    All agents of a batch are open before the first conversation begins, because opening takes the machine's time.
    """
    changes = list(leaks) or [None] * len(cases)
    after = RELEASE_AFTER * max(1.0, slowdown() / 1.5)
    wanted = [replace(case, release_after=after) for case in cases]
    verdicts = _run_batches(folder, wanted, changes, at_once)
    again = [number for number, verdict in enumerate(verdicts) if not verdict.is_good and changes[number] is None]
    (folder / "again").mkdir(mode=0o700)
    for number in again:
        (verdicts[number],) = _run_batches(folder / "again", [wanted[number]], [None], 1, first=number)
    return verdicts


def slowdown() -> float:
    """How much longer a computation takes here than the processor needs for it."""
    began, worked = time.monotonic(), time.process_time()
    while time.process_time() - worked < 0.2:
        pass
    return (time.monotonic() - began) / 0.2


def _run_batches(
    folder: Path, cases: Sequence[Case], changes: Sequence[str | None], at_once: int, *, first: int = 0
) -> list[Verdict]:
    verdicts: list[Verdict] = []
    for start in range(0, len(cases), at_once):
        numbers = range(start, min(start + at_once, len(cases)))
        batch = {first + number: (cases[number], changes[number]) for number in numbers}
        with _opened(folder, batch) as worlds, ThreadPoolExecutor(at_once) as pool:
            verdicts += pool.map(examine, [cases[number] for number in numbers], worlds)
    return verdicts


@contextmanager
def _opened(folder: Path, wanted: dict[int, tuple[Case, str | None]]) -> Iterator[list[dict[str, World]]]:
    """Both agents of several cases; their processes are ended in any case."""
    places = {number: folder / str(number) for number in wanted}
    for place in places.values():
        place.mkdir(mode=0o700)

    def opened(number: int, name: str) -> World:
        case, leak = wanted[number]
        return open_world(places[number] / name, case, name == WITH, leak)

    with ThreadPoolExecutor(4) as pool, ExitStack() as stack:
        pending = [{name: pool.submit(opened, number, name) for name in (WITH, WITHOUT)} for number in wanted]
        worlds = [{name: future.result() for name, future in each.items()} for each in pending]
        for world in [world for each in worlds for world in each.values()]:
            stack.callback(world.end)
        yield worlds


def table(verdicts: Sequence[Verdict]) -> str:
    """All verdicts, their numbers, and the rate of false alarms."""
    width = max(len(verdict.case) for verdict in verdicts)
    lines = [f"{n:3d}  {one.case:{width}s}  {one.word:17s}  {one.detail}" for n, one in enumerate(verdicts, 1)]
    words = (*GOOD_WORDS, "LEAK", "NO UPDATE")
    counts = ", ".join(f"{sum(one.word == word for one in verdicts)} {word}" for word in words)
    units = sum(one.units for one in verdicts)
    rate = f"false alarms: at most {ALARM:g} a case, {ALARM * len(verdicts):.2g} for all"
    return "\n".join(["", *lines, f"{len(verdicts)} cases, {units} pairs of rounds: {counts}; {rate}", ""])
