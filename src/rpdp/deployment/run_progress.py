"""How far the runs of a server are: one small file per run, and metrics made of them. All of it is public.

| file in `server/runs/NAME` | holds |
|---|---|
| `public-plan.json` | the plan |
| `progress.json` | state, last round, silos that are there, how often each joined or was left out, durations |

The files outlive the process that runs the rounds, so the metrics do, too. Durations are those that the server sees:
with `release_after` at every silo they are public; where a silo answers as soon as it is ready, they depend on what it
trained, and whoever can read the metrics sees that (privacy.md, rule 14).
"""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from rpdp.errors import InputError, RpdpError
from rpdp.federation.run_stops import StoppedRunError, is_running
from rpdp.metrics_text import MetricFamily, metrics_text
from rpdp.planning import PublicPlan
from rpdp.studies.run_directory import PLAN
from rpdp.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rpdp.federation.run_result import RoundLog

NAME, FORMAT = "progress.json", "rpdp-progress/1"
STATES = ("running", "stopped", "failed", "finished", "interrupted")
"""A run is interrupted if its server process ended without a word: it was killed."""


@dataclass
class RunProgress:
    """How far one run is; a context that notes how the run ended.

    Attributes:
        directory: The server's directory of the run.
        rounds: The rounds of the plan.
        plan: The fingerprint of the plan.
        state: One of `STATES`.
        round: The last round that is over.
        silos: The silos that were there in that round.
        joined: By silo, how many of its updates were averaged.
        left_out: By silo, how many of its answers were left out or refused.
        seconds: Of all rounds together.
        last_seconds: Of the last round.
    """

    directory: Path
    rounds: int
    plan: str
    state: str = "running"
    round: int = 0
    silos: tuple[str, ...] = ()
    joined: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    last_seconds: float = 0.0

    @classmethod
    def of(cls, directory: Path, public: PublicPlan) -> Self:
        """The progress of a run that begins, or goes on, with this plan."""
        public.write(directory / PLAN)
        new = cls(directory, public.schedule.rounds, public.fingerprint)
        known = cls.read(directory) if (directory / NAME).exists() else new
        return known if known.plan == new.plan else new

    @classmethod
    def read(cls, directory: Path) -> Self:
        """The progress of a run, from its file."""
        path = directory / NAME
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            if facts.pop("format") != FORMAT or facts["state"] not in STATES:
                raise ValueError(f"not the progress of a run in the format {FORMAT}")
            facts.pop("written")
            counts = {name: Counter(facts[name]) for name in ("joined", "left_out")}
            return cls(directory, **{**facts, **counts, "silos": tuple(facts["silos"])})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: cannot be read: {error}") from None

    def __enter__(self) -> Self:
        self._write("running")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        is_stopped = kind is not None and issubclass(kind, StoppedRunError)
        self._write("finished" if kind is None else "stopped" if is_stopped else "failed")

    def note(self, log: RoundLog, silos: Sequence[str]) -> None:
        """A round is over."""
        self.round, self.silos, self.last_seconds = log.round, tuple(silos), log.seconds
        self.seconds += log.seconds
        self.joined.update(log.joined)
        self.left_out.update(log.rejected.keys())
        self._write("running")

    def facts(self) -> dict[str, Any]:
        """Everything, for a file and for machines."""
        return {
            "rounds": self.rounds,
            "plan": self.plan,
            "state": self.state,
            "round": self.round,
            "silos": list(self.silos),
            "joined": dict(self.joined),
            "left_out": dict(self.left_out),
            "seconds": self.seconds,
            "last_seconds": self.last_seconds,
        }

    def _write(self, state: str) -> None:
        self.state = state
        fresh = self.directory / f".{NAME}.new"
        told = {"format": FORMAT, **self.facts(), "written": time.time()}
        fresh.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        fresh.replace(self.directory / NAME)


def all_progress(runs: Path) -> dict[str, RunProgress]:
    """The progress of all runs of a server, by name. Runs of earlier releases have none."""
    found = {path.parent.name: RunProgress.read(path.parent) for path in sorted(runs.glob(f"*/{NAME}"))}
    for one in found.values():
        if one.state == "running" and not is_running(one.directory):
            one.state = "interrupted"
    return found


def promised_epsilon(plan: Path) -> float | None:
    """The largest ε that a run of this plan can cost a record: that of one that is drawn always, at the plan's δ."""
    return _promised(PublicPlan.read(plan).to_json())


@lru_cache(maxsize=256)
def _promised(text: str) -> float | None:
    try:
        return float(PublicPlan.from_json(text).curve.epsilon([1.0])[0])
    except RpdpError:
        return None


def server_metrics(runs: Path) -> str:
    """The metrics of all runs of a server."""
    found = all_progress(runs)
    info = MetricFamily("rpdp_server_info", "The release of rpdp at the server.")
    info.add(1, version=__version__)
    return metrics_text([info, *_families(found)])


def _families(runs: dict[str, RunProgress]) -> Iterable[MetricFamily]:
    state = MetricFamily("rpdp_run_state", "1 for the state of the run.")
    number = MetricFamily("rpdp_run_round", "The last round that is over.")
    planned = MetricFamily("rpdp_run_rounds_planned", "The rounds of the plan.")
    present = MetricFamily("rpdp_run_silos_present", "Silos that were there in the last round.")
    joined = MetricFamily("rpdp_run_updates_total", "Updates that were averaged, by silo.", "counter")
    rejected = MetricFamily("rpdp_run_left_out_total", "Answers that were left out or refused, by silo.", "counter")
    seconds = MetricFamily("rpdp_run_round_seconds_total", "Time of all rounds.", "counter")
    last = MetricFamily("rpdp_run_last_round_seconds", "Time of the last round.")
    promised = MetricFamily("rpdp_run_promised_epsilon", "The largest cost of the plan for a record, at its delta.")
    delta = MetricFamily("rpdp_run_delta", "The delta of the plan.")
    for run, one in runs.items():
        for name in STATES:
            state.add(float(one.state == name), run=run, state=name)
        for family, value in ((number, one.round), (planned, one.rounds), (present, len(one.silos))):
            family.add(value, run=run)
        seconds.add(one.seconds, run=run)
        last.add(one.last_seconds, run=run)
        for silo in sorted({*one.joined, *one.left_out, *one.silos}):
            joined.add(one.joined[silo], run=run, silo=silo)
            rejected.add(one.left_out[silo], run=run, silo=silo)
        epsilon = promised_epsilon(one.directory / PLAN)
        if epsilon is not None:
            promised.add(epsilon, run=run)
        delta.add(PublicPlan.read(one.directory / PLAN).delta, run=run)
    return state, number, planned, present, joined, rejected, seconds, last, promised, delta
