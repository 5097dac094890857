"""The requests of a silo's node to the server: Flower's fleet protocol over HTTPS, and what each failure means.

Flower's own client (`flwr.supernode.fleet_http_connection`) presents no client certificate, follows redirects into the
silo's network, retries for ever inside a request and stops the process by a signal. So this speaks the protocol itself,
with Flower's message types and Flower's signature of a request by the node key. These are internal modules of Flower:
`require_known_flower` refuses versions that nobody has tried, and a contract test compares every request with that of
Flower's own client.

| the server answers | here | what the node does |
|---|---|---|
| nothing, a broken connection, 429, 5xx | `ServerAway` | tries again, more slowly each time |
| 401, 412: key unknown, or an earlier process taken for alive | `NodeUnknown` | activates again, for a while |
| 403 with Flower's code: the run was stopped | `RunOver` | drops the message |
| a certificate that is not accepted, or anything else | `NodeRefused` | ends, with a sentence that says why |
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import flwr
import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.common.constant import HEARTBEAT_MIN_INTERVAL
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    ActivateNodeResponse,
    DeactivateNodeRequest,
    DeactivateNodeResponse,
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesRequest,
    PushMessagesResponse,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest, SendNodeHeartbeatResponse
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    ConfirmMessageReceivedResponse,
    PullObjectRequest,
    PullObjectResponse,
    PushObjectRequest,
    PushObjectResponse,
)
from flwr.proto.node_pb2 import Node
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supercore.inflatable.inflatable_object import get_object_tree
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, ObjectUnavailableError
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.protobuf.client import ProtobufRequestContext
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
from flwr.supercore.runtime_version_compatibility import RuntimeVersionMetadata
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from google.protobuf.message import DecodeError, Message

from rpdp.errors import InputError, RpdpError

if TYPE_CHECKING:
    from flwr.app import Message as FlowerMessage

    from rpdp.deployment.files.node_file import NodeFile

KNOWN_FLOWER = ("1.41", "1.42")
"""Versions whose fleet protocol was compared with the requests below."""

HEARTBEAT_SECONDS = HEARTBEAT_MIN_INTERVAL
"""How often the server is promised a sign of life. It takes a node for gone after twice this, and refuses until then
another process with the same key, such as this one after a crash. So: the shortest that it accepts."""

_REQUEST_SECONDS = 10.0
_TRANSFER_SECONDS = 60.0
"""For a pause within the transfer of an object, not for the whole of it."""

_AWAY = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.REQUEST_TIMEOUT)
_PATHS = "/v1/fleet/"
_MOST_SKEW = 5.0
"""Seconds that a node's clock may be ahead of the server's; 300 behind."""

Response = TypeVar("Response", bound=Message)


class FleetError(RpdpError):
    """A request of a node to its server has failed."""


class ServerAway(FleetError):
    """The server cannot be reached, or cannot answer now."""


class NodeUnknown(FleetError):
    """The server does not accept this node's key: a new activation may help."""


class RunOver(FleetError):
    """The Flower run that a message belongs to is over."""


class NodeRefused(FleetError):
    """The connection can never work like this: a person must look at it."""


def require_known_flower() -> None:
    """Refuse a version of Flower whose protocol was not compared."""
    if ".".join(flwr.__version__.split(".")[:2]) not in KNOWN_FLOWER:
        raise InputError(
            f"flwr {flwr.__version__} is installed, and `rpdp silo node` is known to work with "
            f"{' and '.join(KNOWN_FLOWER)} only: install flwr=={KNOWN_FLOWER[0]}.*, or use Flower's own SuperNode"
        )


def tls_context(authority: Path, certificate: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    """TLS that trusts this authority alone, and shows the silo's certificate if there is one."""
    try:
        context = ssl.create_default_context(cafile=authority)
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"{authority}: not a readable certificate ({error})") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if certificate is not None:
        try:
            context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            raise InputError(f"{certificate} and {key}: not a readable certificate and its key ({error})") from None
    return context


