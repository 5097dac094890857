"""A page of metrics on loopback: `http://127.0.0.1:PORT/metrics`, made anew for every request."""

from __future__ import annotations

import logging
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LOG = logging.getLogger("rpdp.metrics")
_HOST = "127.0.0.1"
_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricsServer:
    """Serves a text on loopback, where only this machine reaches it.

    Args:
        text: Makes the text.
        port: The port; 0 for a free one.
    """

    def __init__(self, text: Callable[[], str], port: int) -> None:
        class Page(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path != "/metrics":
                    self.send_error(HTTPStatus.NOT_FOUND)
                    return
                try:
                    body = text().encode()
                except Exception:
                    LOG.exception("the metrics cannot be made")
                    self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)
                    return
                self.send_response(HTTPStatus.OK)
                self.send_header("Content-Type", _TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                LOG.debug("%s", args)

        self._server = ThreadingHTTPServer((_HOST, port), Page)

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{_HOST}:{self._server.server_address[1]}/metrics"

    def serve(self) -> None:
        """Serve until `stop`."""
        try:
            self._server.serve_forever()
        finally:
            self._server.server_close()

    def stop(self) -> None:
        """End; may be called from another thread."""
        self._server.shutdown()
