"""The fleet side of a SuperLink in memory, over TLS: hands messages over, keeps replies, and fails on demand.

It speaks with Flower's own types. Tests against a real SuperLink hold it to what Flower does.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

from flwr.app import Message, Metadata, RecordDict
from flwr.app.message.message import make_message
from flwr.common.serde import message_to_proto
from flwr.proto import fleet_pb2, heartbeat_pb2, message_pb2
from flwr.supercore.inflatable.inflatable_object import (
    InflatableObject,
    get_all_nested_objects,
    get_object_tree,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from rpdp.deployment.flower.frame_record import MESSAGE_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rpdp.deployment.files.certificates import ServerCertificate

NODE, RUN = 7, 11
DROP = -1
"""Instead of a status: close the connection without an answer."""


@dataclass
class Seen:
    """One request."""

    name: str
    headers: dict[str, str]
    body: bytes


@dataclass
class FleetServer:
    """A server for one node; `fails` may turn a request, by its name, into a status.

    Attributes:
        certificate: The server's.
        clients: The authority that signs certificates of clients; without it none is asked for.
        fails: The status of the answer to a request, or None to serve it.
        words: What comes with such a status.
        location: Where such an answer says to look instead.
        requests: All requests so far.
        replies: Replies whose parts have all arrived.
    """

    certificate: ServerCertificate
    clients: Path | None = None
    fails: Callable[[str], int | None] = field(default=lambda _: None)
    words: bytes = b""
    location: str = ""
    requests: list[Seen] = field(default_factory=list)
    replies: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._waiting: deque[Message] = deque()
        self._objects: dict[str, bytes] = {}
        self._pushed: dict[str, bytes] = {}
        self._trees: list[Any] = []

    def __enter__(self) -> Self:
        fleet = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                fleet.serve(self)

            def log_message(self, *_: object) -> None: ...

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate.certificate, self.certificate.key)
        if self.clients is not None:
            context.load_verify_locations(self.clients)
            context.verify_mode = ssl.CERT_REQUIRED
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._http.handle_error = lambda *_: None  # type: ignore[method-assign]  # refused handshakes
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    @property
    def address(self) -> str:
        return f"https://127.0.0.1:{self._http.server_address[1]}"

    def send(self, content: RecordDict, kind: str = MESSAGE_TYPE, ttl: float = 60.0) -> str:
        """Queue a message for the node; its id."""
        facts = Metadata(RUN, "", 1, NODE, "", "", time.time(), ttl, kind)
        message = make_message(facts, content)
        number = message.object_id
        message.metadata.__dict__["_message_id"] = number
        self._objects |= {one: part.deflate() for one, part in get_all_nested_objects(message).items()}
        self._waiting.append(message)
        return number

    def await_replies(self, count: int, seconds: float = 20.0) -> list[Message]:
        until = time.monotonic() + seconds
        while len(self.replies) < count:
            assert time.monotonic() < until, f"{len(self.replies)} of {count} replies; {self.names()[-10:]}"
            time.sleep(0.01)
        return self.replies

    def names(self) -> list[str]:
        return [one.name for one in self.requests]

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["content-length"]))
        name = handler.path.removeprefix("/v1/fleet/")
        self.requests.append(Seen(name, {key.lower(): value for key, value in handler.headers.items()}, body))
        status = self.fails(name)
        if status == DROP:
            handler.close_connection = True
            return
        answer = self.words if status is not None else self._answer(name, body)
        handler.send_response(status or 200)
        if status is not None and self.location:
            handler.send_header("location", self.location)
        handler.send_header("content-length", str(len(answer)))
        handler.end_headers()
        handler.wfile.write(answer)

    def _answer(self, name: str, body: bytes) -> bytes:
        work: Any = getattr(self, "_" + name.replace("-", "_"))
        return bytes(work(body).SerializeToString())

    def _activate_node(self, _: bytes) -> Any:
        return fleet_pb2.ActivateNodeResponse(node_id=NODE)

    def _deactivate_node(self, _: bytes) -> Any:
        return fleet_pb2.DeactivateNodeResponse()

    def _send_node_heartbeat(self, _: bytes) -> Any:
        return heartbeat_pb2.SendNodeHeartbeatResponse(success=True)

    def _pull_messages(self, _: bytes) -> Any:
        if not self._waiting:
            return fleet_pb2.PullMessagesResponse()
        message = self._waiting.popleft()
        tree = get_object_tree(message)
        bare = message_to_proto(message)
        bare.content.Clear()
        bare.content.SetInParent()
        return fleet_pb2.PullMessagesResponse(messages_list=[bare], message_object_trees=[tree])

    def _pull_object(self, body: bytes) -> Any:
        number = message_pb2.PullObjectRequest.FromString(body).object_id
        found = self._objects.get(number)
        return message_pb2.PullObjectResponse(
            object_found=found is not None, object_available=bool(found), object_content=found or b""
        )

    def _confirm_message_received(self, _: bytes) -> Any:
        return message_pb2.ConfirmMessageReceivedResponse()

    def _push_messages(self, body: bytes) -> Any:
        request = fleet_pb2.PushMessagesRequest.FromString(body)
        tree = request.message_object_trees[0]
        self._trees.append(tree)
        wanted = _numbers(tree)
        return fleet_pb2.PushMessagesResponse(objects_to_push=wanted, session_id="s")

    def _push_object(self, body: bytes) -> Any:
        request = message_pb2.PushObjectRequest.FromString(body)
        self._pushed[request.object_id] = request.object_content
        for tree in list(self._trees):
            if set(_numbers(tree)) <= set(self._pushed):
                self._trees.remove(tree)
                self.replies.append(_inflated(tree.object_id, dict(self._pushed)))
        return message_pb2.PushObjectResponse(stored=True)


def _numbers(tree: Any) -> list[str]:
    return [tree.object_id, *(number for child in tree.children for number in _numbers(child))]


def _inflated(number: str, contents: dict[str, bytes]) -> Message:
    found: InflatableObject = inflate_object_from_contents(number, contents)
    assert isinstance(found, Message)
    return found