def read_node_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """The silo's key, as `rpdp deploy init` or ssh-keygen wrote it."""
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path}: not a readable OpenSSH private key ({error})") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(f"{path}: not an ECDSA key")
    return key


class FleetLink:
    """The server, as the node of one silo sees it. Safe to use from several threads.

    Args:
        server: "https://host:port".
        context: TLS towards it.
        key: The silo's key, registered at the server.
    """

    def __init__(self, server: str, context: ssl.SSLContext, key: ec.EllipticCurvePrivateKey) -> None:
        self.server = server
        self._client = httpx.Client(verify=context, timeout=_REQUEST_SECONDS, follow_redirects=False, trust_env=False)
        self._public_key = public_key_to_bytes(key.public_key())
        self._signature = NodeAuthHttpInterceptor(key, key.public_key())
        self._versions = dict(RuntimeVersionMetadata.from_local_component("SuperNode").as_metadata())
        self._node = Node()

    @classmethod
    def of(cls, spec: NodeFile) -> FleetLink:
        """The connection that a node file describes."""
        node = spec.node
        certificate = None if node.certificate is None else spec.file(node.certificate)
        tls_key = None if node.tls_key is None else spec.file(node.tls_key)
        context = tls_context(spec.file(node.ca), certificate, tls_key)
        return cls(node.server, context, read_node_key(spec.file(node.key)))

    @property
    def node_id(self) -> int:
        """The server's number for this node; it belongs to the key."""
        return int(self._node.node_id)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def activate(self) -> int:
        """Tell the server that the node is there."""
        request = ActivateNodeRequest(public_key=self._public_key, heartbeat_interval=HEARTBEAT_SECONDS)
        self._node = Node(node_id=self._call("activate-node", request, ActivateNodeResponse).node_id)
        return self.node_id

    def deactivate(self) -> None:
        """Tell the server that the node leaves."""
        self._call("deactivate-node", DeactivateNodeRequest(node_id=self.node_id), DeactivateNodeResponse)

    def send_heartbeat(self) -> None:
        """Tell the server that the node is still there."""
        request = SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=HEARTBEAT_SECONDS)
        if not self._call("send-node-heartbeat", request, SendNodeHeartbeatResponse).success:
            raise NodeUnknown(f"{self.server} no longer knows this node")

    def pull_message(self) -> PullMessagesResponse:
        """The oldest message for this node, if there is one; its content is fetched with `pull_object`."""
        return self._call("pull-messages", PullMessagesRequest(node=self._node), PullMessagesResponse)

    def pull_object(self, run: int, number: str) -> bytes:
        """A part of a message."""
        request = PullObjectRequest(node=self._node, run_id=run, object_id=number)
        found = self._call("pull-object", request, PullObjectResponse, _TRANSFER_SECONDS)
        if not found.object_found:
            raise ObjectPullError(number, "it is not there")
        if not found.object_available:  # the server has not stored all of the message yet
            raise ObjectUnavailableError(number)
        return found.object_content

    def confirm(self, run: int, message: str) -> None:
        """Tell the server that all of a message was received."""
        request = ConfirmMessageReceivedRequest(node=self._node, run_id=run, message_object_id=message)
        self._call("confirm-message-received", request, ConfirmMessageReceivedResponse)

    def push_message(self, message: FlowerMessage, seconds: float) -> PushMessagesResponse:
        """Announce a reply; the answer says which of its parts the server needs, and in which session."""
        proto = message_to_proto(message)
        proto.metadata.message_id = message.object_id
        proto.content.Clear()
        proto.content.SetInParent()  # present and empty: its parts follow
        request = PushMessagesRequest(
            node=self._node,
            messages_list=[proto],
            message_object_trees=[get_object_tree(message)],
            clientapp_runtime_list=[seconds],
        )
        return self._call("push-messages", request, PushMessagesResponse)

    def push_object(self, run: int, session: str, number: str, content: bytes) -> bool:
        """Send a part of a reply; False if the session is over, and the reply must be announced again."""
        request = PushObjectRequest(
            node=self._node, run_id=run, session_id=session, object_id=number, object_content=content
        )
        return self._call("push-object", request, PushObjectResponse, _TRANSFER_SECONDS).stored

    def _call(self, name: str, request: Message, kind: type[Response], seconds: float = _REQUEST_SECONDS) -> Response:
        """One request. The server's words are never logged as they are: only its status and Flower's code."""
        posted = self._client.build_request(
            "POST",
            f"{self.server}{_PATHS}{name}",
            content=request.SerializeToString(deterministic=True),
            headers={"content-type": PROTOBUF_MEDIA_TYPE, "accept": PROTOBUF_MEDIA_TYPE, **self._versions},
            timeout=seconds,
        )
        try:
            found = self._signature.intercept(
                ProtobufRequestContext(f"/flwr.proto.Fleet/{name}", request, posted),
                lambda context: self._client.send(context.request),
            )
        except httpx.TransportError as error:
            raise _transport(self.server, error) from None
        if not found.is_success:
            raise _failure(self.server, found)
        answer: Response = kind()
        try:
            answer.ParseFromString(found.content)
        except DecodeError:
            raise NodeRefused(f"{self.server}: what answers there is no SuperLink") from None
        return answer


