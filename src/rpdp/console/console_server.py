"""The console's server: on a loopback port or a Unix socket, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import logging
import os
import socket
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from rpdp.console.console_pages import ConsolePages
from rpdp.console.request_guard import SIGN_IN
from rpdp.console.sign_in import IDLE_SECONDS, SignIn
from rpdp.deployment.own_socket import remove_stale, require_own_directory
from rpdp.errors import InputError, RpdpError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rpdp.console.console_silo import ConsoleSilo

LOG = logging.getLogger("rpdp.console")
_LOOPBACK = "127.0.0.1"
_MOST_REQUESTS = 64
_GRACE = 3


class _Server(uvicorn.Server):
    """uvicorn, without signal handlers of its own."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class ConsoleServer:
    """Serves the pages of a silo until `stop`.

    Args:
        silo: What is shown.
        announce: Called with each address that signs in once.
        port: A port on loopback; 0 for a free one.
        path: Instead: a Unix socket, which only this user may open.
        idle: Seconds without a request after which a session ends.
    """

    def __init__(
        self,
        silo: ConsoleSilo,
        announce: Callable[[str], None],
        *,
        port: int = 0,
        path: Path | None = None,
        idle: float = IDLE_SECONDS,
    ) -> None:
        self._silo, self._path = silo, path
        self._listener = _on_loopback(port) if path is None else _on_socket(path)
        self.address = (
            f"http://localhost (through {path})" if path else f"http://{_LOOPBACK}:{self._listener.getsockname()[1]}"
        )
        self._access = SignIn(lambda token: announce(self._sign_in_address(token)), idle=idle)
        config = uvicorn.Config(
            ConsolePages(silo, self._access).app(),
            access_log=False,
            date_header=False,
            http="h11",
            interface="asgi3",
            lifespan="off",
            limit_concurrency=_MOST_REQUESTS,
            log_config=None,
            log_level="error",  # a warning for each malformed request would let anybody fill the terminal
            loop="asyncio",
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=_GRACE,
            ws="none",
        )
        self._server = _Server(config)

    def _sign_in_address(self, token: str) -> str:
        place = "http://localhost:PORT" if self._path else self.address
        return f"{place}{SIGN_IN}?token={token}"

    def serve(self) -> None:
        """Offer a token, and answer until `stop`."""
        self._access.offer()
        # Budgets are counted before somebody asks for them.
        threading.Thread(target=self._count, daemon=True).start()
        try:
            self._server.run(sockets=[self._listener])
        finally:
            self._listener.close()
            if self._path is not None:
                self._path.unlink(missing_ok=True)
            self._silo.close()

    def _count(self) -> None:
        with suppress(RpdpError), self._silo.ledger() as ledger:  # the first page will say what is wrong
            self._silo.counts(ledger, patience=0.0)

    def stop(self) -> None:
        """End; may be called from another thread."""
        self._server.should_exit = True


def _on_loopback(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((_LOOPBACK, port))
        listener.listen(_MOST_REQUESTS)  # before the address is announced
    except OSError as error:
        listener.close()
        raise InputError(f"port={port} cannot be used on {_LOOPBACK}: {error.strerror}; choose another, or 0") from None
    return listener


def _on_socket(path: Path) -> socket.socket:
    require_own_directory(path)
    remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)  # the mode holds from the start, so that nobody can open it in between
    try:
        listener.bind(str(path))
        listener.listen(_MOST_REQUESTS)
    finally:
        os.umask(before)
    return listener
