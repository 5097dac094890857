"""Control of a SuperLink, through the command `flwr`: register silos, submit an app, wait for its run.

`flwr run` exits with code 0 whatever happens to the run, so `FlowerRun.wait` follows the run's log to its end and then
asks for its status.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from rpdp.deployment.flower.environment import executable, flower_environment
from rpdp.deployment.processes import Process
from rpdp.errors import InputError, RpdpError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rpdp.deployment.files.layout import Layout

Value = bool | int | float | str
"""The types that Flower allows in the settings of a run or a node."""

CONNECTION = "tls"
_COMMAND_SECONDS = 60.0
_POLL_SECONDS = 1.0
_KEY = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


@dataclass(frozen=True)
class FlowerRunStatus:
    """The state of a Flower run: `pending`, `starting`, `running`, `completed`, `failed` or `stopped`."""

    name: str
    details: str

    @property
    def over(self) -> bool:
        """Whether the run has ended."""
        return self.name in ("completed", "failed", "stopped")


class Control:
    """A connection to the Control API of a SuperLink.

    Args:
        home: Directory for the settings of the connection.
        address: HOST:PORT of the SuperLink.
        authority: The certificate that signed the SuperLink's.
    """

    def __init__(self, home: str | Path, address: str, authority: str | Path) -> None:
        self.home = Path(home).resolve()
        self.address = address
        self._environment = flower_environment(self.home)
        self._write_connection(Path(authority).resolve())

    @classmethod
    def of(cls, layout: Layout) -> Self:
        """The connection to the server of a federation."""
        return cls(layout.server / "operator", layout.superlink_address, layout.loopback / "ca.crt")

    def register(self, public_key: str | Path, name: str) -> int:
        """Register the key of a SuperNode under the name of its silo; returns Flower's node id."""
        reply = self._ask("supernode", "register", str(Path(public_key).resolve()), CONNECTION, "--name", name)
        return int(reply["node-id"])

    def unregister(self, node: int) -> None:
        """Remove a SuperNode. Its key never returns."""
        self._ask("supernode", "unregister", str(node), CONNECTION)

    def nodes(self) -> dict[int, str]:
        """SuperNodes by node id, with their state: `registered`, `online`, `offline`, `unregistered`."""
        reply = self._ask("supernode", "list", CONNECTION)
        return {int(node["node-id"]): str(node["status"]) for node in reply["nodes"]}

    def submit(self, app: str | Path, run_config: Mapping[str, Value] | None = None) -> FlowerRun:
        """Start a run of the Flower app in this directory. Settings must exist in its `[tool.flwr.app.config]`."""
        app = Path(app)
        if not (app / "pyproject.toml").is_file():
            raise InputError(f"{app}: not a Flower app (a directory with a pyproject.toml)")
        command = ["run", str(app.resolve()), CONNECTION]
        if not run_config:
            return FlowerRun(self, str(self._ask(*command)["run-id"]))
        with tempfile.NamedTemporaryFile("w", suffix=".toml", dir=self.home, encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in _assignments(run_config)))
            file.flush()
            return FlowerRun(self, str(self._ask(*command, "--run-config", file.name)["run-id"]))

    def status(self, run_id: str) -> FlowerRunStatus:
        """The state of a run."""
        run = self._ask("list", CONNECTION, "--run-id", run_id)["runs"][0]
        details = str(run["status-details"])
        return FlowerRunStatus(str(run["status"]).removeprefix("finished:"), "" if details == "N/A" else details)

    def follow(self, run_id: str, log: str | Path) -> Process:
        """A process that appends the ServerApp's log to a file until the run ends."""
        command = [executable("flwr"), "log", run_id, CONNECTION, "--stream"]
        return Process(command, environment=self._environment, directory=self.home, log=log)

    def stop(self, run_id: str) -> None:
        """Stop a run. What silos have charged for it stays charged."""
        self._ask("stop", run_id, CONNECTION)

    def _ask(self, *arguments: str) -> dict[str, Any]:
        try:
            done = subprocess.run(  # noqa: S603 (the command is ours)
                [executable("flwr"), *arguments, "--format", "json"],
                env=self._environment,
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_COMMAND_SECONDS,
                check=False,
            )
            reply = json.loads(done.stdout)
        except subprocess.TimeoutExpired as error:
            raise RpdpError(f"flwr {arguments[0]}: no answer from {self.address} in {_COMMAND_SECONDS:g} s") from error
        except ValueError as error:
            output = (done.stdout + done.stderr).strip()
            raise RpdpError(f"flwr {arguments[0]}: {output or f'exit code {done.returncode}'}") from error
        if not isinstance(reply, dict) or not reply.get("success"):
            message = str(reply.get("error-message", reply) if isinstance(reply, dict) else reply)
            raise RpdpError(f"flwr {arguments[0]}: the SuperLink at {self.address} says: {message.strip()}")
        return reply

    def _write_connection(self, authority: Path) -> None:
        settings = _assignments({"address": self.address, "root-certificates": str(authority)})
        lines = ["[superlink]", f'default = "{CONNECTION}"', "", f"[superlink.{CONNECTION}]", *settings]
        (self.home / "config.toml").write_text("\n".join([*lines, ""]), encoding="utf-8")


@dataclass(frozen=True)
class FlowerRun:
    """A submitted run. `run_id` is Flower's, not the name of the rpdp run."""

    control: Control
    run_id: str

    def status(self) -> FlowerRunStatus:
        """The state of the run."""
        return self.control.status(self.run_id)

    def stop(self) -> None:
        """Stop the run."""
        self.control.stop(self.run_id)

    def wait(self, *, timeout: float, log: str | Path | None = None) -> FlowerRunStatus:
        """Wait until the run is `completed`, `failed` or `stopped`; the ServerApp's log goes to `log`."""
        deadline = time.monotonic() + timeout
        log = log or self.control.home / f"run-{self.run_id}.log"
        with self.control.follow(self.run_id, log) as following:
            while following.exit_code is None and time.monotonic() < deadline:
                time.sleep(0.1)
        while not (status := self.status()).over:
            if time.monotonic() > deadline:
                raise RpdpError(f"run {self.run_id} is still {status.name} after {timeout:g} s; its log is {log}")
            time.sleep(_POLL_SECONDS)
        return status


def one_line(settings: Mapping[str, Value]) -> str:
    """Settings in the form of Flower's command line, which has no escapes: a string must not contain quotes."""
    for key, value in settings.items():
        if isinstance(value, str) and re.search(r'["\\\n]', value):
            raise InputError(f"{key}={value!r} must not contain quotes, backslashes or line breaks")
    return " ".join(_assignments(settings))


def _assignments(settings: Mapping[str, Value]) -> list[str]:
    return [f"{_checked(key)}={_toml(key, value)}" for key, value in settings.items()]


def _checked(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise InputError(f"setting {key!r} must be letters, digits and dashes")
    return key


def _toml(key: str, value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON escapes are valid in TOML
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{key}={value} must be finite")
    return repr(value)
