"""Who gets in, and what gets through: every request that is not the steward's own is refused, and changes nothing."""

from __future__ import annotations

import os
import random
import socket
import string
import subprocess
import sys
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import pytest

from rpdp.console.request_guard import HEADERS
from rpdp.console.sign_in import LONGEST_SECONDS, SignIn
from rpdp.ledger import Ledger
from tests.console.hospital import Console, make_silo

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

FORM = "application/x-www-form-urlencoded"
PAGES = ("/", "/runs", "/budgets", "/people", "/what-if", "/actions", "/actions.csv", "/verify", "/audit")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("silo")


@pytest.fixture(scope="module")
def console(folder: Path) -> Iterator[Console]:
    with Console(*make_silo(folder)) as opened:
        yield opened.sign_in()


@pytest.fixture(scope="module")
def story(console: Console) -> str:
    return console.look_up("record", "r0")


def withdrawal(console: Console) -> dict[str, str]:
    return {"form_token": console.form_token, "action": "withdraw", "actor": "Ada", "confirmation": "r0", "reason": "x"}


def state(folder: Path) -> tuple[int, bytes, list[str]]:
    """Everything that a request could have changed."""
    with Ledger.read(folder / "ledger.db") as ledger:
        return ledger.chain.seq, ledger.chain.head, [one.name for one in ledger.pending()]


class TestHeaders:
    @pytest.mark.parametrize("path", [*PAGES, "/sign-in", "/style.css", "/nothing", "/people/nobody"])
    def test_every_answer_carries_them(self, console: Console, path: str) -> None:
        answer = console.ask(path)
        for name, value in HEADERS.items():
            assert answer.headers[name.lower()] == value
        assert "<script" not in answer.text
        assert " style=" not in answer.text

    def test_refusals_carry_them(self, console: Console) -> None:
        answer = console.ask("/", headers={"Host": "evil.example"})
        assert answer.status == 421
        assert HEADERS.items() >= {("Cache-Control", answer.headers["cache-control"])}
        assert answer.headers["content-security-policy"].startswith("default-src 'none'; style-src 'self'")

    def test_the_cookie_is_out_of_reach(self, tmp_path: Path) -> None:
        with Console(*make_silo(tmp_path)) as other:
            cookie = other.ask(f"/sign-in?token={other.token}").headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie


class TestSigningIn:
    @pytest.mark.parametrize("path", PAGES)
    def test_without_a_session_there_is_only_the_door(self, console: Console, path: str) -> None:
        for cookie in (
            None,
            "",
            "x=1",
            console.cookie[:-1],
            console.cookie + "x",
            f"{console.cookie.partition('=')[0]}=",
        ):
            answer = console.ask(path, headers={"Cookie": cookie})
            assert answer.status == 401
            assert "Sign in" in answer.text
            assert "north" not in answer.text

    def test_a_token_is_good_once(self, console: Console) -> None:
        used = console.addresses[0].partition("token=")[2]
        assert console.ask(f"/sign-in?token={used}").status == 403
        assert console.ask("/sign-in", {"token": used}).status == 403
        assert console.ask("/sign-in?token=").status == 403
        assert console.ask(f"/sign-in?token={'%ff' * 20}").status == 403

    def test_a_session_ends_after_some_idle_time_and_a_new_token_is_offered(self) -> None:
        now, offered = [0.0], list[str]()
        access = SignIn(offered.append, idle=60.0, clock=lambda: now[0])
        access.offer()
        session = access.exchange(offered[0])
        assert session is not None
        for _ in range(10):
            now[0] += 59.0
            assert access.session(session.key) is session
        now[0] += 61.0
        assert access.session(session.key) is None
        assert access.session(session.key) is None
        assert len(offered) == 2  # once, however often somebody asks
        again = access.exchange(offered[1])
        assert again is not None
        assert again.key != session.key
        assert access.session(session.key) is None

    def test_a_busy_session_ends_after_a_working_day(self) -> None:
        now, offered = [0.0], list[str]()
        access = SignIn(offered.append, clock=lambda: now[0])
        access.offer()
        session = access.exchange(offered[0])
        assert session is not None
        while now[0] < LONGEST_SECONDS - 100.0:
            now[0] += 100.0
            assert access.session(session.key) is session
        now[0] += 200.0
        assert access.session(session.key) is None

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as another user")
    def test_another_user_of_this_machine_cannot_use_a_stolen_cookie(self, console: Console) -> None:
        """Browsers send a cookie to every port of a host, so others on this machine can collect it."""
        ask = (
            "import encodings.idna, http.client, os, sys; os.setuid(int(sys.argv[3]));"
            "c = http.client.HTTPConnection(sys.argv[1]);"
            "c.request('GET', '/people', headers={'Cookie': sys.argv[2]}); print(c.getresponse().status)"
        )
        command = [sys.executable, "-c", ask, console.host, console.cookie]
        told = [
            subprocess.run([*command, user], check=True, capture_output=True, text=True).stdout.strip()
            for user in ("0", "65534")
        ]
        assert told == ["200", "401"]

    def test_signing_out(self, tmp_path: Path) -> None:
        with Console(*make_silo(tmp_path)) as other:
            other.sign_in()
            assert other.post("/sign-out").status == 303
            assert other.ask("/people").status == 401
            assert len(other.addresses) == 2
            assert other.sign_in().ask("/people").status == 200


