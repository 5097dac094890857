"""A whole federation on one machine, for a trial: SuperLink and proxy, and for every silo its agent and its node.

The processes are those of a deployment, with TLS and registered keys. One machine cannot show the separation of users:
here all processes run as one user. With Flower's own SuperNodes, an app that a server submits could read the silos'
files; our nodes run no app.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rpdp.deployment.agent.agent_client import is_answering
from rpdp.deployment.agent.opening import silo_records
from rpdp.deployment.files.node_file import NODE_FILE
from rpdp.deployment.flower.environment import executable
from rpdp.deployment.flower.flower_processes import NodeProcess, SuperLink, SuperNode
from rpdp.deployment.flower.registration import register_silos
from rpdp.deployment.processes import Process
from rpdp.deployment.server_proxy import ServerProxy, check_proxy
from rpdp.errors import InputError, PrivacyRefusal, RpdpError
from rpdp.studies.study_budgets import drawn_budgets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rpdp.deployment.files.layout import Layout
    from rpdp.deployment.files.silo_file import SiloFile
    from rpdp.studies.study_file import StudyFile

_START_SECONDS = 120.0


def provide_trial_budgets(layout: Layout, spec: StudyFile) -> None:
    """Draw budgets from the study's distribution and make a ledger, for every silo. Made-up budgets protect nobody."""
    from rpdp.ledger import Ledger

    for name in layout.silos:
        silo = layout.silo_file(name)
        held = silo_records(silo)
        table = drawn_budgets(spec, name, held.ids, subjects=held.subjects)
        table.write(silo.file(silo.silo.budgets))
        Ledger.create(
            silo.file(silo.silo.ledger),
            table,
            kind="production",
            lifetime_delta=silo.policy.lifetime_delta,
            account=spec.privacy.account,
            silos_per_person=silo.policy.silos_per_person,
        ).close()


@dataclass(frozen=True)
class RunningFederation:
    """The processes of a federation; nodes and agents by the name of the silo."""

    layout: Layout
    proxy: ServerProxy
    link: SuperLink
    nodes: dict[str, NodeProcess | SuperNode]
    agents: dict[str, Process]


@contextmanager
def federation(layout: Layout, *, stock: bool = False) -> Iterator[RunningFederation]:
    """Start all processes of a federation, and stop them when the block ends.

    Args:
        layout: The federation.
        stock: Whether silos use Flower's own SuperNode instead of our node.
    """
    files = {name: layout.silo_file(name) for name in layout.silos}
    layout.prepare_server()
    check_proxy(layout)
    with ExitStack() as stack:
        # Agents take longest to start (torch), so they start first and are waited for last.
        agents = {name: stack.enter_context(_launch(silo)) for name, silo in files.items()}
        link = stack.enter_context(SuperLink.of(layout))
        proxy = stack.enter_context(ServerProxy(layout))
        register_silos(link.control, layout)
        nodes: dict[str, NodeProcess | SuperNode] = {}
        for name, silo in files.items():
            if stock:
                nodes[name] = stack.enter_context(_supernode(layout, name, silo, link.address))
            else:
                nodes[name] = stack.enter_context(_node(layout, silo))
        for name, silo in files.items():
            _wait_for(agents[name], silo)
        yield RunningFederation(layout, proxy, link, nodes, agents)


def _node(layout: Layout, silo: SiloFile) -> NodeProcess:
    name = silo.silo.name
    if not (layout.silo(name) / NODE_FILE).exists():  # made by an earlier release
        layout.write_node_file(name)
    spec = layout.node_file(name)
    if spec.file(spec.node.socket) != silo.file(silo.silo.socket):
        raise InputError(
            f"{spec.path}: node.socket={spec.node.socket!r} is not the agent's socket ({silo.file(silo.silo.socket)}, "
            f"in {silo.path})"
        )
    return NodeProcess(layout.silo(name) / "node", spec.path)


def _supernode(layout: Layout, name: str, silo: SiloFile, superlink: str) -> SuperNode:
    home = layout.silo(name)
    settings = {"silo": name, "socket": str(silo.file(silo.silo.socket))}
    return SuperNode(home / "flower", superlink, layout.loopback / "ca.crt", home / f"{name}.key", settings)


def start_agent(silo: SiloFile) -> Process:
    """Start the agent of a silo in a process of its own and wait until it answers."""
    process = _launch(silo)
    try:
        _wait_for(process, silo)
    except BaseException:
        process.stop()
        raise
    return process


def _launch(silo: SiloFile) -> Process:
    if not silo.file(silo.silo.budgets).is_file():
        raise InputError(f"{silo.path}: the budget file {silo.file(silo.silo.budgets)} is missing")
    command = [executable("rpdp"), "silo", "serve", str(silo.path.resolve())]
    return Process(command, environment=os.environ, directory=silo.directory, log=silo.directory / "agent.log")


def _wait_for(agent: Process, silo: SiloFile) -> None:
    """Wait until the agent answers. If it refuses to start, raise the kind of error that its exit code means."""
    socket = silo.file(silo.silo.socket)
    try:
        agent.wait_until(lambda: is_answering(socket), timeout=_START_SECONDS, what=f"answering on {socket}")
    except RpdpError as error:
        for kind in (InputError, PrivacyRefusal):
            if agent.exit_code == kind.exit_code:
                raise kind(str(error)) from None
        raise
