"""Flower's two long-running processes: the SuperLink (the server's side) and a SuperNode (one per silo).

    with SuperLink(Path("server"), certificate) as link:
        link.control.register(key.public, "a")
        with SuperNode(Path("silo-a"), link.address, certificate.authority, key.private, {"silo": "a"}):
            link.control.submit(Path("app")).wait(timeout=600)

TLS and the authentication of SuperNodes are always on; there is no option to turn them off. What they give: a silo
talks only to a server that the authority signed for, and the server hears only silos whose key is registered. What they
do not give: Flower's Control API (submit, register), on the same port, lets in whoever reaches it. So let the world
reach `/v1/fleet/` only; and no silo's privacy rests on any of this.
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
"""So long the SuperLink takes a killed SuperNode for alive (two heartbeats), and refuses another one with its key."""

_NODE_ID = re.compile(r"SuperNode ID: (\d+)")
_NOT_ACTIVATED = "Failed to activate SuperNode"


class _FlowerProcess:
    """Start and stop; both may be called again, for instance after a crash."""

    def __init__(self, home: Path, log: Path, variables: Mapping[str, str] | None) -> None:
        self.home = home.resolve()
        self.log = log.resolve()
        self._variables = dict(variables or {})
        self._process: Process | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def process(self) -> Process:
        """The running process; its `pid` and `descendants()` tell what `stop` will end."""
        if self._process is None:
            raise RpdpError(f"{type(self).__name__} in {self.home} is not running; call start()")
        return self._process

    def start(self) -> None:
        """Come back when it is ready."""
        raise NotImplementedError

    def stop(self, grace: float = DEFAULT_GRACE) -> None:
        """End the process and all that it started; nothing happens if it does not run."""
        if self._process is not None:
            self._process.stop(grace)
            self._process = None

    def _launch(self, command: list[str]) -> Process:
        self.stop()  # of a process that crashed, descendants may be left
        environment = {**flower_environment(self.home), **self._variables}
        self._process = Process(command, environment=environment, directory=self.home, log=self.log)
        return self._process


class SuperLink(_FlowerProcess):
    """The server's end: SuperNodes connect to it, apps are submitted to it, and it runs the ServerApp.

    Args:
        home: directory of this process: Flower's files, the database, the log, the connection of `control`.
        certificate: its name must cover `host`.
        host: interface to listen on (`0.0.0.0` for all).
        port: None for a free one.
        database: registered keys, runs and messages; a SuperLink that starts again with it knows its SuperNodes.
        log: where the SuperLink and its ServerApps write.
        variables: further environment variables for the ServerApp.
    """

    def __init__(
        self,
        home: Path,
        certificate: ServerCertificate,
        *,
        host: str = "127.0.0.1",
        port: int | None = None,
        database: Path | None = None,
        log: Path | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(home, log or home / "superlink.log", variables)
        self.certificate = certificate
        self.host = host
        self.port = free_port(host) if port is None else port
        self.database = (database or home / "superlink.db").resolve()
        self._reached_at = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 (to recognise it)
        if self._reached_at not in certificate.names():
            names = ", ".join(certificate.names())
            raise InputError(f"{certificate.certificate} is good for {names}, not for {self._reached_at}")
        self.control = Control(self.home / "control", self.address, certificate.authority)

    @property
    def address(self) -> str:
        """HOST:PORT under which it is reached from this machine."""
        return f"[{self._reached_at}]:{self.port}" if ":" in self._reached_at else f"{self._reached_at}:{self.port}"

    def start(self) -> None:
        """Start it and wait until it answers with its own certificate."""
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
            raise RpdpError(f"{self.address}: not our SuperLink is listening: {error.verify_message}") from error
        except OSError:
            return False
        return True


class SuperNode(_FlowerProcess):
    """A silo's end: it asks the SuperLink for messages and runs the ClientApp, one new process per message.

    Args:
        home: directory of this process: Flower's files (also the code that the server sends) and the log. No data.
        superlink: HOST:PORT, a name that the server certificate covers.
        authority: the certificate to check the server with.
        key: the silo's private key.
        settings: what the ClientApp finds as `context.node_config`; it stays at the silo.
        port: of Flower's own link between SuperNode and ClientApp, on this machine only; None for a free one.
        log: where the SuperNode and its ClientApps write.
        variables: further environment variables for the ClientApp.
    """

    def __init__(
        self,
        home: Path,
        superlink: str,
        authority: Path,
        key: Path,
        settings: Mapping[str, Value] | None = None,
        *,
        port: int | None = None,
        log: Path | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(home, log or home / "supernode.log", variables)
        for path in (authority, key):
            if not path.is_file():
                raise InputError(f"{path}: no such file")
        if not re.fullmatch(r".+:\d+", superlink) or "://" in superlink:
            raise InputError(f"superlink={superlink!r} must be HOST:PORT")
        self.superlink = superlink
        self.authority = authority.resolve()
        self.key = key.resolve()
        self._settings = one_line(settings or {})
        self._port = port

    @property
    def node_id(self) -> int:
        """Flower's number for this silo; it belongs to the key and survives restarts."""
        found = _NODE_ID.search(self.process.output())
        if found is None:
            raise RpdpError(f"the SuperNode in {self.home} is not connected yet; see {self.log}")
        return int(found.group(1))

    def start(self, patience: float = 0.0) -> None:
        """Start it and wait until the SuperLink has let it in.

        A SuperLink refuses a key that it takes for connected: after a crash, for `OFFLINE_SECONDS`. With `patience` it
        is tried again and again for so many seconds; any other failure is an error at once.
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
