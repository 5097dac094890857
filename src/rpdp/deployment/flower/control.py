"""The operator's hand on a SuperLink, through the command `flwr`: register silos, submit an app, learn how it ended.

`flwr run` ends with exit code 0 whatever happens to the run, so a run's end is asked for: `FlowerRun.wait` follows its
log until it is over and then reads its status.
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
from typing import TYPE_CHECKING, Any

from rpdp.deployment.flower.environment import executable, flower_environment
from rpdp.deployment.processes import Process
from rpdp.errors import InputError, RpdpError

if TYPE_CHECKING:
    from collections.abc import Mapping

Value = bool | int | float | str
"""What Flower allows as a setting of a run or of a node."""

CONNECTION = "tls"
_COMMAND_SECONDS = 60.0
_BETWEEN_LOOKS = 1.0
_KEY = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


@dataclass(frozen=True)
class FlowerRunStatus:
    """Where a run is: `pending`, `starting`, `running`, or over: `completed`, `failed`, `stopped`."""

    name: str
    details: str

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        return self.name in ("completed", "failed", "stopped")


class Control:
    """A connection to the Control API of a SuperLink, its settings in a directory of its own."""

    def __init__(self, home: Path, address: str, authority: Path) -> None:
        self.home = home.resolve()
        self.address = address
        self._environment = flower_environment(self.home)
        self._write_connection(authority.resolve())

    def register(self, public_key: Path, name: str) -> int:
        """Let in the SuperNode with this key, under the name of its silo; the number is Flower's for it."""
        told = self._ask("supernode", "register", str(public_key), CONNECTION, "--name", name)
        return int(told["node-id"])

    def nodes(self) -> dict[int, str]:
        """Registered SuperNodes by number, with their state: `registered`, `online`, `offline`."""
        told = self._ask("supernode", "list", CONNECTION)
        return {int(node["node-id"]): str(node["status"]) for node in told["nodes"]}

    def submit(self, app: Path, run_config: Mapping[str, Value] | None = None) -> FlowerRun:
        """Start a run of the Flower app in this directory. Settings must exist in its `[tool.flwr.app.config]`."""
        if not (app / "pyproject.toml").is_file():
            raise InputError(f"{app}: no Flower app (a directory with a pyproject.toml)")
        command = ["run", str(app.resolve()), CONNECTION]
        if not run_config:
            return FlowerRun(self, str(self._ask(*command)["run-id"]))
        with tempfile.NamedTemporaryFile("w", suffix=".toml", dir=self.home, encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in _assignments(run_config)))
            file.flush()
            return FlowerRun(self, str(self._ask(*command, "--run-config", file.name)["run-id"]))

    def status(self, run_id: str) -> FlowerRunStatus:
        """Where a run is."""
        run = self._ask("list", CONNECTION, "--run-id", run_id)["runs"][0]
        details = str(run["status-details"])
        return FlowerRunStatus(str(run["status"]).removeprefix("finished:"), "" if details == "N/A" else details)

    def follow(self, run_id: str, log: Path) -> Process:
        """A process that appends the ServerApp's log to a file until the run is over."""
        command = [executable("flwr"), "log", run_id, CONNECTION, "--stream"]
        return Process(command, environment=self._environment, directory=self.home, log=log)

    def stop(self, run_id: str) -> None:
        """End a run. What silos have charged for it stays charged."""
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
            told = json.loads(done.stdout)
        except subprocess.TimeoutExpired as error:
            raise RpdpError(f"flwr {arguments[0]}: no answer from {self.address} in {_COMMAND_SECONDS:g} s") from error
        except ValueError as error:
            words = (done.stdout + done.stderr).strip()
            raise RpdpError(f"flwr {arguments[0]}: {words or f'exit code {done.returncode}'}") from error
        if not isinstance(told, dict) or not told.get("success"):
            said = str(told.get("error-message", told) if isinstance(told, dict) else told)
            raise RpdpError(f"flwr {arguments[0]}: the SuperLink at {self.address} says: {said.strip()}")
        return told

    def _write_connection(self, authority: Path) -> None:
        settings = _assignments({"address": self.address, "root-certificates": str(authority)})
        lines = ["[superlink]", f'default = "{CONNECTION}"', "", f"[superlink.{CONNECTION}]", *settings]
        (self.home / "config.toml").write_text("\n".join([*lines, ""]), encoding="utf-8")


@dataclass(frozen=True)
class FlowerRun:
    """A submitted run. `run_id` is Flower's; what an rpdp run is called is another matter."""

    control: Control
    run_id: str

    def status(self) -> FlowerRunStatus:
        """Where it is."""
        return self.control.status(self.run_id)

    def stop(self) -> None:
        """End it."""
        self.control.stop(self.run_id)

    def wait(self, *, timeout: float, log: Path | None = None) -> FlowerRunStatus:
        """Wait for its end, `completed`, `failed` or `stopped`, with the ServerApp's log in `log`."""
        deadline = time.monotonic() + timeout
        log = log or self.control.home / f"run-{self.run_id}.log"
        with self.control.follow(self.run_id, log) as following:
            while following.exit_code is None and time.monotonic() < deadline:
                time.sleep(0.1)
        while not (status := self.status()).over:
            if time.monotonic() > deadline:
                raise RpdpError(f"run {self.run_id} is still {status.name} after {timeout:g} s; its log is {log}")
            time.sleep(_BETWEEN_LOOKS)
        return status


def one_line(settings: Mapping[str, Value]) -> str:
    """Settings as Flower's command line takes them; its quotes know no escapes, so a string must not contain one."""
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
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # escapes of JSON are escapes of TOML
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{key}={value} must be finite")
    return repr(value)
