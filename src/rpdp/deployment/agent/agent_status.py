"""How a silo stands, for its steward: from the agent's status file, the socket, the ledger and the certificates.

Everything is read, nothing is changed, and the agent goes on working. What is shown is the silo's own business.

| exit code | how it stands |
|---|---|
| 0 | the agent answers, and nothing asks for attention |
| 1 | no agent answers |
| 2 | the silo file, the ledger or another file is wrong or missing |
| 3 | the ledger is refused: rolled back, damaged, of another kind |
| 4 | the agent answers, but something asks for attention: `attention` says what |
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rpdp.deployment.agent.agent_client import is_answering
from rpdp.deployment.agent.agent_journal import STATUS_FORMAT
from rpdp.deployment.files.certificates import certificate_end
from rpdp.errors import InputError
from rpdp.federation.frames import MAGIC
from rpdp.federation.handshake import Greeting, duration
from rpdp.version import __version__

if TYPE_CHECKING:
    from rpdp.deployment.files.silo_file import SiloFile
    from rpdp.ledger import Ledger
    from rpdp.ledger.account import RunStatus
    from rpdp.ledger.inspection.hold_list import Hold
    from rpdp.ledger.inspection.overview import Overview

NOT_RUNNING, ATTENTION = 1, 4
SOON = 30 * 86400.0
"""Seconds before the end of a certificate from which on it asks for attention."""

_RECENT = 7 * 86400.0
"""A problem asks for attention for a week."""

_ETC = Path("/etc/rpdp")


@dataclass(frozen=True)
class SiloStatus:
    """How a silo stands now. Sensitive: it stays with the silo.

    Attributes:
        silo: Its name.
        is_answering: Whether an agent answers on the socket.
        agent: What the agent says of itself; None if it says nothing.
        overview: The ledger in numbers.
        holds: Runs that hold budgets and have not begun.
        certificates: When certificates end, by file name, in seconds since 1970.
        now: When this was read.
    """

    silo: str
    is_answering: bool
    agent: dict[str, Any] | None
    overview: Overview
    holds: list[Hold]
    certificates: dict[str, float]
    now: float

    @property
    def attention(self) -> list[str]:
        """What asks for attention, in sentences."""
        found = []
        for name, end in self.certificates.items():
            if end < self.now:
                found.append(f"{name} ended {duration(self.now - end)} ago: see `rpdp deploy renew`")
            elif end - self.now < SOON:
                found.append(f"{name} ends in {duration(end - self.now)}: see `rpdp deploy renew`")
        if self.agent is not None and self.is_answering:
            if self.agent["version"] != __version__:
                found.append(
                    f"the agent that runs is rpdp {self.agent['version']}, installed is {__version__}: restart it"
                )
            found += Greeting("", self.agent["server_ahead"]).remarks("the server")
            problem = self.agent["problem"]
            if problem is not None and self.now - problem["time"] < _RECENT:
                found.append(f"{duration(max(self.now - problem['time'], 0.0))} ago: {problem['sentence']}")
        if self.overview.pending_actions and not self.is_answering:
            found.append(f"{self.overview.pending_actions:,} steward actions wait for an agent that books them")
        return found

    @property
    def exit_code(self) -> int:
        """For monitoring; see the table of the module."""
        return NOT_RUNNING if not self.is_answering else ATTENTION if self.attention else 0

    @property
    def last_round(self) -> RunStatus | None:
        """The run of the last charged round: that of the agent's last answer, or the last one in the ledger."""
        going = [one.status for one in self.overview.runs if one.status.announced]
        named = None if self.agent is None or self.agent["last"] is None else self.agent["last"].get("run")
        return next((one for one in going if one.run == named), going[-1] if going else None)

    def facts(self) -> dict[str, Any]:
        """Everything, for machines."""
        last, agent = self.last_round, self.agent
        return {
            "silo": self.silo,
            "is_answering": self.is_answering,
            "exit_code": self.exit_code,
            "attention": self.attention,
            "agent": agent,
            "installed": {"version": __version__, "protocol": MAGIC.decode(), "ledger_format": _ledger_format()},
            "ledger": {"id": self.overview.ledger, "kind": self.overview.kind, "events": self.overview.events},
            "head": asdict(self.overview.head),
            "last_round": None if last is None else {"run": last.run, "round": last.announced, "of": last.rounds},
            "runs": [asdict(one.status) for one in self.overview.runs],
            "holds": [asdict(one) for one in self.holds],
            "left": [asdict(group) for group in self.overview.groups],
            "records": self.overview.records,
            "withdrawn": self.overview.withdrawn,
            "pending_actions": self.overview.pending_actions,
            "certificates": {name: _iso(end) for name, end in self.certificates.items()},
        }

    def lines(self) -> list[str]:
        """What to tell the steward."""
        seen = self.overview
        used = sum(group.mean_share_used * group.records for group in seen.groups) / max(seen.records, 1)
        exhausted = sum(group.exhausted for group in seen.groups)
        last = self.last_round
        told = [
            f"silo {self.silo}: {self._agent_line()}",
            f"ledger: {seen.kind}, {seen.events:,} events, head {seen.head.head[:12]}… ({seen.head.count:,} public)",
            "last round: none yet" if last is None else f"last round: {last.announced} of {last.rounds} of {last.run}",
            *(_run_line(one.status) for one in seen.runs),
            *(f"run {one.run} holds budgets of {one.records:,} records until {one.expires}" for one in self.holds),
            f"left: {1.0 - used:.1%} of what {seen.records:,} records allow for life; {exhausted:,} have nothing left, "
            f"{seen.withdrawn:,} were withdrawn, {seen.pending_actions:,} steward actions wait",
        ]
        told += [f"{name} ends {_iso(end)[:10]}" for name, end in self.certificates.items()]
        return told + [f"attention: {text}" for text in self.attention]

    def _agent_line(self) -> str:
        if not self.is_answering:
            gone = "" if self.agent is None else f"; the last one, up since {_iso(self.agent['since'])}, was killed"
            return f"no agent answers{gone}. Installed: rpdp {__version__}"
        if self.agent is None:
            return f"an agent answers, but says nothing of itself. Installed: rpdp {__version__}"
        up, last = duration(max(self.now - self.agent["since"], 0.0)), self.agent["last"]
        heard = "nothing asked yet" if last is None else f"last answer {_iso(last['time'])} ({last['answer']})"
        return f"agent up since {_iso(self.agent['since'])} ({up}), rpdp {self.agent['version']}, {heard}"


