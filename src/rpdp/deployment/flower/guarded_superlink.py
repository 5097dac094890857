"""The process of the SuperLink: on loopback, over TLS, for silos with registered keys, and for its own user alone.

Flower's Control API, which submits code and removes silos, and its Runtime API share one port with the API for silos,
and ask nobody who they are. So three doors stand before them:

| who | how far they get |
|---|---|
| another machine | not to this port, which is on loopback; only to the proxy, which forwards the paths for nodes |
| another user of this machine | the connection is closed before a byte is read |
| the server's own user, and root | the proxy, the operator's commands, the ServerApp |

The `flower-superlink` command cannot do this, so this module builds the same server from Flower's parts. They are
internal modules of Flower: a test compares them with the version that is pinned.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from flwr.common.constant import ISOLATION_MODE_SUBPROCESS, TRANSPORT_TYPE_GRPC_RERE
from flwr.supercore.http_logging import get_uvicorn_log_config
from flwr.supercore.logger import console_handler
from flwr.superlink.auth_plugin import NoOpControlAuthnPlugin
from flwr.superlink.cli.flower_superlink import SuperLinkLifespan
from flwr.superlink.config_loader import SuperLinkLifespanConfig
from flwr.superlink.main import create_app
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from rpdp.deployment.files.certificates import ServerCertificate
from rpdp.deployment.local_peer import peer_user

if TYPE_CHECKING:
    import asyncio

LOOPBACK = "127.0.0.1"
KEEPALIVE_SECONDS = 120
"""How long an idle connection stays open: longer than the proxy keeps one, so that the proxy never sends a request on a
connection that is being closed."""


class OwnUserProtocol(HttpToolsProtocol):
    """HTTP for processes of this process's own user, and of root. Everybody else's connection is closed unread."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Ask the kernel who has connected, before anything is read."""
        client, server = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        self._welcome = peer_user(client, server) in (os.geteuid(), 0)
        if self._welcome:
            super().connection_made(transport)
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read a request, unless the connection is being closed."""
        if self._welcome:
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up what `connection_made` has set up."""
        if self._welcome:
            super().connection_lost(exc)


def superlink_settings(certificate: ServerCertificate, *, port: int, database: Path) -> SuperLinkLifespanConfig:
    """Flower's settings of a SuperLink as rpdp wants it. All of them are given: none has a default."""
    files = (certificate.authority, certificate.certificate, certificate.key)
    authority, chain, key = (str(path.resolve()) for path in files)
    return SuperLinkLifespanConfig(
        control_address=f"{LOOPBACK}:{port}",
        health_server_address=None,
        host=LOOPBACK,
        port=port,
        insecure=False,
        certificates=(files[0].read_bytes(), files[1].read_bytes(), files[2].read_bytes()),
        superexec_auth_secret=None,
        authn_plugin=NoOpControlAuthnPlugin(),
        event_log_plugin=None,
        fleet_event_log_plugin=None,
        enable_event_log=False,
        artifact_provider=None,
        enable_supernode_auth=True,
        fleet_api_type=TRANSPORT_TYPE_GRPC_RERE,
        fleet_api_address=None,
        simulation=False,
        ssl_ca_certfile=authority,
        ssl_certfile=chain,
        ssl_keyfile=key,
        database=str(database),
        isolation=ISOLATION_MODE_SUBPROCESS,
        runtime_dependency_install=False,
    )


def serve(settings: SuperLinkLifespanConfig) -> None:
    """Serve until SIGTERM."""
    uvicorn.run(
        create_app(settings, SuperLinkLifespan),
        host=settings.host,
        port=settings.port,
        http=OwnUserProtocol,
        ws="none",
        workers=1,
        ssl_keyfile=settings.ssl_keyfile,
        ssl_certfile=settings.ssl_certfile,
        timeout_keep_alive=KEEPALIVE_SECONDS,
        log_config=_log_settings(),
    )


def _log_settings() -> dict[str, Any]:
    return get_uvicorn_log_config(console_handler.level)


def _main() -> None:
    parser = argparse.ArgumentParser(description="The SuperLink of a federation, on loopback, for its own user.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--authority", type=Path, required=True)
    parser.add_argument("--certificate", type=Path, required=True)
    parser.add_argument("--key", type=Path, required=True)
    parser.add_argument("--database", type=Path, required=True)
    given = parser.parse_args()
    certificate = ServerCertificate(given.authority, given.certificate, given.key)
    serve(superlink_settings(certificate, port=given.port, database=given.database))


if __name__ == "__main__":
    _main()
