"""Frames over Flower's grid: pushed to SuperNodes, pulled until the deadline."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rpdp.deployment.flower.client_app import answered, request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr.serverapp import Grid

POLL_SECONDS = 0.3
"""Flower's own `send_and_receive` looks every three seconds. Looking more often than this can meet a reply that is half
there, for which Flower waits a second."""


class GridLink:
    """A `Link` whose addresses are SuperNodes."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def addresses(self) -> dict[str, str]:
        """The SuperNodes that are there, and the names that their keys were registered with."""
        return {str(node.node_id): node.name for node in self._grid.get_nodes()}

    def ask(self, requests: Mapping[str, bytes], timeout: float) -> dict[str, bytes]:
        """Push, and pull until all answers are there or the time is over; late ones are lost to this call."""
        until = time.monotonic() + timeout
        messages = [request(int(address), frame, timeout) for address, frame in requests.items()]
        waiting = dict(zip(self._grid.push_messages(messages), requests, strict=True))
        answers = {}
        while waiting:
            for reply in self._grid.pull_messages(list(waiting)):
                address = waiting.pop(reply.metadata.reply_to_message_id, None)
                frame = answered(reply)
                if address is not None and frame is not None:
                    answers[address] = frame
            if not waiting or time.monotonic() >= until:
                break
            time.sleep(POLL_SECONDS)
        return answers
