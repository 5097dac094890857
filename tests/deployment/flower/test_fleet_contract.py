"""The parts of Flower on which the node and the server's link rest: another version of Flower must fail here first.

These are internal modules of Flower. Every request of ours is compared with that of Flower's own client, byte by byte.
"""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

import flwr
import pytest
from flwr.app import Metadata
from flwr.app.message.message import make_message
from flwr.common import constant
from flwr.proto import fleet_pb2, heartbeat_pb2, message_pb2
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable import inflatable_utils
from flwr.supercore.inflatable.inflatable_object import get_object_tree
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.superlink.grid import http_grid
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from rpdp.deployment.files.certificates import make_authority, make_server_certificate, make_silo_key
from rpdp.deployment.flower import fleet_link
from rpdp.deployment.flower.fleet_link import (
    HEARTBEAT_SECONDS,
    KNOWN_FLOWER,
    FleetLink,
    read_node_key,
    require_known_flower,
    tls_context,
)
from rpdp.deployment.flower.frame_record import NOT_OURS, reply, request_record
from rpdp.errors import InputError
from tests.deployment.flower.fleet_server import NODE, RUN, FleetServer

if TYPE_CHECKING:
    from pathlib import Path


def answer() -> Any:
    """A reply, as the node would send it."""
    asked = make_message(Metadata(RUN, "m", 1, NODE, "", "", 1e9, 1e9, "train"), request_record(b"frame", 5.0))
    return reply(asked, NOT_OURS)


def both(folder: Path, ours: Any, theirs: Any) -> tuple[Any, Any]:
    """What a server sees of the same request, made by us and by Flower's client."""
    authority = make_authority(folder / "ca")
    key = read_node_key(make_silo_key(folder / "silo", "north").private)
    with FleetServer(make_server_certificate(authority, folder / "server", ["127.0.0.1"])) as server:
        link = FleetLink(server.address, tls_context(authority.certificate), key)
        interceptors: list[Any] = [
            RuntimeVersionHttpInterceptor("SuperNode"),
            NodeAuthHttpInterceptor(key, key.public_key()),
        ]
        client = FleetHttpClient.from_server_address(
            server.address.removeprefix("https://"), False, authority.certificate.read_bytes(), interceptors
        )
        try:
            link.activate()
            ours(link)
            theirs(client, Node(node_id=NODE), link._public_key)
        finally:
            link.close()
            client.close()
        return tuple(server.requests[-2:])  # type: ignore[return-value]


REPLY = answer()


def pull_nothing(link: FleetLink) -> None:
    with pytest.raises(inflatable_utils.ObjectPullError):
        link.pull_object(RUN, "x")


def push_theirs(client: FleetHttpClient, node: Node, _: bytes) -> None:
    """As `http_request_response.send` does it, with a message from which the node's state has taken its number."""
    from flwr.app.message.message import remove_content_from_message
    from flwr.common.serde import message_to_proto

    REPLY.metadata.__dict__["_message_id"] = REPLY.object_id
    bare = message_to_proto(remove_content_from_message(REPLY))
    client.PushMessages(
        fleet_pb2.PushMessagesRequest(
            node=node,
            messages_list=[bare],
            message_object_trees=[get_object_tree(REPLY)],
            clientapp_runtime_list=[0.5],
        )
    )


CALLS: dict[str, tuple[Any, Any]] = {
    "activate-node": (
        lambda link: link.activate(),
        lambda client, _, key: client.ActivateNode(
            fleet_pb2.ActivateNodeRequest(public_key=key, heartbeat_interval=HEARTBEAT_SECONDS)
        ),
    ),
    "deactivate-node": (
        lambda link: link.deactivate(),
        lambda client, node, _: client.DeactivateNode(fleet_pb2.DeactivateNodeRequest(node_id=node.node_id)),
    ),
    "send-node-heartbeat": (
        lambda link: link.send_heartbeat(),
        lambda client, node, _: client.SendNodeHeartbeat(
            heartbeat_pb2.SendNodeHeartbeatRequest(node=node, heartbeat_interval=HEARTBEAT_SECONDS)
        ),
    ),
    "pull-messages": (
        lambda link: link.pull_message(),
        lambda client, node, _: client.PullMessages(fleet_pb2.PullMessagesRequest(node=node)),
    ),
    "pull-object": (
        pull_nothing,
        lambda client, node, _: client.PullObject(message_pb2.PullObjectRequest(node=node, run_id=RUN, object_id="x")),
    ),
    "confirm-message-received": (
        lambda link: link.confirm(RUN, "x"),
        lambda client, node, _: client.ConfirmMessageReceived(
            message_pb2.ConfirmMessageReceivedRequest(node=node, run_id=RUN, message_object_id="x")
        ),
    ),
    "push-messages": (lambda link: link.push_message(REPLY, 0.5), push_theirs),
    "push-object": (
        lambda link: link.push_object(RUN, "s", "x", b"content"),
        lambda client, node, _: client.PushObject(
            message_pb2.PushObjectRequest(
                node=node, run_id=RUN, session_id="s", object_id="x", object_content=b"content"
            )
        ),
    ),
}

_VARIES = {"flwr-timestamp", "flwr-signature", "host", "user-agent"}


@pytest.mark.parametrize("name", CALLS)
def test_a_request_is_that_of_flowers_own_client(tmp_path: Path, name: str) -> None:
    ours, theirs = both(tmp_path, *CALLS[name])
    assert (ours.name, theirs.name) == (name, name)
    assert ours.body == theirs.body
    assert set(ours.headers) == set(theirs.headers)
    assert {key: ours.headers[key] for key in set(ours.headers) - _VARIES} == {
        key: theirs.headers[key] for key in set(theirs.headers) - _VARIES
    }


def test_all_requests_of_the_node_are_compared() -> None:
    made = set(re.findall(r'self\._call\("([a-z-]+)"', inspect.getsource(fleet_link)))
    assert made == set(CALLS)


def test_this_version_of_flower_was_compared() -> None:
    require_known_flower()
    assert ".".join(flwr.__version__.split(".")[:2]) in KNOWN_FLOWER


@pytest.mark.parametrize("version", ["1.40.0", "1.43.0", "2.41.0"])
def test_another_version_is_refused_with_the_way_out(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(flwr, "__version__", version)
    with pytest.raises(InputError, match=rf"flwr {version} is installed.*install flwr==1.41"):
        require_known_flower()


def test_what_flower_promises_about_a_node_that_is_gone() -> None:
    assert (constant.HEARTBEAT_MIN_INTERVAL, constant.HEARTBEAT_PATIENCE) == (10, 2)


def test_signatures() -> None:
    """Of what is called with names or by position."""
    assert list(inspect.signature(inflatable_utils.pull_objects).parameters) == [
        "object_ids", "pull_object_fn", "max_concurrent_pulls", "max_time", "max_tries_per_object",
        "initial_backoff", "backoff_cap",
    ]  # fmt: skip
    assert list(inspect.signature(inflatable_utils.push_object_contents_from_iterable).parameters)[:2] == [
        "object_contents",
        "push_object_fn",
    ]
    assert list(inspect.signature(inflatable_utils.inflate_object_from_contents).parameters)[:2] == [
        "object_id",
        "object_contents",
    ]


def test_the_grid_pulls_parts_by_the_name_that_the_link_replaces() -> None:
    """`GridLink` shortens how long Flower waits for the parts of a reply."""
    assert "pull_objects(" in inspect.getsource(http_grid.HttpGrid.pull_messages)
    assert "pull_objects" in vars(http_grid)
