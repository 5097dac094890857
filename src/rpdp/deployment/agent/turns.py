"""Turns at an agent: one request at a time, and the runs that it carries one after the other.

A request waits for the turns before it. Every turn ends at a public time, so how long a request waits depends on other
requests and public settings alone, never on a record (privacy.md, rule 16). So does who is next:

| waiting | next is |
|---|---|
| requests of several runs | the run that had no turn for longest |
| several requests of one run | the one that came first |

A server that asks often for its run delays another run by one turn at most, for each turn that the other takes.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rpdp.errors import PrivacyRefusal, Reason

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


class Turns:
    """Gives turns to requests from several threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[tuple[str, object]] = []
        self._is_taken = False
        self._given = 0
        self._last: dict[str, int] = {}

    @contextmanager
    def one(self, run: str, patience: float) -> Iterator[None]:
        """Wait for a turn, and have it for the block; refused as busy after so many seconds.

        Args:
            run: Requests with the same name take turns as one. Name a run that the agent carries, or use one name for
                all other requests, so that a server gets no more turns by making names up.
            patience: How long to wait.
        """
        ticket = (run, object())
        with self._changed:
            self._waiting.append(ticket)
            try:
                if not self._changed.wait_for(lambda: self._is_next(ticket), timeout=patience):
                    raise PrivacyRefusal("other requests are being answered", Reason.BUSY)
                self._is_taken = True
                self._given += 1
                self._last[run] = self._given
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._is_taken = False
                self._changed.notify_all()

    def keep(self, runs: Collection[str]) -> None:
        """Forget when other runs had their turns."""
        with self._changed:
            self._last = {run: when for run, when in self._last.items() if run in runs}

    def _is_next(self, ticket: tuple[str, object]) -> bool:
        # `min` takes the first of equals, and requests of one run wait in the order in which they came.
        return not self._is_taken and min(self._waiting, key=lambda one: self._last.get(one[0], 0)) is ticket
