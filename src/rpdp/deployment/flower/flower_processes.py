"""Flower's two long-running processes: the SuperLink (the server's side) and a SuperNode (one per silo).

    with SuperLink("server", certificate) as link:
        link.control.register(key.public, "a")
        with SuperNode("silo-a", link.address, certificate.authority, key.private, {"silo": "a"}):
            link.control.submit("app").wait(timeout=600)

TLS and SuperNode authentication are always on; no option turns them off. They ensure that a silo talks only to a server
with a certificate from the authority, and that the server accepts only silos whose key is registered. They do not
protect Flower's Control API (submit, register) on the same port, which accepts anyone who reaches it: expose only
`/v1/fleet/` to the network. No silo's privacy depends on any of this.
"""

from __future__ import annotations

import re
import socket
import ssl
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from rpdp.deployment.flower.control import Control, Value, one_line
from rpdp.deployment.flower.environment import executable, flower_environment
from rpdp.deployment.processes import DEFAULT_GRACE, POLL_SECONDS, Process, free_port, require_free_port
from rpdp.errors import InputError, RpdpError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rpdp.deployment.files.certificates import ServerCertificate

START_SECONDS = 60.0
OFFLINE_SECONDS = 60.0
"""How long the SuperLink considers a killed SuperNode alive (two heartbeats) and refuses another with the same key."""

_NODE_ID = re.compile(r"SuperNode ID: (\d+)")
_NOT_ACTIVATED = "Failed to activate SuperNode"


class _FlowerProcess:
    """Starts and stops a process; both may be called again, for instance after a crash."""

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
        environment = {**flower_environment(self.home), **self._variables}
        self._process = Process(command, environment=environment, directory=self.home, log=self.log)
        return self._process


class SuperLink(_FlowerProcess):
    """The server's process: SuperNodes connect to it, apps are submitted to it, and it runs the ServerApp.

    Args:
        home: Directory of this process: Flower's files, the database, the log, the connection of `control`.
        certificate: Its names must include `host`.
        host: Interface to listen on (`0.0.0.0` for all).
        port: Port to listen on; None for a free one.
        database: Registered keys, runs and messages; a SuperLink restarted with it knows its SuperNodes.
        log: Where the SuperLink and its ServerApps write.
        variables: Further environment variables for the ServerApp.
    """

    def __init__(
        self,
        home: str | Path,
        certificate: ServerCertificate,
        *,
        host: str = "127.0.0.1",
        port: int | None = None,
        database: str | Path | None = None,
        log: str | Path | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(home, log or Path(home) / "superlink.log", variables)
        self.certificate = certificate
        self.host = host
        self.port = free_port(host) if port is None else port
        self.database = Path(database or self.home / "superlink.db").resolve()
        self._reached_at = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 (to recognise it)
        if self._reached_at not in certificate.names():
            names = ", ".join(certificate.names())
            raise InputError(f"{certificate.certificate} is valid for {names}, not for {self._reached_at}")
        self.control = Control(self.home / "control", self.address, certificate.authority)

    @property
    def address(self) -> str:
        """HOST:PORT at which this machine reaches it."""
        return f"[{self._reached_at}]:{self.port}" if ":" in self._reached_at else f"{self._reached_at}:{self.port}"

    def start(self) -> None:
        """Start it and wait until it presents its certificate."""
        self.stop()
        require_free_port(self.host, self.port)
        process = self._launch(
            [
                executable("flower-superlink"),
                *("--host", self.host, "--port", str(self.port)),
                *("--ssl-ca-certfile", str(self.certificate.authority.resolve())),
                *("--ssl-certfile", str(self.certificate.certificate.resolve())),
                *("--ssl-keyfile", str(self.certificate.key.resolve())),
                "--enable-supernode-auth",
                *("--database", str(self.database)),
                "--disable-runtime-dependency-installation",
            ]
        )
        try:
            process.wait_until(self._answers, timeout=START_SECONDS, what=f"listening on {self.address}")
        except BaseException:
            self.stop()
            raise

    def _answers(self) -> bool:
        context = ssl.create_default_context(cafile=self.certificate.authority)
        try:
            with socket.create_connection((self._reached_at, self.port), timeout=5) as link:
                context.wrap_socket(link, server_hostname=self._reached_at).close()
        except ssl.SSLCertVerificationError as error:
            raise RpdpError(f"{self.address}: another server is listening there: {error.verify_message}") from error
        except OSError:
            return False
        return True


class SuperNode(_FlowerProcess):
    """A silo's process: it asks the SuperLink for messages and runs the ClientApp, one new process per message.

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
        found = _NODE_ID.search(self.process.output())
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
        return _NODE_ID.search(self.process.output()) is not None
