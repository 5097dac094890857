"""Frames over Flower's grid: push requests to SuperNodes, poll for replies until the deadline."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from flwr.app import ConfigRecord, Message, RecordDict

from rpdp.deployment.flower.client_app import FRAME, RECORD, TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr.serverapp import Grid

POLL_SECONDS = 0.3
"""Flower's own `send_and_receive` polls every three seconds. Polling faster than this can meet a half-written reply,
for which Flower waits a second."""


class GridLink:
    """A `Link` whose addresses are SuperNode ids."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def addresses(self) -> dict[str, str]:
        """The connected SuperNodes, and the names under which their keys are registered."""
        return {str(node.node_id): node.name for node in self._grid.get_nodes()}

    def ask(self, requests: Mapping[str, bytes], timeout: float) -> dict[str, bytes]:
        """Push all requests, then poll until all answers are there or time is up; late answers are dropped."""
        deadline = time.monotonic() + timeout
        messages = []
        for node, frame in requests.items():
            content = RecordDict({RECORD: ConfigRecord({FRAME: frame, TIMEOUT: timeout})})
            messages.append(Message(content, dst_node_id=int(node), message_type="train", ttl=timeout))
        waiting = dict(zip(self._grid.push_messages(messages), requests, strict=True))
        answers = {}
        while waiting:
            for reply in self._grid.pull_messages(list(waiting)):
                address = waiting.pop(reply.metadata.reply_to_message_id, None)
                # Without content, or without our record, Flower or the silo's app has failed: no answer.
                record = reply.content.config_records.get(RECORD) if reply.has_content() else None
                answer = None if record is None else record.get(FRAME)
                if address is not None and isinstance(answer, bytes):
                    answers[address] = answer
            if not waiting or time.monotonic() >= deadline:
                break
            time.sleep(POLL_SECONDS)
        return answers
