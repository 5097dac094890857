"""A whole federation on this machine, for a trial: SuperLink, and for every silo its agent and its SuperNode.

The processes are those of a deployment, over TLS and with registered keys. What one machine cannot show is separation:
here all of them run as one user, so an app that a server submits could read the silos' files.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rpdp.deployment.agent.agent_client import Unreachable, ask
from rpdp.deployment.agent.opening import record_ids
from rpdp.deployment.files.certificates import ServerCertificate
from rpdp.deployment.files.silo_file import SiloFile
from rpdp.deployment.flower.control import Control
from rpdp.deployment.flower.environment import executable
from rpdp.deployment.flower.superlink import SuperLink, SuperNode
from rpdp.deployment.processes import Process
from rpdp.errors import InputError, PrivacyRefusal, RpdpError
from rpdp.federation.frames import Frame
from rpdp.studies.study_budgets import drawn_budgets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rpdp.deployment.files.layout import Layout
    from rpdp.studies.study_file import StudyFile

_START_SECONDS = 120.0
_SILO = "silo.toml"
_KNOWN = "already in use"
"""What the SuperLink says of a key that is registered."""


def provide_trial_budgets(layout: Layout, spec: StudyFile) -> None:
    """Budgets drawn from the study's distribution, and a ledger, for every silo. Made-up budgets bind nobody."""
    from rpdp.ledger import Ledger

    for name in layout.silos:
        silo = SiloFile.read(layout.silo(name) / _SILO)
        table = drawn_budgets(spec, name, record_ids(silo))
        table.write(silo.file(silo.silo.budgets))
        silo.file(silo.silo.budgets).chmod(0o600)
        delta = silo.policy.lifetime_delta
        Ledger.create(silo.file(silo.silo.ledger), table, kind="production", lifetime_delta=delta).close()


def operator(layout: Layout) -> Control:
    """A hand on the federation's SuperLink."""
    home = layout.server / "operator"
    home.mkdir(mode=0o700, exist_ok=True)
    return Control(home, layout.address, layout.server / "ca.crt")


def register(layout: Layout) -> int:
    """Let in the SuperNodes of all silos; how many are new."""
    control = operator(layout)
    new = 0
    for name in layout.silos:
        try:
            control.register(layout.server / "keys" / f"{name}.pub", name)
            new += 1
        except RpdpError as error:
            if _KNOWN not in str(error):
                raise
    return new


@contextmanager
def federation(layout: Layout) -> Iterator[RunningFederation]:
    """Start everything, and stop everything that was started."""
    files = {name: SiloFile.read(layout.silo(name) / _SILO) for name in layout.silos}
    certificate = ServerCertificate(
        layout.server / "ca.crt", layout.server / "server.crt", layout.server / "server.key"
    )
    with ExitStack() as stack:
        # agents take longest to start (torch), so all of them start first and are waited for last
        agents = {name: stack.enter_context(_launched(silo)) for name, silo in files.items()}
        home = layout.server / "flower"
        link = stack.enter_context(
            SuperLink(home, certificate, host=layout.host, port=layout.port, variables=_data_directory())
        )
        register(layout)
        nodes = {}
        for name, silo in files.items():
            settings = {"silo": name, "socket": str(silo.file(silo.silo.socket))}
            key, authority = layout.silo(name) / f"{name}.key", layout.silo(name) / "ca.crt"
            node = SuperNode(layout.silo(name) / "flower", link.address, authority, key, settings)
            nodes[name] = stack.enter_context(node)
        for name, silo in files.items():
            _await(agents[name], silo)
        yield RunningFederation(layout, link, nodes, agents)


class RunningFederation:
    """The running processes, by name of the silo."""

    def __init__(
        self, layout: Layout, link: SuperLink, nodes: dict[str, SuperNode], agents: dict[str, Process]
    ) -> None:
        self.layout = layout
        self.link = link
        self.nodes = nodes
        self.agents = agents


def start_agent(silo: SiloFile) -> Process:
    """The agent of a silo in a process of its own, answering."""
    process = _launched(silo)
    try:
        _await(process, silo)
    except BaseException:
        process.stop()
        raise
    return process


def _launched(silo: SiloFile) -> Process:
    if not silo.file(silo.silo.budgets).is_file():
        raise InputError(f"{silo.path}: the budget file {silo.file(silo.silo.budgets)} is missing")
    command = [executable("rpdp"), "silo", "serve", str(silo.path.resolve())]
    return Process(command, environment=os.environ, directory=silo.directory, log=silo.directory / "agent.log")


def _await(agent: Process, silo: SiloFile) -> None:
    """Come back when the agent answers; what it refuses to start for is raised as what it is."""
    socket = silo.file(silo.silo.socket)
    try:
        agent.wait_until(lambda: _answers(socket), timeout=_START_SECONDS, what=f"answering on {socket}")
    except RpdpError as error:
        for kind in (InputError, PrivacyRefusal):
            if agent.exit_code == kind.exit_code:
                raise kind(str(error)) from None
        raise


def _answers(socket: Path) -> bool:
    try:
        return bool(ask(socket, Frame({"kind": "hello"}).to_bytes(), timeout=5.0))
    except Unreachable:
        time.sleep(0.05)
        return False


def _data_directory() -> dict[str, str]:
    """Where data sets are, for a test on public records."""
    return {name: os.environ[name] for name in ("RPDP_DATA",) if name in os.environ}
