"""Frames over Flower's grid: push requests to the silos' nodes, poll for replies until the deadline."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from flwr.app import Message
from flwr.supercore.inflatable.inflatable_utils import pull_objects
from flwr.superlink.grid import http_grid

from rpdp.deployment.flower.frame_record import FRAME, MESSAGE_TYPE, RECORD, request_record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr.serverapp import Grid

SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
_SHARE_OF_WAIT = 0.05
"""The pause between two pulls is a twentieth of the time that replies have taken so far. Flower's own
`send_and_receive` pulls every three seconds."""

_OBJECT_BACKOFF = 0.02
"""Seconds until Flower looks again for the parts of a half-written reply; its own default is one second."""


class GridLink:
    """A `Link` whose addresses are Flower's node ids."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def addresses(self) -> dict[str, str]:
        """The connected nodes, and the names under which their keys are registered."""
        return {str(node.node_id): node.name for node in self._grid.get_nodes()}

    def ask(self, requests: Mapping[str, bytes], timeout: float) -> dict[str, bytes]:
        """Push all requests, then poll until all answers are there or time is up; late answers are dropped."""
        began = time.monotonic()
        deadline = began + timeout
        messages = []
        for node, frame in requests.items():
            content = request_record(frame, timeout)
            messages.append(Message(content, dst_node_id=int(node), message_type=MESSAGE_TYPE, ttl=timeout))
        waiting = dict(zip(self._grid.push_messages(messages), requests, strict=True))
        answers = {}
        while waiting:
            _wait_for_parts(deadline - time.monotonic())
            for reply in self._grid.pull_messages(list(waiting)):
                address = waiting.pop(reply.metadata.reply_to_message_id, None)
                # Without content, or without our record, Flower or the silo's app has failed: no answer.
                record = reply.content.config_records.get(RECORD) if reply.has_content() else None
                answer = None if record is None else record.get(FRAME)
                if address is not None and isinstance(answer, bytes):
                    answers[address] = answer
            now = time.monotonic()
            if not waiting or now >= deadline:
                break
            time.sleep(min(max(_SHARE_OF_WAIT * (now - began), SHORTEST_PAUSE), LONGEST_PAUSE, deadline - now))
        return answers


def _wait_for_parts(seconds: float) -> None:
    """Let Flower's grid wait so long for the parts of a reply that a node has announced and not sent yet.

    By itself it would wait for minutes for a node that was killed in between, and all other silos with it.
    """
    patient = partial(pull_objects, initial_backoff=_OBJECT_BACKOFF, max_time=max(seconds, 0.0))
    http_grid.pull_objects = patient  # type: ignore[attr-defined]  # its only name for it; a contract test holds it
