"""The Flower app of a silo: it carries a frame to the silo's agent and the answer back, and knows nothing else.

Flower starts a new process for every message, and whoever submits an app can have other code run here. So this app
imports neither torch nor the rest of rpdp, holds no data, and nothing of the promise rests on it. An error would be
sent to the server with its text: it is caught, and a fixed answer sent instead.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from rpdp.deployment.agent.agent_client import Unreachable, ask
from rpdp.federation.frames import UNREACHABLE

if TYPE_CHECKING:
    from flwr.app import Context

RECORD = "rpdp"
FRAME = "frame"
SOCKET = "socket"
_TIMEOUT = "timeout"
_LONGEST_WAIT = 3600.0


def carrier() -> ClientApp:
    """The app: it answers every training message by asking the agent whose socket the node config names."""
    app = ClientApp()
    app.train()(carry)
    return app


def carry(message: Message, context: Context) -> Message:
    """One request to the agent, one answer."""
    try:
        answer = _asked(message.content.config_records[RECORD], str(context.node_config[SOCKET]))
    except Unreachable as error:
        print(f"rpdp: the silo agent cannot be reached: {error}", file=sys.stderr)  # noqa: T201 the SuperNode's own log
        answer = UNREACHABLE.to_bytes()
    except Exception as error:  # the text of an exception would reach the server
        print(f"rpdp: {type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201
        answer = UNREACHABLE.to_bytes()
    return Message(RecordDict({RECORD: ConfigRecord({FRAME: answer})}), reply_to=message)


def _asked(record: ConfigRecord, path: str) -> bytes:
    frame, timeout = record[FRAME], record[_TIMEOUT]
    if not isinstance(frame, bytes) or not isinstance(timeout, float):
        raise TypeError("a message without a frame")
    return ask(path, frame, timeout=min(timeout, _LONGEST_WAIT))


def request(node: int, frame: bytes, timeout: float) -> Message:
    """The message that carries a frame to a silo; its answer's frame is found by `answered`."""
    record = ConfigRecord({FRAME: frame, _TIMEOUT: timeout})
    return Message(RecordDict({RECORD: record}), dst_node_id=node, message_type="train", ttl=timeout)


def answered(message: Message) -> bytes | None:
    """The frame in a reply; None if Flower or the app there failed."""
    if not message.has_content():
        return None
    record = message.content.config_records.get(RECORD)
    frame = None if record is None else record.get(FRAME)
    return frame if isinstance(frame, bytes) else None
