"""The long-running processes that speak Flower's protocol: the SuperLink (the server's side) and a node per silo.

    with SuperLink("server", certificate) as link:
        link.control.register(key.public, "a")
        with NodeProcess("silo-a", "silo-a/node.toml"):
            link.control.submit("app").wait(timeout=600)

A node is ours (`NodeProcess`, which executes nothing that a server sends) or Flower's own (`SuperNode`).

TLS and SuperNode authentication are always on; no option turns them off. The SuperLink listens on loopback and accepts
its own user alone; silos on other machines reach it through the proxy (`rpdp.deployment.server_proxy`), which forwards
what nodes need. No silo's privacy depends on any of this.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Self

from rpdp.deployment.files.certificates import ServerCertificate
from rpdp.deployment.flower.control import Control, Value, one_line
from rpdp.deployment.flower.environment import executable, flower_environment
from rpdp.deployment.processes import DEFAULT_GRACE, POLL_SECONDS, Process, free_port, require_free_port
from rpdp.errors import InputError, RpdpError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rpdp.deployment.files.layout import Layout

LOOPBACK = "127.0.0.1"
START_SECONDS = 60.0
OFFLINE_SECONDS = 60.0
"""How long the SuperLink considers a killed SuperNode alive (two heartbeats) and refuses another with the same key."""

_SUPERNODE_ID = re.compile(r"SuperNode ID: (\d+)")
_NODE_ID = re.compile(r"is connected to \S+ as node (\d+)")
_NOT_ACTIVATED = "Failed to activate SuperNode"


class _FlowerProcess:
    """Starts and stops a process; both may be called again, for instance after a crash."""

    _name = ""  # in messages; the command's, if it is empty

    def __init__(self, home: str | Path, log: str | Path, variables: Mapping[str, str] | None) -> None:
        self.home = Path(home).resolve()
        self.log = Path(log).resolve()
        self._variables = dict(variables or {})
        self._process: Process | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def process(self) -> Process:
        """The running process; `stop` ends it and its `descendants()`."""
        if self._process is None:
            raise RpdpError(f"{type(self).__name__} in {self.home} is not running; call start()")
        return self._process

    def start(self) -> None:
        """Start the process and wait until it is ready."""
        raise NotImplementedError

    def stop(self, grace: float = DEFAULT_GRACE) -> None:
        """End the process and all that it started; does nothing if it is not running."""
        if self._process is not None:
            self._process.stop(grace)
            self._process = None

    def _launch(self, command: list[str]) -> Process:
        self.stop()  # a crashed process may have left descendants
        self._process = Process(
            command, environment=self._environment(), directory=self.home, log=self.log, name=self._name
        )
        return self._process

    def _environment(self) -> dict[str, str]:
        return {**flower_environment(self.home), **self._variables}


class SuperLink(_FlowerProcess):
    """The server's process: SuperNodes connect to it, apps are submitted to it, and it runs the ServerApp.

    Args:
        home: Directory of this process: Flower's files, the database, the log, the connection of `control`.
        certificate: For 127.0.0.1, where it listens.
        port: Port to listen on; None for a free one.
        database: Registered keys, runs and messages; a SuperLink restarted with it knows its SuperNodes.
        log: Where the SuperLink and its ServerApps write.
        variables: Further environment variables for the ServerApp.
    """

    _name = "SuperLink"

    def __init__(
        self,
        home: str | Path,
        certificate: ServerCertificate,
        *,
        port: int | None = None,
        database: str | Path | None = None,
        log: str | Path | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(home, log or Path(home) / "superlink.log", variables)
        self.certificate = certificate
        self.port = free_port(LOOPBACK) if port is None else port
        self.database = Path(database or self.home / "superlink.db").resolve()
        if LOOPBACK not in certificate.names():
            names = ", ".join(certificate.names())
            raise InputError(f"{certificate.certificate} is valid for {names}, not for {LOOPBACK}")
        self.control = Control(self.home / "control", self.address, certificate.authority)

    @classmethod
    def of(cls, layout: Layout) -> Self:
        """The SuperLink of a server's directory."""
        # The ServerApp may evaluate the model on public records, which are in the directory of data sets.
        variables = {name: os.environ[name] for name in ("RPDP_DATA",) if name in os.environ}
        certificate, home = ServerCertificate.of(layout.loopback), layout.server / "flower"
        return cls(home, certificate, port=layout.superlink_port, variables=variables)

    @property
    def address(self) -> str:
        """HOST:PORT at which this machine reaches it."""
        return f"{LOOPBACK}:{self.port}"

    def become(self) -> NoReturn:
        """Replace this process by the SuperLink, as a service does."""
        require_free_port(LOOPBACK, self.port)
        environment = self._environment()
        os.chdir(self.home)
        command = self._command()
        os.execve(command[0], command, environment)  # noqa: S606 (the command is ours)

    def start(self) -> None:
        """Start it and wait until it presents its certificate."""
        self.stop()
        require_free_port(LOOPBACK, self.port)
        process = self._launch(self._command())
        try:
            process.wait_until(self._answers, timeout=START_SECONDS, what=f"listening on {self.address}")
        except BaseException:
            self.stop()
            raise

    def _command(self) -> list[str]:
        made = self.certificate
        return [
            *(sys.executable, "-P", "-m", "rpdp.deployment.flower.guarded_superlink"),  # -P: nothing from the directory
            *("--authority", str(made.authority.resolve()), "--certificate", str(made.certificate.resolve())),
            *("--key", str(made.key.resolve()), "--port", str(self.port), "--database", str(self.database)),
        ]

    def _answers(self) -> bool:
        context = ssl.create_default_context(cafile=self.certificate.authority)
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=5) as link:
                context.wrap_socket(link, server_hostname=LOOPBACK).close()
        except ssl.SSLCertVerificationError as error:
            raise RpdpError(f"{self.address}: another server is listening there: {error.verify_message}") from error
        except OSError:
            return False
        return True