def silo_status(
    spec: SiloFile, certificates: Path | None = None, now: float | None = None, *, overview: Overview | None = None
) -> SiloStatus:
    """Read how a silo stands. `certificates` is the directory of `ca.crt` and `NAME.crt`.

    With an `overview` that was made before, accounts are not counted again; what changes from round to round is read.
    """
    from rpdp.ledger import Ledger
    from rpdp.ledger.inspection.hold_list import holds_of
    from rpdp.ledger.store.ledger_files import LedgerFiles

    path = spec.file(spec.silo.ledger)
    with Ledger.read(path) as ledger:
        overview = ledger.overview() if overview is None else _brought_up_to_date(overview, ledger)
        holds = holds_of(ledger)
    return SiloStatus(
        spec.silo.name,
        is_answering(spec.file(spec.silo.socket)),
        _said(LedgerFiles(path).agent),
        overview,
        holds,
        _ends(spec, certificates),
        time.time() if now is None else now,
    )


def _brought_up_to_date(overview: Overview, ledger: Ledger) -> Overview:
    """The same overview with the present rounds, heads and waiting actions."""
    with ledger.reading():
        rounds = {one.run: one for one in ledger.runs.status()}
        runs = tuple(replace(one, status=rounds[one.status.run]) for one in overview.runs)
        pending = len(ledger.pending())
        return replace(overview, runs=runs, pending_actions=pending, events=ledger.chain.seq, head=ledger.public_head())


def _ends(spec: SiloFile, given: Path | None) -> dict[str, float]:
    """The certificates of the silo, where they are: by default beside the silo file, or in /etc/rpdp."""
    found = {}
    for name in ("ca.crt", f"{spec.silo.name}.crt"):
        for place in (spec.directory, _ETC) if given is None else (given,):
            if (place / name).is_file():
                found[name] = certificate_end(place / name).timestamp()
                break
            if given is not None and name == "ca.crt":
                raise InputError(f"{place}: there is no {name}")
    return found


def _said(path: Path) -> dict[str, Any] | None:
    try:
        facts = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error}); run this as the agent's user") from None
    if not isinstance(facts, dict) or facts.get("format") != STATUS_FORMAT:
        return None  # of another release
    return facts


def _run_line(run: RunStatus) -> str:
    if run.is_over or run.state == "held":
        return f"run {run.run}: {run.state}"
    state = "finished" if run.announced == run.rounds else "going on"
    return (
        f"run {run.run}: {state}, {run.announced} of {run.rounds} rounds charged, {len(run.joined)} joined, "
        f"{len(run.released)} released"
    )


def _ledger_format() -> int:
    from rpdp.ledger.store.schema import FORMAT

    return FORMAT


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
