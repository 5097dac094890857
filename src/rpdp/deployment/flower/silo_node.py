"""The node of a silo: carries messages between the server and the silo's agent, and executes nothing.

    link = FleetLink.of(NodeFile.read("node.toml"))
    SiloNode("north", "/run/rpdp/agent.sock", link).run()

It takes the place of Flower's SuperNode. A message holds one frame for the agent; it never fetches the app that a
server submits. Everything that is not such a message gets one fixed answer, before its content is fetched. What goes
wrong becomes a fixed answer, too, or none: no text of an exception leaves the silo.

The node keeps no state. Whatever it loses (a message in its hands when it is killed, an answer that cannot be sent in
time) costs the silo that round: the agent has charged it, and sends the same bytes if it is asked again.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

from flwr.common.serde import message_from_proto
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import (
    inflate_object_from_contents,
    pull_objects,
    push_object_contents_from_iterable,
)

from rpdp.deployment.flower.fleet_link import (
    HEARTBEAT_SECONDS,
    FleetError,
    FleetLink,
    NodeUnknown,
    RunOver,
    ServerAway,
)
from rpdp.deployment.flower.frame_record import LOG, MESSAGE_TYPE, NOT_OURS, carry, reply

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from flwr.app import Message
    from flwr.proto.fleet_pb2 import PullMessagesResponse
    from flwr.proto.message_pb2 import ObjectTree

MOST_MESSAGES = 8
"""Messages in the node's hands at the same time, such as one of each run: half of what an agent takes."""

SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
_SHARE_OF_WAIT = 0.05
"""The node asks for messages after a pause of a twentieth of the time since the last one: it adds at most that share to
any wait, and a silo whose rounds take minutes does not ask twenty times a second."""

_FIRST_BACKOFF, _LONGEST_BACKOFF = 0.1, 10.0
ACTIVATION_PATIENCE = 4.0 * HEARTBEAT_SECONDS
"""How long to ask again while the server does not accept the key. It takes a killed node for alive for half of this."""

_STOP_GRACE = 5.0
"""At SIGTERM, seconds for the answers on their way."""

