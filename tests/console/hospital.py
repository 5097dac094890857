"""A small silo for the console: persons with records, three runs, a steward's key, and a console that serves it."""

from __future__ import annotations

import http.client
import re
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import urlencode, urlsplit

from rpdp import BudgetTable, PublicPlan, Schedule
from rpdp.console import ConsoleServer, ConsoleSilo
from rpdp.deployment.files.silo_file import SiloFile
from rpdp.ledger import Ledger, StewardKey
from rpdp.planning import Allowance, assign_allowed

if TYPE_CHECKING:
    from collections.abc import Mapping

LIFETIME_DELTA = 1e-2
SILO = """
[silo]
name = "north"
ledger = "ledger.db"
budgets = "budgets.csv"
socket = "agent.sock"
[data]
factory = "hospital:load"
[models.study]
model = "hospital:model"
loss = "hospital:loss"
[policy]
max_rounds = 4
max_local_steps = 3
max_participation = 1.0
max_clip_norm = 1.0
min_noise_multiplier = 2.0
lifetime_delta = 0.01
max_runs = 10
max_share_per_run = 0.2
release_after = 1.0
"""
PUBLIC = PublicPlan(
    Schedule(4, 3, participation=1.0),
    noise_multiplier=2.0,
    delta=1e-3,
    clip_norm=1.0,
    normaliser=10.0,
    weights=1.0,
    accountant="rdp",
    study="stroke",
)


def records() -> BudgetTable:
    """Forty records; ada has two of them."""
    ids = [f"r{number}" for number in range(40)]
    subjects = ["ada" if number in (3, 4) else f"p{number}" for number in range(40)]
    epsilon = [2.0 if name == "ada" else (0.5, 2.0, 8.0)[number % 3] for number, name in enumerate(subjects)]
    return BudgetTable(ids, epsilon, subjects=subjects)


def make_silo(
    folder: Path, table: BudgetTable | None = None, *, kind: str = "production"
) -> tuple[SiloFile, StewardKey]:
    """A silo with a ledger that has had two runs, and holds a third."""
    folder.chmod(0o700)
    path, key = folder / "silo.toml", StewardKey()
    path.write_text(SILO)
    table = records() if table is None else table
    with Ledger.create(
        folder / "ledger.db",
        table,
        kind="simulation" if kind == "simulation" else "production",
        lifetime_delta=LIFETIME_DELTA,
        account="renyi",
        steward=key.public,
    ) as ledger:
        for number in (1, 2, 3):
            allowance = Allowance(share=0.2)
            plan = assign_allowed(PUBLIC, table.ids, ledger.left(table, LIFETIME_DELTA, allowance))
            ledger.reserve(f"run-{number}", plan, time.time() + 1800.0, allowance)
            for round_number in range(1, 3 if number < 3 else 1):
                ledger.charge(f"run-{number}", round_number, lambda: True)
    return SiloFile.read(path), key


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str


@dataclass
class Console:
    """A console in this process, and a client of it that speaks plain HTTP."""

    spec: SiloFile
    key: StewardKey | None = None
    path: Path | None = None
    idle: float = 900.0
    addresses: list[str] = field(default_factory=list)
    cookie: str = ""
    form_token: str = ""

    def __enter__(self) -> Self:
        self.silo = ConsoleSilo(self.spec, self.key)
        self.server = ConsoleServer(self.silo, self.addresses.append, path=self.path, idle=self.idle)
        self._thread = threading.Thread(target=self.server.serve, daemon=True)
        self._thread.start()
        deadline = time.monotonic() + 20.0
        while not self.addresses:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        self.host = urlsplit(self.server.address).netloc
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()
        self._thread.join(timeout=30.0)
        assert not self._thread.is_alive()

    @property
    def token(self) -> str:
        return self.addresses[-1].partition("token=")[2]

    def ask(
        self,
        path: str,
        form: Mapping[str, str] | bytes | None = None,
        *,
        method: str | None = None,
        headers: Mapping[str, str | None] | None = None,
    ) -> Answer:
        """Ask as a signed-in browser would, but for these headers (None leaves one out)."""
        given: dict[str, str | None] = {
            "Host": self.host,
            "Sec-Fetch-Site": "same-origin",
            "Cookie": self.cookie or None,
        }
        body = None
        if form is not None:
            body = form if isinstance(form, bytes) else urlencode(form).encode()
            given |= {"Origin": f"http://{self.host}", "Content-Type": "application/x-www-form-urlencoded"}
        given |= dict(headers or {})
        connection = http.client.HTTPConnection(self.host, timeout=60.0)
        try:
            connection.putrequest(
                method or ("GET" if form is None else "POST"), path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in given.items():
                if value is not None:
                    connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode())
        finally:
            connection.close()

    def sign_in(self) -> Self:
        answer = self.ask(f"/sign-in?token={self.token}")
        assert answer.status == 200, answer.text
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        found = re.search(r'name="form_token" value="([^"]+)"', self.ask("/people").text)
        assert found is not None
        self.form_token = found[1]
        return self

    def post(self, path: str, **fields: str) -> Answer:
        return self.ask(path, {"form_token": self.form_token, **fields})

    def page(self, path: str, patience: float = 60.0) -> Answer:
        """A page, once what it waits for is done."""
        deadline = time.monotonic() + patience
        while "refresh" in (answer := self.ask(path)).headers:
            assert time.monotonic() < deadline, answer.text
            time.sleep(0.1)
        return answer

    def look_up(self, kind: str, name: str) -> str:
        """The address of somebody's story."""
        answer = self.post("/people", kind=kind, id=name)
        assert answer.status == 303, answer.text
        return answer.headers["location"]
