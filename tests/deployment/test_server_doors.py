"""The doors of a server, from inside its own machine: what the proxy forwards, and whom the SuperLink lets in.

`test_silo_namespace.py` tries the same from a machine of its own, in the middle of a run.
"""

from __future__ import annotations

import os
import socket
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import flwr
import pytest
from flwr.supercore.protobuf.translation import PROTOBUF_REQUEST_TYPES
from flwr.superlink.config_loader import SuperLinkLifespanConfig

from rpdp.deployment.files.certificates import make_loopback_certificate
from rpdp.deployment.files.proxy_file import NODE_PATHS, STOCK_PATHS, proxy_configuration
from rpdp.deployment.flower.flower_processes import SuperLink
from rpdp.deployment.flower.guarded_superlink import superlink_settings
from rpdp.deployment.local_peer import peer_user
from rpdp.deployment.server_proxy import ServerProxy, check_proxy
from rpdp.errors import InputError
from tests.programs import needs_nginx

from . import trials
from .doors import Visitor, acting_as, forbidden_requests, is_refusal, post

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rpdp.deployment.files.layout import Layout

NOBODY = 65534


def test_the_paths_are_those_of_flower() -> None:
    """A path that Flower adds or renames must be looked at: may a silo ask for it?"""
    assert flwr.__version__.startswith("1.41."), "look at the paths and at SuperLinkLifespanConfig again"
    fleet = {path.rpartition("/")[2] for _, path in PROTOBUF_REQUEST_TYPES if path.startswith("/v1/fleet/")}
    assert fleet == {*STOCK_PATHS, "register-node", "unregister-node"}
    assert set(STOCK_PATHS) - set(NODE_PATHS) == {"get-fab"}


def test_every_setting_of_the_superlink_is_given(tmp_path: Path) -> None:
    made = superlink_settings(make_loopback_certificate(tmp_path), port=1, database=tmp_path / "db")
    assert {field.name for field in fields(made)} == {field.name for field in fields(SuperLinkLifespanConfig)}
    assert (made.host, made.enable_supernode_auth, made.insecure) == ("127.0.0.1", True, False)
    assert made.health_server_address is None


@pytest.mark.parametrize(
    ("host", "listens"),
    [
        ("fl.example", "8443"), ("10.0.0.7", "8443"), ("127.0.0.1", "127.0.0.1:8443"), ("localhost", "127.0.0.1:8443"),
        ("::1", "[::1]:8443"), ("2001:db8::7", "[::]:8443"),
    ],
)  # fmt: skip
def test_where_the_proxy_listens(host: str, listens: str) -> None:
    text = proxy_configuration(host, 8443, 8444)
    assert f"listen {listens} ssl;" in text
    assert text.count("listen ") == text.count("ssl_verify_client on;") == 1
    both = proxy_configuration(host, 8443, 8444, 8445)
    assert (both.count("listen "), both.count("ssl_verify_client on;")) == (2, 1)


# Whose connection it is


def test_the_kernel_knows_whose_connection_it_is() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        address = server.getsockname()
        with socket.create_connection(address) as client:
            own = client.getsockname()
            assert peer_user(own, address) == os.geteuid()
            assert peer_user((own[0], own[1] ^ 1), address) is None
        assert peer_user(own, address) is None  # it is closed


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_the_kernel_knows_another_user() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        address = server.getsockname()
        with acting_as(NOBODY):
            client = socket.create_connection(address)
        with client:
            assert peer_user(client.getsockname(), address) == NOBODY


# A server without silos


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Layout]:
    layout = trials.make_layout(tmp_path_factory.mktemp("d"), trials.study_text(), ("north", "south"), stock=True)
    with SuperLink.of(layout), ServerProxy(layout):
        yield layout


def silo(layout: Layout, name: str = "north") -> Visitor:
    home = layout.silo(name)
    return Visitor(home / "ca.crt", home / f"{name}.crt", home / f"{name}.tls.key")


@needs_nginx
def test_only_the_paths_of_nodes_are_forwarded(server: Layout) -> None:
    """The SuperLink itself says 401 to a request without a node's signature: so it was reached."""
    stock = Visitor(silo(server).authority)
    assert server.stock_port is not None
    for name in STOCK_PATHS:
        wanted = {server.port: "401" if name in NODE_PATHS else "404", server.stock_port: "401"}
        for port, visitor in ((server.port, silo(server)), (server.stock_port, stock)):
            assert wanted[port] in visitor.ask("127.0.0.1", port, post(f"/v1/fleet/{name}")), (name, port)
    for what, request in forbidden_requests().items():
        for port, visitor in ((server.port, silo(server)), (server.stock_port, stock)):
            told = visitor.ask("127.0.0.1", port, request)
            assert is_refusal(told), (what, told)


@needs_nginx
def test_the_forbidden_requests_work_behind_the_proxy(server: Layout) -> None:
    """The negative control: they are refused by the proxy, not by a mistake in them."""
    inside = Visitor(server.loopback / "ca.crt")
    assert "200" in inside.ask("127.0.0.1", server.superlink_port, post("/v1/control/list-runs"))
    found = {what: inside.ask("127.0.0.1", server.superlink_port, ask) for what, ask in forbidden_requests().items()}
    assert sum(" 200" in told for told in found.values()) >= 5, found
    assert "200" in found["encoded letters"]


@needs_nginx
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_another_user_of_the_machine_is_not_heard(server: Layout) -> None:
    inside = Visitor(server.loopback / "ca.crt")
    request = post("/v1/control/list-runs")
    told = replace(inside, user=NOBODY).ask("127.0.0.1", server.superlink_port, request)
    assert told.startswith(("closed", "TLS"))
    assert "HTTP/1.1 200" in inside.ask("127.0.0.1", server.superlink_port, request)


@needs_nginx
def test_a_configuration_that_nginx_refuses(server: Layout) -> None:
    check_proxy(server)
    certificate = server.server / "server.crt"
    good = certificate.read_bytes()
    certificate.write_bytes(b"no certificate")
    try:
        with pytest.raises(InputError, match=r"nginx\.conf: nginx refuses it: .*server\.crt"):
            check_proxy(server)
    finally:
        certificate.write_bytes(good)