def _transport(server: str, error: httpx.TransportError) -> FleetError:
    """No answer: what is wrong with certificates needs a person, all else is tried again."""
    reason: BaseException | None = error
    while reason is not None and not isinstance(reason, ssl.SSLError):
        reason = reason.__cause__ or reason.__context__
    if isinstance(reason, ssl.SSLCertVerificationError):
        return NodeRefused(
            f"{server}: the server's certificate is not accepted ({reason.verify_message}): check its names and its "
            "end, and whether `ca` in the node file is the federation's newest ca.crt"
        )
    words = "" if reason is None else str(reason.reason or reason).upper()
    if "ALERT" in words:
        return NodeRefused(f"{server} does not accept this silo's certificate or TLS version ({words})")
    if "WRONG_VERSION" in words:
        return NodeRefused(f"{server}: what answers there does not speak TLS")
    return ServerAway(f"{server}: {type(error).__name__}: {error}")


def _failure(server: str, found: httpx.Response) -> FleetError:
    """What a status means that is not 200."""
    known = FlowerError.from_json(found.text)
    status, code = found.status_code, None if known is None else known.code
    if code == ApiErrorCode.RUNTIME_VERSION_INCOMPATIBLE:
        return NodeRefused(
            f"{server} runs another version of Flower than the {flwr.__version__} here: both sides need the same"
        )
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _AWAY:
        return ServerAway(f"{server}: status {status}")
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.PRECONDITION_FAILED):
        return NodeUnknown(f"{server} does not accept this silo's key{_clock(found)}")
    if code == ApiErrorCode.FLEET_RUN_STATUS_NOT_ALLOWED:
        return RunOver("the Flower run is over")
    if code is None and status in (HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN):
        return NodeRefused(
            f"{server} refuses this silo's certificate (status {status}): it is missing, has ended or was revoked"
        )
    return NodeRefused(f"{server}: what answers there is no server of this federation (status {status}, code {code})")


def _clock(found: httpx.Response) -> str:
    """What the server's clock says about ours: requests are signed with the time."""
    try:
        ahead = (datetime.now(UTC) - parsedate_to_datetime(found.headers["date"])).total_seconds()
    except (KeyError, ValueError, TypeError):
        return ""
    if abs(ahead) <= _MOST_SKEW:
        return ""
    way = "ahead of" if ahead > 0 else "behind"
    return f"; this machine's clock is {abs(ahead):.0f} s {way} the server's: set both by NTP"