class TestOtherSites:
    @pytest.mark.parametrize(
        "host",
        [
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example:80",
            "127.0.0.2",
            "[::2]:80",
            "",
            "0.0.0.0",  # noqa: S104
            "localhost:",
            "localhost:8x",
            "localhost:80@evil.example",
            "evil.example#localhost",
            "127.1",
            None,
        ],
    )
    def test_other_names_for_this_machine(self, console: Console, host: str | None) -> None:
        assert console.ask("/people", headers={"Host": host}).status in (400, 421)

    @pytest.mark.parametrize("host", ["localhost", "localhost:1234", "127.0.0.1:80", "[::1]:9"])
    def test_names_of_this_machine(self, console: Console, host: str) -> None:
        assert console.ask("/people", headers={"Host": host}).status == 200

    @pytest.mark.parametrize(
        "headers",
        [
            {"Origin": "http://evil.example", "Sec-Fetch-Site": None},
            {"Origin": "http://evil.example"},
            {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
            {"Origin": "null", "Sec-Fetch-Site": None},
            {"Origin": None, "Sec-Fetch-Site": None},
            {"Origin": "http://127.0.0.1:1", "Sec-Fetch-Site": "same-site"},
            {"Sec-Fetch-Site": "same-site"},
            {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
            {"Content-Type": "text/plain"},
            {"Content-Type": "application/json"},
            {"Content-Type": None},
            {"Cookie": None},
        ],
    )
    def test_their_forms(self, console: Console, story: str, folder: Path, headers: Mapping[str, str | None]) -> None:
        before = state(folder)
        assert console.ask(story, withdrawal(console), headers=headers).status in (401, 403, 415)
        assert state(folder) == before

    @pytest.mark.parametrize("token", [None, "", "x", "é"])
    def test_forms_without_the_token(self, console: Console, story: str, folder: Path, token: str | None) -> None:
        before = state(folder)
        form = withdrawal(console)
        del form["form_token"]
        if token is not None:
            form["form_token"] = token
        assert console.ask(story, form).status == 403
        for path in ("/people", "/verify", "/verify/package", "/audit", "/sign-out"):
            assert console.ask(path, form).status == 403
        assert state(folder) == before

    def test_a_form_with_everything_is_done(self, tmp_path: Path) -> None:
        """The same form that is refused above: what is refused there is refused for what it lacks."""
        with Console(*make_silo(tmp_path)) as other:
            other.sign_in()
            assert other.ask(other.look_up("record", "r0"), withdrawal(other)).status == 303
        with Ledger.read(tmp_path / "ledger.db") as ledger:
            assert ledger.explain("r0").withdrawn

    def test_pages_in_frames_and_images_of_other_sites(self, console: Console) -> None:
        for site in ("cross-site", "same-site"):
            for dest in ("image", "iframe", "script", "empty"):
                asked = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": dest}
                assert console.ask("/people", headers=asked).status == 403
        followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        assert console.ask("/people", headers=followed).status == 200  # a link that the steward follows


class TestStrangeRequests:
    @pytest.mark.parametrize(
        "path",
        [
            "/../ledger.db",
            "/%2e%2e/ledger.db",
            "/..%2fledger.db",
            "/style.css/../../ledger.db",
            "//ledger.db",
            "/templates/base.html.j2",
            "/verify/../../etc/passwd",
            "/verify/package.zip",
            "/people/../verify",
            "/people/%2e%2e%2f%2e%2e",
            "/people/%00",
            "/\\..\\ledger.db",
            "/style.css%00",
            "/ledger.db.key",
        ],
    )
    def test_paths_out_of_the_pages(self, console: Console, path: str) -> None:
        answer = console.ask(path)
        assert answer.status in (400, 404)
        assert "SQLite format" not in answer.text
        assert "root:" not in answer.text

    @pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND"])
    def test_other_methods(self, console: Console, method: str) -> None:
        assert console.ask("/people", method=method).status in (400, 405)

    def test_what_is_too_long(self, console: Console) -> None:
        assert console.ask(f"/what-if?x={'a' * 3000}").status == 414
        assert console.post("/people", kind="record", id="r" * 40_000).status == 413
        many = urlencode({f"f{number}": "x" for number in range(100)}).encode()
        assert console.ask("/people", many).status == 400

    @pytest.mark.parametrize(
        "body", [b"\xff\xfe", b"form_token", b"a=1&a=2", b"id=%ff", b"id=%00&kind=record", b"&&&", b""]
    )
    def test_forms_that_are_none(self, console: Console, body: bytes) -> None:
        assert console.ask("/people", body).status in (400, 403)

    def test_header_injection(self, console: Console, story: str) -> None:
        """What somebody types becomes part of no header."""
        for text in ("x\r\nSet-Cookie: a=b", "x\nLocation: http://evil.example", "x\r\n\r\n<script>"):
            for answer in (
                console.ask(f"/sign-in?token={quote(text)}"),
                console.post("/people", kind="record", id=text),
                console.post(story, action="withdraw", actor=text, confirmation="r0", reason=text),
                console.ask(f"/people/{quote(text)}"),
            ):
                assert answer.status in (400, 403, 404)
                assert "set-cookie" not in answer.headers
                assert "location" not in answer.headers
                assert "<script>" not in answer.text


def fuzzed(random_source: random.Random, console: Console, story: str) -> bytes:
    """A request that is wrong somewhere, as bytes."""
    pick = random_source.choice
    letters = string.printable + "\x00\x7fé<>'\"&=%;"

    def text(size: int) -> str:
        return "".join(pick(letters) for _ in range(random_source.randrange(size)))

    method = pick(["GET", "POST", "POST", "HEAD", "PUT", text(6)])
    path = pick(
        [*PAGES, story, "/sign-in", "/sign-out", "/verify/package", f"/{quote(text(30))}", f"/people/{text(9)}"]
    )
    form = {"form_token": pick(["", "x", text(40)]), "action": pick(["withdraw", "raise", text(5)]), "actor": text(9)}
    form |= {"confirmation": pick(["r0", text(9)]), "id": text(20), "kind": pick(["record", "subject", text(5)])}
    body = pick([urlencode(form).encode(), text(200).encode(), b""])
    headers = [
        ("Host", pick([console.host, console.host, "evil.example", text(9)])),
        ("Cookie", pick([console.cookie, console.cookie, "", text(30)])),
        ("Origin", pick([f"http://{console.host}", "null", "http://evil.example", text(20)])),
        ("Sec-Fetch-Site", pick(["same-origin", "cross-site", "none", text(9)])),
        ("Content-Type", pick([FORM, "text/plain", text(9)])),
        ("Content-Length", pick([str(len(body)), str(len(body)), "0", "-1", text(4)])),
        (
            pick(["X-Forwarded-Host", "Transfer-Encoding", "Cookie", "Host", "X-HTTP-Method-Override", text(8)]),
            text(12),
        ),
    ]
    kept = [f"{name}: {value}" for name, value in headers if random_source.random() < 0.9]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *kept, "Connection: close", "", ""]).encode() + body


