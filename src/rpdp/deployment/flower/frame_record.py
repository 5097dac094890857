"""A frame inside a Flower message: the one record that a federation's messages have, and the carrier to the agent.

Both ways to be a silo use the same carrier: our node (`silo_node`), and the app of Flower's own SuperNode
(`client_app`). The latter loads this module anew for every message, so it imports neither torch nor the rest of rpdp.
No guarantee depends on it: the agent decides alone.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from flwr.app import ConfigRecord, Message, RecordDict

from rpdp.deployment.agent.agent_client import ask
from rpdp.errors import Reason
from rpdp.federation.frames import UNREACHABLE, refused

if TYPE_CHECKING:
    from pathlib import Path

LOG = logging.getLogger("rpdp.node")

RECORD = "rpdp"
FRAME = "frame"
TIMEOUT = "timeout"
MESSAGE_TYPE = "train"
"""The type of Flower message that carries our frames, whatever they ask for."""

_LONGEST_WAIT = 3600.0

NOT_OURS = refused(Reason.MALFORMED).to_bytes()
"""The answer to a message that is none of ours: fixed, whatever was sent."""


def request_record(frame: bytes, timeout: float) -> RecordDict:
    """The content of a message that asks a silo's agent, and for how long to wait for it."""
    return RecordDict({RECORD: ConfigRecord({FRAME: frame, TIMEOUT: timeout})})


def reply(message: Message, frame: bytes) -> Message:
    """The reply to a message, with a frame in it."""
    return Message(RecordDict({RECORD: ConfigRecord({FRAME: frame})}), reply_to=message)


def carry(message: Message, socket: str | Path) -> Message:
    """Ask the agent on this socket: one request, one answer.

    Whatever goes wrong becomes a fixed answer: the text of an exception would reach the server.
    """
    try:
        record = message.content.config_records[RECORD]
        frame, timeout = record[FRAME], record[TIMEOUT]
        if not isinstance(frame, bytes) or not isinstance(timeout, float):
            raise TypeError("a message without a frame")
    except Exception as error:
        LOG.warning("refused a message that is none of ours: %s", type(error).__name__)
        return reply(message, NOT_OURS)
    try:
        return reply(message, ask(socket, frame, timeout=min(timeout, _LONGEST_WAIT)))
    except Exception as error:
        LOG.warning("the silo's agent did not answer: %s: %s", type(error).__name__, error)
        return reply(message, UNREACHABLE.to_bytes())
