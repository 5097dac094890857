"""The configuration of the server's proxy (nginx), which is all that silos and strangers reach.

| what arrives | what happens |
|---|---|
| `POST` to one of the paths for nodes, written exactly so | it is forwarded to the SuperLink on loopback |
| any other method, path or spelling of a path | 404 |
| at `port`: no certificate, or one that is foreign, revoked or over | 400 |
| TLS below 1.2, or no TLS | refused |

Paths are compared as they were sent, before anything is decoded or simplified, and the SuperLink is asked for the path
in this file, never for what was sent. Bodies are passed on as they come: nothing of a silo is written to disk here.
Sessions are not resumed, because a resumed session would not be compared with the revocation list again.

The file names everything relative to the server's directory, so the directory may be moved:
`nginx -e nginx/error.log -p /srv/rpdp/server -c nginx.conf`, as the user who runs the SuperLink.
"""

from __future__ import annotations

from string import Template

PROXY_FILE, PROXY_HOME = "nginx.conf", "nginx"

NODE_PATHS = (
    "activate-node",
    "deactivate-node",
    "send-node-heartbeat",
    "pull-messages",
    "push-messages",
    "pull-object",
    "push-object",
    "confirm-message-received",
    "get-run",
)
"""What a node asks for, below `/v1/fleet/`. Registering and removing nodes is for the operator."""
STOCK_PATHS = (*NODE_PATHS, "get-fab")
"""Flower's own SuperNode also fetches the server's app."""

LARGEST_BODY = "2g"
"""The most that Flower's format can carry."""


def proxy_configuration(host: str, port: int, superlink_port: int, stock_port: int | None = None) -> str:
    """The text of `nginx.conf`.

    Args:
        host: Where silos reach the server. For a host of loopback, the proxy listens there only.
        port: For nodes that present a certificate of the federation.
        superlink_port: Where the SuperLink listens, on loopback.
        stock_port: For nodes without one; their keys and the paths must do. None for no such port.
    """
    listeners = [_LISTENER.substitute(listen=_listen(host, port), certificates=_CERTIFICATES, paths="node")]
    if stock_port is not None:
        listeners.append(_LISTENER.substitute(listen=_listen(host, stock_port), certificates="", paths="stock"))
    return _CONFIGURATION.substitute(
        node="|".join(NODE_PATHS),
        stock="|".join(STOCK_PATHS),
        body=LARGEST_BODY,
        superlink=superlink_port,
        listeners="".join(listeners),
    )


def _listen(host: str, port: int) -> str:
    if host in ("127.0.0.1", "localhost"):
        return f"127.0.0.1:{port}"
    if ":" in host:
        return f"[::1]:{port}" if host == "::1" else f"[::]:{port}"
    return str(port)


_CONFIGURATION = Template("""\
# Written by `rpdp deploy init`; commands that change it write it anew.
daemon off;
worker_processes 1;
pid nginx/nginx.pid;
error_log nginx/error.log warn;
worker_shutdown_timeout 60s;  # connections of before a reload end at the latest then
events { worker_connections 1024; }

http {
    # The path to ask the SuperLink for; empty for all that is not allowed. $$request_uri is what was sent, not decoded.
    map "$$request_method $$request_uri" $$node {
        default "";
        "~^POST (?<node_path>/v1/fleet/(?:$node))$$" $$node_path;
    }
    map "$$request_method $$request_uri" $$stock {
        default "";
        "~^POST (?<stock_path>/v1/fleet/(?:$stock))$$" $$stock_path;
    }
    map $$status $$is_refused { default 1; "~^[23]" 0; }
    log_format refused '$$time_iso8601 $$remote_addr $$status "$$request_method $$uri" '
                       '$$ssl_protocol "$$ssl_client_s_dn" $$ssl_client_verify';
    access_log nginx/refused.log refused if=$$is_refused;

    server_tokens off;
    default_type application/octet-stream;
    client_body_temp_path nginx/body;
    proxy_temp_path nginx/proxy;
    fastcgi_temp_path nginx/fastcgi;
    uwsgi_temp_path nginx/uwsgi;
    scgi_temp_path nginx/scgi;

    client_max_body_size $body;
    client_header_timeout 10s;
    client_body_timeout 60s;
    send_timeout 60s;
    keepalive_timeout 75s;
    keepalive_requests 100000;

    ssl_certificate server.crt;
    ssl_certificate_key server.key;
    ssl_protocols TLSv1.2 TLSv1.3;
    ssl_ciphers ECDHE+AESGCM:ECDHE+CHACHA20;
    ssl_session_cache off;
    ssl_session_tickets off;

    upstream superlink {
        server 127.0.0.1:$superlink;
        keepalive 64;
    }
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_set_header Host superlink;
    proxy_request_buffering off;
    proxy_buffering off;
    proxy_max_temp_file_size 0;
    proxy_next_upstream off;
    proxy_connect_timeout 5s;
    proxy_read_timeout 120s;
    proxy_send_timeout 120s;
    proxy_ssl_protocols TLSv1.2 TLSv1.3;
    proxy_ssl_trusted_certificate loopback/ca.crt;
    proxy_ssl_name localhost;  # nginx compares names alone, not addresses
    proxy_ssl_verify on;
$listeners}
""")

_LISTENER = Template("""
    server {
        listen $listen ssl;
$certificates        location / {
            if ($$$paths = "") { return 404; }
            proxy_pass https://superlink$$$paths;
        }
    }
""")

_CERTIFICATES = """\
        ssl_client_certificate ca.crt;
        ssl_crl clients.crl;
        ssl_verify_client on;
        ssl_verify_depth 1;
"""