def send(console: Console, request: bytes) -> int | None:
    """The code of the answer; None if there is none."""
    name, _, port = console.host.partition(":")
    with socket.create_connection((name, int(port)), timeout=0.1) as connection:
        found = b""
        try:
            connection.sendall(request)
            while chunk := _received(connection):
                found += chunk
        except ConnectionError:
            return None
    return int(found.split(b" ", 2)[1]) if found.startswith(b"HTTP/1.1 ") else None


def _received(connection: socket.socket) -> bytes:
    """What comes; if the console waits for more of the request, nothing more comes."""
    try:
        return connection.recv(65536)
    except TimeoutError:
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(20.0)
        return connection.recv(65536)


def fuzz(console: Console, story: str, folder: Path, requests: int, seed: int) -> None:
    source, before = random.Random(seed), state(folder)  # noqa: S311
    codes = [send(console, fuzzed(source, console, story)) for _ in range(requests)]
    assert not {code for code in codes if code is not None and code >= 500}
    refused = sum(code is None or code >= 400 for code in codes)
    assert refused > 0.8 * requests  # the others are pages that the session may see
    assert state(folder) == before
    assert console.ask("/people").status == 200


def test_hundreds_of_fuzzed_requests_change_nothing(console: Console, story: str, folder: Path) -> None:
    fuzz(console, story, folder, requests=400, seed=1)


@pytest.mark.slow
def test_ten_thousand_fuzzed_requests_change_nothing(console: Console, story: str, folder: Path) -> None:
    fuzz(console, story, folder, requests=10_000, seed=2)
