"""Turns: one request at a time, the runs one after the other, whoever asks more often."""

from __future__ import annotations

import threading
import time

import pytest

from rpdp.deployment.agent.turns import Turns
from rpdp.errors import PrivacyRefusal, Reason
from tests.deployment.agent.scene import wait_until


class Queue:
    """Requests that wait behind a turn that the test holds, and the order in which they get theirs."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.order: list[str] = []
        self._threads: list[threading.Thread] = []

    def give(self, *runs: str) -> None:
        """Turns that are over."""
        for run in runs:
            with self.turns.one(run, 5.0):
                pass

    def ask(self, *requests: tuple[str, str]) -> list[str]:
        """Let requests, each of a run and with a name, arrive in this order during a turn; the order of their turns."""
        with self.turns.one("held", 5.0):
            for count, (run, name) in enumerate(requests, 1):
                self._threads.append(threading.Thread(target=self._take, args=(run, name)))
                self._threads[-1].start()
                wait_until(lambda count=count: len(self.turns._waiting) == count)  # type: ignore[misc]
        for thread in self._threads:
            thread.join(20.0)
        return self.order

    def _take(self, run: str, name: str) -> None:
        with self.turns.one(run, 20.0):
            self.order.append(name)


def test_a_run_that_asks_often_delays_another_by_one_turn() -> None:
    queue = Queue()
    queue.give("b", "a")
    assert queue.ask(("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("b", "b2")) == ["b1", "a1", "b2", "a2", "a3"]


def test_requests_of_one_run_are_served_as_they_came() -> None:
    assert Queue().ask(*(("a", f"a{number}") for number in range(6))) == [f"a{number}" for number in range(6)]


def test_a_run_that_had_no_turn_yet_is_next() -> None:
    queue = Queue()
    queue.give("a", "b")
    assert queue.ask(("a", "a"), ("new", "new"), ("b", "b")) == ["new", "a", "b"]


def test_what_is_forgotten_counts_as_new() -> None:
    queue = Queue()
    queue.give("a", "b", "c")
    queue.turns.keep({"a", "b"})
    assert set(queue.turns._last) == {"a", "b"}
    assert queue.ask(("a", "a"), ("b", "b"), ("c", "c")) == ["c", "a", "b"]


def test_whoever_waits_too_long_is_refused_and_leaves_the_queue() -> None:
    turns = Turns()
    with turns.one("a", 1.0):
        began = time.monotonic()
        with pytest.raises(PrivacyRefusal) as refused, turns.one("b", 0.2):
            pytest.fail("two requests have a turn")
        assert refused.value.reason is Reason.BUSY
        assert time.monotonic() - began >= 0.2
    with turns.one("c", 1.0):
        assert turns._waiting == []


def test_a_turn_that_fails_ends() -> None:
    turns = Turns()
    with pytest.raises(KeyError), turns.one("a", 1.0):
        raise KeyError
    with turns.one("a", 1.0):
        pass