class NodeProcess(_FlowerProcess):
    """A silo's node, `rpdp silo node`: it carries messages to the silo's agent and executes nothing.

    Args:
        home: Directory of this process, where its log is. No data.
        file: The node file.
        log: Where it writes.
    """

    def __init__(self, home: str | Path, file: str | Path, *, log: str | Path | None = None) -> None:
        super().__init__(home, log or Path(home) / "node.log", None)
        self.file = Path(file).resolve()

    @property
    def node_id(self) -> int:
        """Flower's id of this node; it belongs to the key and survives restarts."""
        found = _NODE_ID.search(self.process.output())
        if found is None:
            raise RpdpError(f"the node in {self.home} is not connected yet; see {self.log}")
        return int(found.group(1))

    def start(self) -> None:
        """Start it and wait until the SuperLink has accepted it; after a crash it waits by itself for that."""
        process = self._launch([executable("rpdp"), "silo", "node", str(self.file)])
        try:
            process.wait_until(self._connected, timeout=START_SECONDS, what="connected to the SuperLink")
        except BaseException:
            self.stop()
            raise

    def _connected(self) -> bool:
        return _NODE_ID.search(self.process.output()) is not None


class SuperNode(_FlowerProcess):
    """Flower's own process for a silo: it asks for messages and runs the ClientApp, a new process per message.

    Args:
        home: Directory of this process: Flower's files (including code that the server sends) and the log. No data.
        superlink: HOST:PORT of the server, with a host that its certificate names.
        authority: The certificate that signed the server's.
        key: The silo's private key.
        settings: What the ClientApp finds as `context.node_config`; it stays at the silo.
        port: Port of Flower's own link between SuperNode and ClientApp, on this machine only; None for a free one.
        log: Where the SuperNode and its ClientApps write.
        variables: Further environment variables for the ClientApp.
    """

    def __init__(
        self,
        home: str | Path,
        superlink: str,
        authority: str | Path,
        key: str | Path,
        settings: Mapping[str, Value] | None = None,
        *,
        port: int | None = None,
        log: str | Path | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(home, log or Path(home) / "supernode.log", variables)
        self.authority, self.key = Path(authority).resolve(), Path(key).resolve()
        for path in (self.authority, self.key):
            if not path.is_file():
                raise InputError(f"{path}: no such file")
        if not re.fullmatch(r".+:\d+", superlink) or "://" in superlink:
            raise InputError(f"superlink={superlink!r} must be HOST:PORT")
        self.superlink = superlink
        self._settings = one_line(settings or {})
        self._port = port

    @property
    def node_id(self) -> int:
        """Flower's id of this SuperNode; it belongs to the key and survives restarts."""
        found = _SUPERNODE_ID.search(self.process.output())
        if found is None:
            raise RpdpError(f"the SuperNode in {self.home} is not connected yet; see {self.log}")
        return int(found.group(1))

    def start(self, patience: float = 0.0) -> None:
        """Start it and wait until the SuperLink has accepted it.

        After a crash the SuperLink still considers the key connected, and refuses it, for `OFFLINE_SECONDS`. `patience`
        is how many seconds to retry; any other failure raises at once.
        """
        deadline = time.monotonic() + patience
        while True:
            process = self._launch(self._command())
            try:
                process.wait_until(self._connected, timeout=START_SECONDS, what="connected to the SuperLink")
                return
            except BaseException as error:
                refused = isinstance(error, RpdpError) and _NOT_ACTIVATED in process.output()
                self.stop()
                if not refused or time.monotonic() > deadline:
                    raise
            time.sleep(10 * POLL_SECONDS)

    def _command(self) -> list[str]:
        command = [
            executable("flower-supernode"),
            *("--superlink", self.superlink),
            *("--root-certificates", str(self.authority)),
            *("--auth-supernode-private-key", str(self.key)),
            *("--host", "127.0.0.1", "--port", str(self._port or free_port())),
        ]
        return [*command, "--node-config", self._settings] if self._settings else command

    def _connected(self) -> bool:
        return _SUPERNODE_ID.search(self.process.output()) is not None
