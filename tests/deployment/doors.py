"""What somebody outside can send to a server: raw requests over TLS, to the byte, and what came of them."""

from __future__ import annotations

import os
import socket
import ssl
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TIMEOUT = 20.0


@dataclass(frozen=True)
class Visitor:
    """Somebody with a certificate, or none, and the authority that he trusts; of this machine, as another user."""

    authority: Path
    certificate: Path | None = None
    key: Path | None = None
    newest: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED
    user: int | None = None

    def ask(self, host: str, port: int, request: bytes) -> str:
        """Send these bytes; the first line of the answer, or why there was none."""
        context = self._context()
        try:
            with (
                _connected(host, port, self.user) as plain,
                context.wrap_socket(plain, server_hostname=host) as link,
            ):
                link.sendall(request)
                return _first_line(link)
        except ssl.SSLError as error:
            return f"TLS: {error.reason or error}"
        except OSError as error:
            return f"closed: {error}"

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.authority)
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key)
        if self.newest is not ssl.TLSVersion.MAXIMUM_SUPPORTED:
            context.set_ciphers("ALL:@SECLEVEL=0")  # or this side would refuse before the server can
            context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
            context.maximum_version = self.newest
        return context


def _connected(host: str, port: int, user: int | None) -> socket.socket:
    with nullcontext() if user is None else acting_as(user):
        return socket.create_connection((host, port), timeout=TIMEOUT)


@contextmanager
def acting_as(user: int) -> Iterator[None]:
    """Sockets that are made in the block belong to this user; only root can do that."""
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)


def _first_line(link: ssl.SSLSocket) -> str:
    received = b""
    with suppress(TimeoutError):
        while b"\r\n" not in received and (part := link.recv(4096)):
            received += part
    return received.split(b"\r\n")[0].decode(errors="replace") or "closed"


def post(path: str, *lines: str, version: str = "1.1", method: str = "POST", body: bytes = b"") -> bytes:
    """A request with a protobuf body."""
    head = [f"{method} {path} HTTP/{version}", "Host: fl.example", "Content-Type: application/protobuf"]
    return "\r\n".join([*head, f"Content-Length: {len(body)}", *lines, "Connection: close", "", ""]).encode() + body


def is_refusal(told: str) -> bool:
    """Whether the proxy has answered itself, and not with what was asked for, or not at all."""
    words = told.split(" ")
    return told.startswith(("closed", "TLS")) or words[1:2] in (["400"], ["404"], ["405"], ["501"], ["505"])


CONTROL_PATHS = ("start-run", "list-runs", "stop-run", "register-node", "unregister-node", "list-nodes", "stream-logs")
OTHER_PATHS = (
    "/",
    "/v1/health",
    "/health",
    "/docs",
    "/openapi.json",
    "/v1/runtime/acquire-task",
    "/v1/runtime/responses",
)
FLEET_PATHS_FOR_OPERATORS = ("/v1/fleet/register-node", "/v1/fleet/unregister-node")


def forbidden_requests() -> dict[str, bytes]:
    """Requests that must not reach the SuperLink, by what they try."""
    control = "/v1/control/list-runs"
    smuggled = post(control)
    allowed = "/v1/fleet/pull-messages"
    chunked = f"{len(smuggled):x}\r\n".encode() + smuggled + b"\r\n0\r\n\r\n"
    tricks = {
        "two slashes": f"/{control}",
        "slashes between": "/v1//control//list-runs",
        "encoded slash": "/v1%2fcontrol%2flist-runs",
        "encoded letters": "/v1/%63ontrol/list-runs",
        "down from an allowed path": f"{allowed}/../../control/list-runs",
        "down, encoded": f"{allowed}/%2e%2e/%2e%2e/control/list-runs",
        "up into an allowed path": f"{control}/../../fleet/pull-messages",
        "an allowed path in the query": f"{control}?{allowed}",
        "an allowed path in the fragment": f"{control}#{allowed}",
        "question mark, encoded": f"{control}%3f/../../fleet/pull-messages",
        "null byte": f"{allowed}%00{control}",
        "absolute form": f"https://fl.example{control}",
        "absolute form, userinfo": f"https://fl.example{allowed}@fl.example{control}",
        "capitals": "/V1/FLEET/pull-messages",
        "query behind an allowed path": f"{allowed}?x=1",
        "slash behind an allowed path": f"{allowed}/",
        "semicolon": f"{allowed};{control}",
        "backslash": "/v1/fleet\\..\\control\\list-runs",
    }
    return {
        **{f"control: {name}": post(f"/v1/control/{name}") for name in CONTROL_PATHS},
        **{f"other: {path}": post(path) for path in (*OTHER_PATHS, *FLEET_PATHS_FOR_OPERATORS)},
        **{name: post(path) for name, path in tricks.items()},
        "HTTP/1.0": post(control, version="1.0"),
        "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
        "GET": post(control, method="GET"),
        "GET of an allowed path": post(allowed, method="GET"),
        "CONNECT": post("127.0.0.1:8444", method="CONNECT"),
        "upgrade": post(control, "Upgrade: h2c"),
        "method override": post(allowed, "X-HTTP-Method-Override: GET", method="PUT"),
        "path in a header": post("/", f"X-Original-URL: {control}", f"X-Rewrite-URL: {control}"),
        "length and chunks": post(allowed, "Transfer-Encoding: chunked", body=chunked),
        "two lengths": post(allowed, f"Content-Length: {len(smuggled)}", body=smuggled),
        "chunks, misspelt": post(allowed, "Transfer-Encoding : chunked", body=chunked),
        "chunks, unknown": post(allowed, "Transfer-Encoding: xchunked", body=chunked),
        "line break in the path": post("/v1/fleet/pull-messages HTTP/1.1\r\nX: y\r\n\r\nPOST " + control),
    }