_OBJECT_BACKOFF = 0.02
_PARTS = 3
"""The objects of a message of ours: the message, its records, the one record."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class _Taken:
    """A message that the server has handed over."""

    message: Message
    tree: ObjectTree
    until: float
    """When the server stops waiting for the answer, on the monotonic clock."""

    @classmethod
    def of(cls, response: PullMessagesResponse) -> _Taken | None:
        if not response.messages_list:
            return None
        message = message_from_proto(response.messages_list[0])
        left = message.metadata.created_at + message.metadata.ttl - time.time()
        return cls(message, response.message_object_trees[0], time.monotonic() + left)


class SiloNode:
    """Carries messages until `stop` is called.

    Args:
        silo: Its name, for the log.
        socket: The agent's socket.
        link: The server.
    """

    def __init__(self, silo: str, socket: str | Path, link: FleetLink) -> None:
        self._silo, self._socket, self._link = silo, socket, link
        self._stopped = threading.Event()
        self._places = threading.Semaphore(MOST_MESSAGES)
        self._carrying: set[threading.Thread] = set()
        self._is_away = False

    def stop(self) -> None:
        """Take no more messages; may be called from any thread."""
        self._stopped.set()

    def run(self) -> None:
        """Carry messages until `stop` is called; raise if it cannot go on.

        Raises:
            NodeUnknown: The server does not accept the key of this node.
            NodeRefused: The connection can never work like this.
        """
        try:
            self._activate()
            threading.Thread(target=self._keep_alive, name="rpdp-heartbeat", daemon=True).start()
            self._loop()
        finally:
            self._stopped.set()
            if self._link.node_id:
                self._leave()
            self._link.close()

    def _loop(self) -> None:
        last = time.monotonic()
        while not self._stopped.is_set():
            taken = self._next()
            if taken is not None:
                last = time.monotonic()
                self._start(taken)
                continue  # there may be another one
            pause = min(max(_SHARE_OF_WAIT * (time.monotonic() - last), SHORTEST_PAUSE), LONGEST_PAUSE)
            self._stopped.wait(pause)

    def _next(self) -> _Taken | None:
        """The next message, as soon as there is a place for it; None if there is none now."""
        if not self._places.acquire(timeout=LONGEST_PAUSE):
            return None
        taken = None
        try:
            found = self._insist(self._link.pull_message)
            taken = None if found is None else _Taken.of(found)
        except NodeUnknown:
            LOG.warning("the server no longer knows silo %s: activating again", self._silo)
            self._activate()
        except FleetError:  # the server is away for good, or refuses this silo
            raise
        except Exception as error:
            LOG.warning("dropped a message that Flower cannot read: %s", type(error).__name__)
        finally:
            if taken is None:
                self._places.release()
        return taken

    def _activate(self) -> None:
        """Make the server accept this node; retry while it may still take an earlier process for alive."""
        until = time.monotonic() + ACTIVATION_PATIENCE
        told = False
        while not self._stopped.is_set():
            try:
                number = self._insist(self._link.activate)
            except NodeUnknown as error:
                if time.monotonic() > until:
                    raise NodeUnknown(
                        f"{error}. Is silo {self._silo} registered there (`rpdp deploy register`), is `key` its newest "
                        "one, and is no other node running with it?"
                    ) from None
                if not told:
                    LOG.warning("%s yet; it may take an earlier process for alive: trying again", error)
                    told = True
                self._stopped.wait(1.0)
                continue
            if number is not None:
                LOG.info("silo %s is connected to %s as node %d", self._silo, self._link.server, number)
            return

    def _keep_alive(self) -> None:
        while not self._stopped.wait(HEARTBEAT_SECONDS * random.uniform(0.4, 0.6)):  # noqa: S311 (spreads the load)
            try:
                self._link.send_heartbeat()
            except FleetError as error:  # whoever asks for messages meets it, too, and acts
                LOG.debug("no heartbeat: %s", error)

    def _leave(self) -> None:
        """Give the answers on their way a moment, and sign off."""
        until = time.monotonic() + _STOP_GRACE
        for thread in list(self._carrying):
            thread.join(max(until - time.monotonic(), 0.0))
        try:
            self._link.deactivate()
        except FleetError as error:
            LOG.debug("could not sign off: %s", error)
        LOG.info("silo %s has left", self._silo)

    # One message

    def _start(self, taken: _Taken) -> None:
        thread = threading.Thread(target=self._carry, args=(taken,), name="rpdp-message", daemon=True)
        self._carrying.add(thread)
        thread.start()

    def _carry(self, taken: _Taken) -> None:
        began = time.monotonic()
        try:
            answer = self._answer(taken)
            if answer is not None:
                self._send(answer, taken, time.monotonic() - began)
        except RunOver as error:
            LOG.info("dropped a message: %s", error)
        except Exception as error:
            LOG.warning("dropped a message: %s: %s", type(error).__name__, error)
        finally:
            self._carrying.discard(threading.current_thread())
            self._places.release()

    def _answer(self, taken: _Taken) -> Message | None:
        """The agent's answer, or the fixed one; None if the node was stopped."""
        message, run = taken.message, taken.message.metadata.run_id
        if not _may_be_ours(taken):
            LOG.warning("refused a message that is none of ours: type %.20r", message.metadata.message_type)
            self._insist(lambda: self._link.confirm(run, message.metadata.message_id), taken.until)
            return reply(message, NOT_OURS)
        parts = [part.object_id for part in iterate_object_tree(taken.tree)]

        def pull(number: str) -> bytes:
            found = self._insist(lambda: self._link.pull_object(run, number), taken.until)
            if found is None:
                raise ServerAway("the message was not received in time")
            return found

        contents = pull_objects(
            parts, pull, initial_backoff=_OBJECT_BACKOFF, max_time=max(taken.until - time.monotonic(), 0.0)
        )
        self._insist(lambda: self._link.confirm(run, message.metadata.message_id), taken.until)
        try:
            whole = inflate_object_from_contents(taken.tree.object_id, contents)
            message.content = cast("Message", whole).content
        except Exception as error:
            LOG.warning("refused a message that cannot be read: %s", type(error).__name__)
            return reply(message, NOT_OURS)
        return carry(message, self._socket)

    def _send(self, answer: Message, taken: _Taken, seconds: float) -> None:
        """Send a reply with all its parts, again from the start if the server has lost the session."""
        with no_object_id_recompute():
            contents = {number: part.deflate() for number, part in get_all_nested_objects(answer).items()}
            while not self._is_sent(answer, contents, taken, seconds):
                pass

    def _is_sent(self, answer: Message, contents: Mapping[str, bytes], taken: _Taken, seconds: float) -> bool:
        """Announce a reply and push the parts that the server lacks; True as well if there is no time left."""
        begun = self._insist(lambda: self._link.push_message(answer, seconds), taken.until)
        if begun is None:
            return True
        run, stored = taken.message.metadata.run_id, [True]

        def push(number: str, content: bytes) -> None:
            send = partial(self._link.push_object, run, begun.session_id, number, content)
            stored.append(self._insist(send, taken.until) is not False)

        wanted = set(begun.objects_to_push)
        push_object_contents_from_iterable([(one, content) for one, content in contents.items() if one in wanted], push)
        return all(stored)

    def _insist(self, request: Callable[[], Result], until: float | None = None) -> Result | None:
        """Repeat a request while the server is away, more slowly each time; None if stopped or out of time."""
        backoff = _FIRST_BACKOFF
        while True:
            try:
                found = request()
            except ServerAway as error:
                if not self._is_away:
                    LOG.warning("%s; trying again until it answers", error)
                self._is_away = True
            else:
                if self._is_away:
                    LOG.info("%s answers again", self._link.server)
                self._is_away = False
                return found
            left = backoff if until is None else min(backoff, until - time.monotonic())
            if left <= 0.0 or self._stopped.wait(left * random.uniform(0.8, 1.0)):  # noqa: S311
                return None
            backoff = min(2.0 * backoff, _LONGEST_BACKOFF)


def _may_be_ours(taken: _Taken) -> bool:
    """Whether a message has the type and the shape of ours, one record and nothing else; its content is not fetched."""
    tree, parts = taken.tree, 0
    while parts <= _PARTS:
        parts += 1
        if not tree.children:
            break
        if len(tree.children) > 1:
            return False
        tree = tree.children[0]
    return parts == _PARTS and taken.message.metadata.message_type == MESSAGE_TYPE
