"""Who may use the console: whoever has the token that the console printed, once, until the session ends.

| | what holds |
|---|---|
| token | 256 random bits, printed on the terminal, good for one sign-in; another follows when a session has ended |
| session | one at a time; a random id in a cookie that scripts cannot read and other sites cannot send |
| its user | the user of this machine who has signed in; browsers send cookies to every port, others' ports too |
| its end | after a time without requests, and at the latest after a working day |
| form token | random, one per session, in every form; a form without it changes nothing |
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from rpdp.console.person_story import Person

IDLE_SECONDS = 15 * 60.0
LONGEST_SECONDS = 10 * 3600.0
_REMEMBERED = 200


@dataclass
class Session:
    """One signed-in browser.

    Attributes:
        key: What its cookie holds.
        form_token: What its forms hold.
        begun: When it began, on the monotonic clock.
        seen: When it last asked for something.
        user: The user of this machine whose browser it is; None where the kernel does not tell.
        notice: What the next page tells, once.
        persons: Whom it looked up, by a random name: no id is ever part of an address.
    """

    key: str
    form_token: str
    begun: float
    seen: float
    user: int | None = None
    notice: str = ""
    persons: OrderedDict[str, Person] = field(default_factory=OrderedDict)

    def remember(self, person: Person) -> str:
        """Give a person a random name, for addresses."""
        name = secrets.token_urlsafe(12)
        self.persons[name] = person
        while len(self.persons) > _REMEMBERED:
            self.persons.popitem(last=False)
        return name

    def take_notice(self) -> str:
        """What to tell, once."""
        told, self.notice = self.notice, ""
        return told


class SignIn:
    """The token and the session of a console.

    Args:
        announce: Called with each new token, to print it.
        idle: Seconds without a request after which a session ends.
        clock: Seconds that never go back.
    """

    def __init__(
        self,
        announce: Callable[[str], None],
        *,
        idle: float = IDLE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._announce, self._idle, self._clock = announce, idle, clock
        self._turn = threading.Lock()
        self._session: Session | None = None
        self._token: str | None = None
        self.cookie = f"rpdp-console-{secrets.token_hex(4)}"

    def offer(self) -> None:
        """Make a new token and announce it; an older one is no longer good."""
        with self._turn:
            token = self._token = secrets.token_urlsafe(32)
        self._announce(token)

    def exchange(self, token: str, user: int | None = None) -> Session | None:
        """A new session for the token, which is used up; None for any other."""
        with self._turn:
            if self._token is None or not same(token, self._token):
                return None
            self._token = None
            now = self._clock()
            self._session = Session(secrets.token_urlsafe(32), secrets.token_urlsafe(32), now, now, user)
            return self._session

    def session(self, key: str, user: int | None = None) -> Session | None:
        """The session of this cookie if it has not ended, and is this user's."""
        with self._turn:
            found, now = self._session, self._clock()
            ended = found is not None and (now - found.seen > self._idle or now - found.begun > LONGEST_SECONDS)
            if ended:
                self._session = None
            elif found is not None and same(key, found.key) and user == found.user:
                found.seen = now
                return found
        if ended:
            self.offer()
        return None

    def end(self) -> None:
        """End the session, and offer a new token."""
        with self._turn:
            self._session = None
        self.offer()


def same(given: str, due: str) -> bool:
    """Whether two secrets are the same, in a time that does not tell how far they agree."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), due.encode())
