"""The server side of a run over silo agents: hold, announce every round to every silo, average the updates.

A run begins in two phases (privacy.md, section 8). First every silo holds the budgets that it needs. Only when all
silos that the run needs are holding is round 1 announced, which commits them. If one refuses, fails or does not answer,
the holds of the others are cancelled, and the run has cost nobody anything.

The transport is behind `Link`: Flower in a deployment, plain calls in tests. The coordinator keeps its state (model,
log, heads of the silos' ledgers) after every round. After a crash it continues the same run: it announces the
interrupted round again from the same model. Silos that had finished the round send the same bytes; the others sit it
out.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from rpdp.checks import require_count, require_positive
from rpdp.errors import InputError, PrivacyRefusal, Reason, RpdpError
from rpdp.federation.checkpoint import Checkpoint
from rpdp.federation.frames import Frame
from rpdp.federation.handshake import Greeting, hello
from rpdp.federation.heads import newest_heads, read_heads, write_heads
from rpdp.federation.messages import Update
from rpdp.federation.released_sums import ReleasedSums
from rpdp.federation.run_result import RoundLog, RunResult
from rpdp.federation.run_stops import GIVE_UP, PAUSE, StoppedRunError, StopWord, never
from rpdp.federation.server import RoundServer, Server, SumServer
from rpdp.ledger.store.chain import PublicHead
from rpdp.ledger.store.holds import uncovered_note

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from torch import Tensor

    from rpdp.federation.backbones import Backbone
    from rpdp.federation.messages import Announcement
    from rpdp.federation.score import Score
    from rpdp.planning import PublicPlan

LOG = logging.getLogger("rpdp.server")

_SHORTEST_HOLD = 3600
"""Seconds: time to start a server again that was killed between the holds and the first round."""

_CANCEL_ATTEMPTS, _CANCEL_PAUSE = 3, 0.5
_LONGEST_NAME = 100


_HOLDS_NOTHING = (Reason.RUN, Reason.CANCELLED)
"""Refusals of a cancellation that say that there is nothing to cancel."""


class Link(Protocol):
    """The transport of frames to silos by address; what an address is depends on the transport."""

    def addresses(self) -> Mapping[str, str]:
        """Return the addresses that can be reached now, each with the silo known to be there, or "" if unknown."""
        ...

    def ask(self, requests: Mapping[str, bytes], timeout: float) -> dict[str, bytes]:
        """Send requests and return the answers that came in time, by address."""
        ...


@dataclass(frozen=True)
class RoundSettings:
    """How a server runs its rounds. None of this affects the privacy promise.

    Attributes:
        deadline: Seconds after which a round continues with the answers received so far.
        patience: Seconds to wait for silos before the first round.
        least_silos: The run does not start with fewer silos than this; None means all.
        seed: The seed of a simulation, for tests; the silos must be simulated, too.
        hold: Seconds for which silos are asked to hold budgets until the first round, at least patience + deadline. By
            default twice that, and an hour at least.
    """

    deadline: float
    patience: float = 120.0
    least_silos: int | None = None
    seed: int | None = None
    hold: int | None = None

    def __post_init__(self) -> None:
        require_positive("deadline", self.deadline)
        require_positive("patience", self.patience)
        if self.hold is not None:
            require_count("hold", self.hold, least=math.ceil(self.patience + self.deadline))

    @property
    def held_for(self) -> int:
        """The seconds for which silos are asked to hold their budgets."""
        return self.hold or max(_SHORTEST_HOLD, math.ceil(2.0 * (self.patience + self.deadline)))


@dataclass
class _Round:
    """The answers to one round so far."""

    announcements: Mapping[str, Announcement]
    updates: list[Update] = field(default_factory=list)
    faults: dict[str, str] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)


class Coordinator:
    """The server side of one run over agents.

    Silos need not trust it; see `Agent` for how a silo treats its requests. A silo that is late, absent or back again
    costs a round at most that silo's own update.

    Args:
        run: The id of the run, by which the ledgers know it.
        public: The plan.
        values: The flat model to start from, or to evaluate; empty for statistics.
        silos: The names of all silos.
        link: The transport to the silos.
        settings: The settings of the rounds.
        checkpoint: A directory for the state after every round.
        heads: The file with the latest head of every silo's ledger, over all runs of this server.
        backbone: A backbone in place of the one that the plan's recipe names.
        score: Measures the accuracy of a flat model on public records.
        asked: Whether the operator wants the run to stop; asked between rounds.
    """

    def __init__(
        self,
        run: str,
        public: PublicPlan,
        values: Tensor,
        silos: Sequence[str],
        link: Link,
        settings: RoundSettings,
        *,
        checkpoint: str | Path,
        heads: str | Path,
        backbone: Backbone | None = None,
        score: Callable[[Tensor], Score] | None = None,
        asked: Callable[[], StopWord] = never,
    ) -> None:
        if not run or not silos or len(set(silos)) != len(silos):
            raise InputError(f"run={run!r} must be a name, and silos={list(silos)!r} must be different names")
        self._run, self._public, self._link, self._settings = run, public, link, settings
        self._server = _server(run, public, values, silos, backbone)
        start = hashlib.sha256(values.numpy().tobytes() + public.fingerprint.encode()).hexdigest()
        self._identity = f"{run}-{start[:16]}"
        self._checkpoint, self._heads_file, self._score = checkpoint, heads, score
        self._asked = asked
        self._heads = read_heads(heads)
        self._present: Mapping[str, str] = {}
        self._address: dict[str, str] = {}
        self._strangers: set[str] = set()
        self._admitted: set[str] = set()
        self._refusals: dict[str, str] = {}
        self._unready: dict[str, str] = {}
        self._rounds: list[RoundLog] = []
        self._uncovered: dict[str, list[str]] = {}
        self._has_begun = False
        """Whether round 1 may have been announced, in this process or before: from then on nothing is cancelled."""

    @property
    def notes(self) -> list[str]:
        """What the promise does not cover, as far as the silos have said so when they admitted the run."""
        return [uncovered_note(silo, run) for silo, runs in sorted(self._uncovered.items()) for run in runs]

    def go(self, on_round: Callable[[RoundLog], None] | None = None) -> RunResult:
        """Run the remaining rounds."""
        began = time.perf_counter()
        self._restore()
        self._stop_if_asked()
        if not self._server.is_done:
            self._gather()
            write_heads(self._heads_file, self._heads)
            if not self._has_begun:
                # Kept before the first announcement: a server that starts again must know that silos may be charged.
                self._keep_state()
        while not self._server.is_done:
            self._stop_if_asked()
            log = self._round()
            self._rounds.append(log)
            # Heads first: what the server knows of the ledgers must never be older than its model.
            write_heads(self._heads_file, self._heads)
            self._keep_state()
            if on_round is not None:
                on_round(log)
        seconds = time.perf_counter() - began
        rounds, values = tuple(self._rounds), self._server.result
        return RunResult(self._run, self._public, "rpdp", self._settings.seed, values, rounds, {}, seconds)

    def release(self, on_round: Callable[[RoundLog], None] | None = None) -> ReleasedSums:
        """Run the remaining rounds of a plan with a request, and return what all silos released."""
        if not isinstance(self._server, SumServer):
            raise InputError(f"run {self._run!r} has no request: call go, which trains")
        self.go(on_round)
        return ReleasedSums(self._run, self._public, self._server.released, self._settings.seed)

    @property
    def present(self) -> list[str]:
        """The silos that have answered and are still connected."""
        return sorted(self._address)

    def _stop_if_asked(self) -> None:
        """End here if the operator has asked for it; a run that is given up is cancelled where it is held."""
        word, done, of = self._asked(), len(self._rounds), self._public.schedule.rounds
        if word == PAUSE:
            held = "" if self._has_begun else ". Silos that hold budgets for it keep them until their holds end"
            raise StoppedRunError(
                f"run {self._run!r} is paused after {done} of {of} rounds; the same run id continues it{held}"
            )
        if word == GIVE_UP:
            said = f"run {self._run!r} is given up after {done} of {of} rounds"
            if self._has_begun:
                raise StoppedRunError(
                    f"{said}. What silos have charged stays charged; each may add it to closed_runs of its silo file, "
                    "which makes room for another run"
                )
            self._find_silos()
            raise StoppedRunError(said + self._give_up(is_final=True))

    def _find_silos(self) -> None:
        """Learn which silos are there, without asking them to admit anything."""
        requests = {at: frame.to_bytes() for at, frame in self._requests(None).items() if frame.kind == "hello"}
        answers = self._link.ask(requests, self._settings.deadline) if requests else {}
        for address, answer in sorted(answers.items()):
            self._take(address, answer, None)

    def _gather(self) -> None:
        """Wait until all silos that the run needs hold it. If they cannot, cancel it everywhere and say why."""
        until = time.monotonic() + self._settings.patience
        wanted = set(self._server.silos)
        while self._admitted != wanted - set(self._refusals) and time.monotonic() < until:
            moved = self._pass(None, until - time.monotonic())
            self._stop_if_asked()
            if len(wanted - set(self._refusals)) < self._needed:
                reasons = "; ".join(f"{silo}: {reason}" for silo, reason in sorted(self._refusals.items()))
                raise PrivacyRefusal(
                    f"run {self._run!r} was not admitted ({reasons}); see the silos' logs for details{self._give_up()}"
                )
            if not moved and self._admitted != wanted:
                time.sleep(min(0.5, max(until - time.monotonic(), 0.0)))
        missing = sorted(wanted - self._admitted)
        if len(self._admitted) < self._needed:
            reasons = "; ".join(f"{silo}: {self._why_missing(silo)}" for silo in missing)
            raise RpdpError(
                f"{len(self._admitted)} of {len(wanted)} silos are ready after {self._settings.patience:g} s, but "
                f"{self._needed} are needed; missing: {reasons}{self._give_up()}"
            )
        if missing:
            LOG.warning("starting without %s; they may join later", ", ".join(missing))

    def _why_missing(self, silo: str) -> str:
        """What is known of a silo that is not ready, for the operator."""
        if silo in self._refusals:
            return f"refused: {self._refusals[silo]}"
        if silo in self._unready:
            return self._unready[silo]
        is_there = silo in self._address or silo in self._present.values()
        return "its node is connected, but has not answered" if is_there else "its node is not connected"

    @property
    def _needed(self) -> int:
        """How many silos must hold the run. In a run that has begun, those whose holds have ended are out for good."""
        least = self._settings.least_silos or len(self._server.silos)
        ended = [silo for silo, reason in self._refusals.items() if reason == Reason.CANCELLED]
        return max(least - len(ended), 1) if self._has_begun else least

    def _give_up(self, *, is_final: bool = False) -> str:
        """Cancel the run at every silo that may hold it; return what to say about that."""
        if self._has_begun:
            return ". The run has begun; mend this and start it again: the same run continues"
        waiting, cancelled = dict(self._address), set[str]()
        for attempt in range(_CANCEL_ATTEMPTS):
            time.sleep(_CANCEL_PAUSE if attempt else 0.0)
            waiting = self._cancel(waiting, cancelled)
            if not waiting:
                break
        write_heads(self._heads_file, self._heads)
        said = ". No round was announced, so nobody is charged"
        if waiting:
            names = ", ".join(sorted(waiting))
            said += f"; {names} did not answer: a hold there ends by itself within {self._settings.held_for} s"
        if not cancelled:
            return said if is_final else f"{said}. Mend this and start the run again"
        return f"{said}; cancelled at {', '.join(sorted(cancelled))}. A cancelled run never returns: use a new run id"

    def _cancel(self, silos: Mapping[str, str], cancelled: set[str]) -> dict[str, str]:
        """Ask silos at these addresses to cancel the run; return those that must be asked again."""
        present = self._link.addresses()
        requests = {
            address: Frame({"kind": "cancel", "run": self._run, "head": self._head(silo)}).to_bytes()
            for silo, address in silos.items()
            if address in present
        }
        answers = self._link.ask(requests, self._settings.deadline) if requests else {}
        waiting = {}
        for silo, address in silos.items():
            try:
                frame = Frame.from_bytes(answers[address], len(answers[address]))
                self._keep_head(silo, frame)
            except (RpdpError, ValueError, TypeError, KeyError, RecursionError):
                waiting[silo] = address
                continue
            if frame.kind == "cancelled":
                cancelled.add(silo)
            elif frame.kind != "refused" or frame.facts.get("reason") not in _HOLDS_NOTHING:
                waiting[silo] = address
        return waiting

    def _round(self) -> RoundLog:
        began = time.perf_counter()
        current = _Round(self._server.announce())
        until = time.monotonic() + self._settings.deadline
        while self._pass(current, until - time.monotonic()):
            pass
        rejected = self._server.collect(current.updates)
        accepted = tuple(sorted(update.silo for update in current.updates if update.silo not in rejected))
        score = None if self._score is None else self._score(self._server.result)
        seconds = time.perf_counter() - began
        return RoundLog(self._server.round, accepted, {**current.faults, **rejected}, score, seconds)

    def _pass(self, current: _Round | None, timeout: float) -> bool:
        """Send the next request to every silo; return whether any of them should be asked again.

        `current` is the round in progress; None while silos are being admitted.
        """
        requests = self._requests(current)
        if not requests or timeout <= 0.0:
            return False
        answers = self._link.ask({address: frame.to_bytes() for address, frame in requests.items()}, timeout)
        moved = [self._take(address, answer, current) for address, answer in sorted(answers.items())]
        return any(moved)

    def _requests(self, current: _Round | None) -> dict[str, Frame]:
        """Return the next request for each address: for its name, for admission, or for its round."""
        # Other runs of this server may know newer heads: a ledger that was rolled back since then must not pass here.
        self._heads = newest_heads(read_heads(self._heads_file), self._heads)
        present = self._present = self._link.addresses()
        silent = self._refusals if current is None else current.faults
        self._strangers &= set(present)
        for silo, address in list(self._address.items()):
            if address not in present:
                self._forget(silo)
        known = {address: silo for silo, address in self._address.items()}
        requests = {}
        for address in present:
            if address not in known:
                if address not in self._strangers:
                    requests[address] = hello()
                continue
            silo = known[address]
            if silo not in self._admitted:
                if silo not in silent:
                    requests[address] = self._admission(silo)
            elif current is not None and silo not in current.answered:
                requests[address] = self._announced(silo, current.announcements[silo])
        return requests

    def _admission(self, silo: str) -> Frame:
        plan = json.loads(self._public.to_json())
        hold = self._settings.held_for
        return Frame({"kind": "admit", "run": self._run, "plan": plan, "hold": hold, "head": self._head(silo)})

    def _announced(self, silo: str, sent: Announcement) -> Frame:
        vectors = [sent.values] if sent.correction is None else [sent.values, sent.correction]
        payload = b"".join(np.asarray(vector, dtype=f"<f{vector.element_size()}").tobytes() for vector in vectors)
        facts = {"run": sent.run, "plan": sent.plan, "round": sent.round, "correction": sent.correction is not None}
        return Frame({"kind": "round", **facts, "head": self._head(silo)}, payload)

    def _take(self, address: str, answer: bytes, current: _Round | None) -> bool:
        """Process one answer; return whether the silo should be asked again."""
        silo = next((silo for silo, known in self._address.items() if known == address), None)
        try:
            frame = Frame.from_bytes(answer, len(answer))
            if silo is None:
                return self._meet(address, frame)
            self._keep_head(silo, frame)
            return self._take_known(silo, frame, current)
        except (RpdpError, ValueError, TypeError, KeyError, RecursionError) as error:
            name = silo or self._present.get(address, "")
            LOG.warning("%s: malformed response: %s", f"silo {name}" if name else f"address {address}", error)
            if name and isinstance(error, PrivacyRefusal) and error.reason is Reason.VERSION:
                self._unready[name] = str(error)
            if silo is None:
                self._strangers.add(address)
            elif current is not None:
                current.faults[silo] = "malformed response"
                current.answered.add(silo)
            return False

    def _take_known(self, silo: str, frame: Frame, current: _Round | None) -> bool:
        if frame.kind == "admitted":
            self._uncovered[silo] = [str(run)[:_LONGEST_NAME] for run in frame.facts["uncovered"]]
            self._admitted.add(silo)
            write_heads(self._heads_file, self._heads)  # the silo requires its head if it admits this run again
            return current is not None
        if frame.kind == "refused":
            return self._refused(silo, str(frame.facts["reason"]), current)
        if current is not None and frame.kind in ("update", "sat-out"):
            current.answered.add(silo)
            if frame.kind == "update":
                current.updates.append(Update.from_bytes(silo, frame.payload))
        elif frame.kind == "unreachable":
            self._note_unreachable(silo)
        return False

    def _note_unreachable(self, silo: str) -> None:
        LOG.warning("silo %s: its agent cannot be reached", silo)
        self._unready[silo] = "its node is connected, but the agent does not answer there; start the agent"

    def _refused(self, silo: str, reason: str, current: _Round | None) -> bool:
        LOG.warning("silo %s refused: %s", silo, reason)
        if current is None:
            self._refusals[silo] = reason
            return False
        if reason == Reason.RUN and silo in self._admitted:  # its agent was restarted and must admit the run again
            self._admitted.discard(silo)
            return True
        current.faults[silo] = f"refused: {reason}"
        current.answered.add(silo)
        return False

    def _meet(self, address: str, frame: Frame) -> bool:
        """Learn which silo is at a new address; return whether it is one of this run."""
        name = self._present.get(address, "")
        if frame.kind == "unreachable" and name and name not in self._unready:
            self._note_unreachable(name)
        if frame.kind == "refused" and name:
            self._unready[name] = f"its agent refused: {frame.facts['reason']}"
        if frame.kind != "hello":
            return False
        silo = str(frame.facts["silo"])
        if silo not in self._server.silos or silo in self._address or self._present.get(address, "") not in ("", silo):
            LOG.warning("address %s claims to be silo %r, which is not expected there", address, silo)
            self._strangers.add(address)
            return False
        if bool(frame.facts["is_simulation"]) != (self._settings.seed is not None):
            self._refusals[silo] = "a simulation and a real run cannot be mixed"
            self._strangers.add(address)
            return False
        for remark in Greeting.of(frame.facts).remarks(f"silo {silo}"):
            LOG.warning("%s", remark)
        self._unready.pop(silo, None)
        self._address[silo] = address
        return True

    def _forget(self, silo: str) -> None:
        del self._address[silo]
        self._admitted.discard(silo)
        self._strangers.clear()  # one of them may be this silo at a new address

    def _head(self, silo: str) -> dict[str, object] | None:
        head = self._heads.get(silo)
        return None if head is None else asdict(head)

    def _keep_head(self, silo: str, frame: Frame) -> None:
        """Keep the head of a silo, but never replace it by an older one, or by that of another ledger."""
        given = frame.facts.get("head")
        if given is None:
            return
        head = PublicHead.from_json(json.dumps(given))
        known = self._heads.get(silo)
        if known is None or (head.ledger == known.ledger and head.count >= known.count):
            self._heads[silo] = head

    def _restore(self) -> None:
        changed = "the plan or the starting model has changed. A changed run needs a new name"
        kept = Checkpoint.of_run(self._checkpoint, self._identity, changed)
        if kept is not None:
            self._server.restore(kept)
            self._rounds = list(kept.rounds)
            self._has_begun = True

    def _keep_state(self) -> None:
        self._server.checkpoint(self._identity, self._rounds, draws={}).write(self._checkpoint)
        self._has_begun = True


def _server(
    run: str, public: PublicPlan, values: Tensor, silos: Sequence[str], backbone: Backbone | None
) -> RoundServer:
    """What a plan needs of a server: a model that is trained, or sums that are kept."""
    if public.request is not None:
        return SumServer(run, public, values, silos)
    server = Server(run, public, values, silos)
    server.backbone = server.backbone if backbone is None else backbone
    return server
