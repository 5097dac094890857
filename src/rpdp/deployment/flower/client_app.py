"""The Flower app of a silo: passes a frame to the silo's agent and the answer back.

Flower starts a new process for every message, and whoever submits an app can run other code here. So this app imports
neither torch nor the rest of rpdp, holds no data, and no privacy guarantee depends on it. Flower would send the text of
an exception to the server: exceptions are caught, and a fixed answer is sent instead.

The `pyproject.toml` of a Flower app names this installed module: `clientapp = "rpdp.deployment.flower.client_app:app"`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from rpdp.deployment.agent.agent_client import ask
from rpdp.federation.frames import UNREACHABLE

if TYPE_CHECKING:
    from flwr.app import Context

RECORD = "rpdp"
FRAME = "frame"
SOCKET = "socket"
TIMEOUT = "timeout"
_LONGEST_WAIT = 3600.0

app = ClientApp()


@app.train()
def carry(message: Message, context: Context) -> Message:
    """Ask the agent whose socket the node config names: one request, one answer."""
    try:
        record = message.content.config_records[RECORD]
        frame, timeout = record[FRAME], record[TIMEOUT]
        if not isinstance(frame, bytes) or not isinstance(timeout, float):
            raise TypeError("a message without a frame")
        answer = ask(str(context.node_config[SOCKET]), frame, timeout=min(timeout, _LONGEST_WAIT))
    except Exception as error:  # its text would reach the server
        print(f"rpdp: the silo agent did not answer: {type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201 the SuperNode's log
        answer = UNREACHABLE.to_bytes()
    return Message(RecordDict({RECORD: ConfigRecord({FRAME: answer})}), reply_to=message)
