"""What an agent writes down for people who watch it: a status file for the steward, metrics for a monitoring system.

| file | who may read it | holds |
|---|---|---|
| `ledger.db.agent` | the agent's user alone (0600) | since when it is up, its last answer, its last problem in words |
| `[metrics] file` | everybody on the machine | `PublicCounts`: what the server knows as well |

Both are written after an answer has left its turn, at a public time: a file that appeared when training ended would
tell how long it took (privacy.md, rule 14). `PublicCounts` is made from requests and answers alone, never from the
agent or its silo, so that nothing else can get into the metrics. A file that cannot be written changes no answer.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rpdp.errors import InputError
from rpdp.federation.frames import MAGIC
from rpdp.federation.handshake import Greeting
from rpdp.metrics_text import MetricFamily, metrics_text
from rpdp.private_files import OWNER_ONLY, private_file
from rpdp.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from rpdp.federation.frames import Frame

LOG = logging.getLogger("rpdp.silo")

STATUS_FORMAT = "rpdp-agent-status/1"
_EVERYBODY = 0o644
_MOST_RUNS = 64
"""Runs in the metrics: those that were admitted last."""

_ANSWERS = ("admitted", "cancelled", "update", "sat-out", "refused")


@dataclass
class PublicCounts:
    """What has left the silo since its agent started, as its server knows it, too.

    Attributes:
        silo: The silo's name.
        since: When the agent started, in seconds since 1970.
    """

    silo: str
    since: float
    _answers: Counter[str] = field(default_factory=Counter)
    _refusals: Counter[str] = field(default_factory=Counter)
    _rounds: dict[str, tuple[int, int]] = field(default_factory=dict)
    _joined: Counter[str] = field(default_factory=Counter)
    _last: float | None = None
    _events: int | None = None
    _greeting: Greeting = field(default_factory=Greeting)

    def note(self, request: Frame, answer: Frame, now: float) -> None:
        """Count an answer that the server gets."""
        if request.kind == "hello":
            self._greeting = Greeting.of(request.facts, now)
            return
        self._answers[answer.kind] += 1
        self._last = now
        if answer.kind == "refused":
            self._refusals[str(answer.facts["reason"])] += 1
            return
        head = answer.facts.get("head")
        self._events = None if head is None else int(head["count"])
        run = str(request.facts["run"])
        if answer.kind == "admitted":
            self._rounds.setdefault(run, (0, int(request.facts["plan"]["schedule"]["rounds"])))
            while len(self._rounds) > _MOST_RUNS:
                gone = next(iter(self._rounds))
                del self._rounds[gone]
                self._joined.pop(gone, None)
        elif answer.kind in ("update", "sat-out") and run in self._rounds:
            last, planned = self._rounds[run]
            if request.facts["round"] > last:
                self._rounds[run] = (int(request.facts["round"]), planned)
                self._joined[run] += answer.kind == "update"

    def families(self) -> list[MetricFamily]:
        """The counts as metrics."""
        info = MetricFamily("rpdp_silo_info", "The silo and its release of rpdp.")
        info.add(1, silo=self.silo, version=__version__, protocol=MAGIC.decode())
        started = MetricFamily("rpdp_silo_start_time_seconds", "When the agent started.")
        started.add(self.since)
        last = MetricFamily("rpdp_silo_last_answer_time_seconds", "When the last answer left.")
        events = MetricFamily("rpdp_silo_public_events", "Public events in the ledger: admissions, charges, releases.")
        skew = MetricFamily("rpdp_silo_server_clock_ahead_seconds", "How far the server's clock is ahead of ours.")
        for family, value in ((last, self._last), (events, self._events), (skew, self._greeting.ahead)):
            if value is not None:
                family.add(round(value))
        answers = MetricFamily("rpdp_silo_answers_total", "Answers to the server, by kind.", "counter")
        for kind in _ANSWERS:
            answers.add(self._answers[kind], answer=kind)
        refusals = MetricFamily("rpdp_silo_refusals_total", "Refusals, by the word that the server got.", "counter")
        for word, count in self._refusals.items():
            refusals.add(count, reason=word)
        rounds = MetricFamily("rpdp_silo_round", "The last round that was answered.")
        planned = MetricFamily("rpdp_silo_rounds_planned", "The rounds of the run's plan.")
        joined = MetricFamily("rpdp_silo_updates_total", "Rounds that were answered with an update.", "counter")
        for run, (number, total) in self._rounds.items():
            rounds.add(number, run=run)
            planned.add(total, run=run)
            joined.add(self._joined[run], run=run)
        return [info, started, last, events, skew, answers, refusals, rounds, planned, joined]


class AgentJournal:
    """Writes both files. Safe to use from several threads.

    Args:
        silo: The silo's name.
        status: The status file; None for none.
        metrics: The metrics file; None for none.
        clock: The wall clock.
    """

    def __init__(
        self,
        silo: str,
        *,
        status: Path | None = None,
        metrics: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._status, self._metrics, self._clock = status, metrics, clock
        self._lock = threading.Lock()
        self._silo, self._since = silo, clock()
        self._counts = PublicCounts(silo, self._since)
        self._last: dict[str, Any] | None = None
        self._problem: dict[str, Any] | None = None
        self._found = threading.local()
        self._said: list[str] = []
        self._greeting = Greeting()
        self._failed = ""

    def begin(self) -> None:
        """Write both files for the first time; what cannot be written is refused now."""
        with self._lock:
            try:
                self._write()
            except (OSError, InputError) as error:
                raise InputError(f"{error}: the agent's status or metrics file cannot be written") from None

    def end(self) -> None:
        """Remove both files: whoever looks finds no agent, not an old one."""
        with self._lock:
            for path in (self._status, self._metrics):
                if path is not None:
                    path.unlink(missing_ok=True)

    def note(self, request: Frame, answer: Frame) -> None:
        """Note an answer that has left its turn."""
        if request.kind == "hello" and "clock" not in request.facts:
            return  # somebody at the silo, such as `rpdp silo status`, or a server of release 0.1
        with self._lock:
            now = self._clock()
            if request.kind == "hello":
                self._meet(request, now)
            else:
                word = answer.facts.get("reason") if answer.kind == "refused" else answer.kind
                self._last = {"time": now, "request": request.kind, "answer": word} | _named(request.facts)
                self._problem = vars(self._found).pop("problem", self._problem)
            self._counts.note(request, answer, now)
            self._write_quietly()

    def note_problem(self, sentence: str) -> None:
        """Keep a sentence for the steward. It is written with the answer of this thread, not before."""
        self._found.problem = {"time": self._clock(), "sentence": sentence}

    def _meet(self, request: Frame, now: float) -> None:
        """Tell the silo's log about the server's release and clock, once."""
        self._greeting = Greeting.of(request.facts, now)
        remarks = self._greeting.remarks("the server")
        kinds = [text.split(" is ")[0] for text in remarks]
        if kinds != self._said:
            self._said = kinds
            for text in remarks:
                LOG.warning("%s", text)

    def _write_quietly(self) -> None:
        try:
            self._write()
            self._failed = ""
        except (OSError, InputError) as error:
            if str(error) != self._failed:  # once, not with every answer
                LOG.warning("the agent's status or metrics cannot be written: %s", error)
            self._failed = str(error)

    def _write(self) -> None:
        if self._status is not None:
            facts = {
                "format": STATUS_FORMAT,
                "silo": self._silo,
                "pid": os.getpid(),
                "since": self._since,
                "version": __version__,
                "protocol": MAGIC.decode(),
                "server_version": self._greeting.version,
                "server_ahead": self._greeting.ahead,
                "last": self._last,
                "problem": self._problem,
            }
            _replace(self._status, json.dumps(facts, indent=1) + "\n", OWNER_ONLY)
        if self._metrics is not None:
            _replace(self._metrics, metrics_text(self._counts.families()), _EVERYBODY)


def _named(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: facts[name] for name in ("run", "round") if name in facts}


def _replace(path: Path, text: str, mode: int) -> None:
    with private_file(path, overwrite=True, mode=mode) as file:
        os.fchmod(file.fileno(), mode)  # whatever the umask: node_exporter reads the metrics
        file.write(text.encode())
