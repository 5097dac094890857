"""What every request must pass before a page sees it, and what every answer carries.

| what | against |
|---|---|
| Host is localhost, 127.0.0.1 or [::1] | somebody else's name that points here (DNS rebinding) |
| the browser says that a request comes from the console, or from nowhere | other sites, and other ports here |
| POST: Origin is the console's own, or the browser says that it is | forms on other sites |
| POST: a short form with the session's form token | the same, in browsers that say nothing |
| a session of the same user of this machine, for everything but signing in | everybody else |
| only GET, HEAD and POST; one Host, one cookie header, a short path | confusion between programs |
"""

from __future__ import annotations

import logging
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException

from rpdp.console.sign_in import same
from rpdp.deployment.local_peer import peer_user

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from rpdp.console.sign_in import Session, SignIn

LOG = logging.getLogger("rpdp.console")

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; "
        "base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""What every answer carries."""

SIGN_IN = "/sign-in"
STYLE = "/style.css"
_OPEN = (SIGN_IN, STYLE)
"""What is there without a session."""

_HOSTS = ("localhost", "127.0.0.1", "[::1]")
_METHODS = ("GET", "HEAD", "POST")
_FORM = "application/x-www-form-urlencoded"
_LONGEST_PATH, _LONGEST_FORM, _MOST_FIELDS = 2_000, 32_768, 40


class RequestGuard:
    """Checks requests for an application, and gives its answers their headers.

    Args:
        app: The application. It finds the session in `scope["session"]`, and a form in `scope["form"]`.
        access: Who may use it.
        refuse: Makes the answer to what is refused: a code, and a sentence.
    """

    def __init__(self, app: ASGIApp, access: SignIn, refuse: Callable[[int, str], Response]) -> None:
        self._app, self._access, self._refuse = app, access, refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        try:
            await self._check(scope, receive)
        except HTTPException as refused:
            LOG.debug("refused with %d: %s", refused.status_code, refused.detail)
            await self._refuse(refused.status_code, refused.detail)(scope, receive, sent)
            return
        await self._app(scope, receive, sent)

    async def _check(self, scope: Scope, receive: Receive) -> None:
        headers = Headers(scope=scope)
        host = _own_host(headers)
        if scope["method"] not in _METHODS:
            raise HTTPException(405, "The console knows GET and POST only.")
        if len(scope.get("raw_path", b"")) + len(scope.get("query_string", b"")) > _LONGEST_PATH:
            raise HTTPException(414, "This address is too long.")
        is_form = scope["method"] == "POST"
        _require_same_place(headers, host, is_form=is_form)
        user = _user(scope)
        session = self._session(headers, user)
        scope["session"], scope["form"], scope["user"] = session, {}, user
        if session is None and scope["path"] not in _OPEN:
            raise HTTPException(401, "Nobody is signed in here.")
        if is_form:
            scope["form"] = await _form(headers, receive)
            if scope["path"] != SIGN_IN:
                _require_form_token(session, scope["form"])

    def _session(self, headers: Headers, user: int | None) -> Session | None:
        given = headers.getlist("cookie")
        if len(given) > 1:
            raise HTTPException(400, "One cookie header, please.")
        try:
            cookies: SimpleCookie = SimpleCookie(given[0] if given else "")
        except CookieError:
            return None
        key = cookies[self._access.cookie].value if self._access.cookie in cookies else ""
        return self._access.session(key, user)


def _user(scope: Scope) -> int | None:
    """The user of this machine at the other end; None on a Unix socket, which only its owner can open."""
    client, server = scope.get("client"), scope.get("server")
    if not client or not server or not client[1] or not server[1]:
        return None
    return peer_user((client[0], client[1]), (server[0], server[1]))


def _own_host(headers: Headers) -> str:
    """The Host of a request, which must name this machine: whatever name led here is what the browser calls us."""
    hosts = headers.getlist("host")
    name, _, port = hosts[0].rpartition(":") if len(hosts) == 1 else ("", "", "")
    if not (name in _HOSTS and port.isascii() and port.isdigit()) and not (len(hosts) == 1 and hosts[0] in _HOSTS):
        raise HTTPException(421, "The console answers to localhost and 127.0.0.1 only.")
    return hosts[0]


def _require_same_place(headers: Headers, host: str, *, is_form: bool) -> None:
    """Refuse what another site, or another port of this machine, made the browser send."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site not in (None, "same-origin", "none"):
        followed = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
        if is_form or not followed:  # a link leads to a page, which changes nothing and cannot be read from there
            raise HTTPException(403, "This request was made by another site.")
    if not is_form and origin is None:
        return
    # With "no-referrer" browsers send the origin "null"; those that do say themselves where a request comes from.
    is_own = origin == f"http://{host}" or (origin in (None, "null") and site == "same-origin")
    if not is_own:
        raise HTTPException(403, "This request was made by another site.")


async def _form(headers: Headers, receive: Receive) -> dict[str, str]:
    """The fields of a form; each once."""
    if headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise HTTPException(415, "The console takes forms only.")
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HTTPException(400, "The form is not complete.")
        body += message.get("body", b"")
        if len(body) > _LONGEST_FORM:
            raise HTTPException(413, "This form is too long.")
        if not message.get("more_body", False):
            break
    try:
        text = body.decode("ascii")
        fields = parse_qsl(
            text, keep_blank_values=True, strict_parsing=bool(text), errors="strict", max_num_fields=_MOST_FIELDS
        )
    except ValueError:  # not ASCII, not UTF-8 behind the escapes, not name=value, too many
        raise HTTPException(400, "This is no form of the console.") from None
    if len({name for name, _ in fields}) != len(fields):
        raise HTTPException(400, "A field of the form stands there twice.")
    return dict(fields)


def _require_form_token(session: Session | None, form: dict[str, Any]) -> None:
    if session is None or not same(form.pop("form_token", ""), session.form_token):
        raise HTTPException(403, "This form is not one of this session. Open the page again, and fill it in anew.")
