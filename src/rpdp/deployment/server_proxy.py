"""The server's proxy: nginx with the configuration that `rpdp deploy init` has written (`files/proxy_file.py`).

It runs in the foreground, as the user who runs the SuperLink; `reload_proxy` lets it read certificates and the
revocation list again.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from rpdp.deployment.files.proxy_file import PROXY_FILE, PROXY_HOME
from rpdp.deployment.processes import Process, require_free_port
from rpdp.errors import InputError

if TYPE_CHECKING:
    from rpdp.deployment.files.layout import Layout

START_SECONDS = 20.0
_TEST_SECONDS = 20.0
_PLACES = ("/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin")  # on Debian not in every user's PATH


def nginx() -> str:
    """The path of nginx; raises, with the way to install it, if it is not there."""
    found = shutil.which("nginx") or shutil.which("nginx", path=os.pathsep.join(_PLACES))
    if found is None:
        raise InputError(
            "nginx is not installed: it is what silos reach of a server. On Debian and Ubuntu: "
            "apt install nginx-light, and `systemctl disable --now nginx` for the web server that comes with it"
        )
    return found


def proxy_command(server: Path) -> list[str]:
    """The command that runs the proxy of a server's directory, in the foreground."""
    command = [nginx(), "-e", f"{PROXY_HOME}/error.log", "-p", str(server), "-c", PROXY_FILE]
    # As root, nginx would give its workers to another user, whom the SuperLink does not let in.
    return [*command, "-g", "user root;"] if os.geteuid() == 0 else command


class ServerProxy:
    """The proxy of a server on this machine, as a process that ends with the context."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._process: Process | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def process(self) -> Process:
        """The running process."""
        assert self._process is not None, "call start() first"
        return self._process

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self.stop()
        server = self.layout.server
        check_proxy(self.layout)
        host, port = listening_at(self.layout)
        require_free_port(host, port)
        log = server / PROXY_HOME / "nginx.log"
        self._process = Process(proxy_command(server), environment=_environment(), directory=server, log=log)
        try:
            self._process.wait_until(lambda: _accepts(host, port), timeout=START_SECONDS, what=f"listening on {port}")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End it; does nothing if it is not running."""
        if self._process is not None:
            self._process.stop()
            self._process = None


def listening_at(layout: Layout) -> tuple[str, int]:
    """An address of this machine at which the proxy listens."""
    return ("::1" if ":" in layout.host else "127.0.0.1"), layout.port


def check_proxy(layout: Layout) -> None:
    """Raise, in nginx's words, unless the configuration and all files that it names are good."""
    done = subprocess.run(  # noqa: S603 (the command is ours)
        [*proxy_command(layout.server), "-t", "-q"],
        env=_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TEST_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise InputError(f"{layout.server / PROXY_FILE}: nginx refuses it: {done.stderr.strip()}")


def reload_proxy(layout: Layout) -> bool:
    """Let a running proxy read its files again, without losing a request. Returns whether one runs here."""
    process = _running(layout)
    if process is None:
        return False
    check_proxy(layout)
    os.kill(process, signal.SIGHUP)
    return True


def _running(layout: Layout) -> int | None:
    """The process id of the proxy of this directory, if it runs on this machine."""
    with suppress(OSError, ValueError):
        process = int((layout.server / PROXY_HOME / "nginx.pid").read_text())
        words = Path(f"/proc/{process}/cmdline").read_bytes()
        return process if str(layout.server).encode() in words else None
    return None


def _accepts(host: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in ("LANG", "LC_ALL", "TZ") if name in os.environ}
