"""The audit of a silo that is served as in a deployment: a live agent behind its socket, a production ledger.

The auditor sees released bytes and nothing else. False alarms: at most 1e-6 a run.
"""

from __future__ import annotations

import logging
import tempfile
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from rpdp import Schedule
from rpdp.audit import audit_served
from rpdp.deployment.agent.agent_client import ask
from rpdp.errors import InputError, PrivacyRefusal, RpdpError
from rpdp.federation import Silo
from rpdp.federation.frames import Frame
from rpdp.ledger import Ledger
from tests.audit.world import make_public, mutant

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rpdp.audit import AuditResult
    from rpdp.budgets import AccountKind
    from rpdp.ledger.inspection.verification import Verification

GROUPS = (0.5, 5.0)


@pytest.fixture(autouse=True)
def place(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary directories are made; nothing of a served silo is left, whatever happened."""
    folder = tmp_path_factory.mktemp("t")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert not list(folder.glob("**/rpdp-*"))
    assert not [thread for thread in threading.enumerate() if thread.name == "served silo"]
    assert logging.getLogger("rpdp.silo").handlers == []
    assert logging.getLogger("rpdp.silo").propagate


def small(**settings: Any) -> AuditResult:
    """A few canaries."""
    return audit_served(make_public(), **{"groups": GROUPS, "per_group": 300, **settings})


def test_a_served_silo_passes(place: Path) -> None:
    seen: list[tuple[int, int]] = []
    files: set[str] = set()

    def on_round(done: int, total: int) -> None:
        seen.append((done, total))
        files.update(path.name for path in place.glob("rpdp-*/*"))

    result = audit_served(make_public(), groups=GROUPS, per_group=10_000, on_round=on_round)
    assert result.passed
    assert (result.view, result.observations, result.kernel, result.records) == ("rounds", 4, "ghost", 0)
    assert all(0.0 < group.bound.epsilon <= group.epsilon for group in result.groups[1:])
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert {"agent.sock", "ledger.db"} <= files
    assert (result.seed, result.ledger, result.is_simulation) == (None, (), False)
    assert result.verdict()[-1] == "Its ledger verifies."


@pytest.mark.parametrize("account", ["sums", "renyi"])
def test_a_silo_of_a_plan_for_persons_in_several_silos_passes(account: AccountKind) -> None:
    """Its records get the q of a person's part, or of k·ρ, and the auditor expects that."""
    public = replace(make_public(), account=account, silos_per_person=2, lifetime_delta=1e-3)
    result = audit_served(public, groups=GROUPS, per_group=300)
    assert result.passed
    assert 0.0 < result.groups[0].probability < small().groups[0].probability


def test_one_with_too_little_noise_does_not() -> None:
    with mutant("σ × 0.9"):
        result = audit_served(make_public(), groups=GROUPS, per_group=10_000)
    assert not result.passed
    assert result.p_value < 1e-6


def test_two_audits_never_see_the_same() -> None:
    assert small().tests != small().tests


def test_participation_by_coin() -> None:
    """That no round is joined has probability 5e-7."""
    public = make_public(Schedule(12, 2, participation=0.7))
    result = audit_served(public, groups=GROUPS, per_group=300)
    assert result.passed
    assert result.joined == result.observations


def test_a_ledger_that_does_not_verify_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Ledger.verify

    def tampered(self: Ledger) -> Verification:
        with self.database.transaction():
            self.database.rows("UPDATE outbox SET payload = x'00'")
        return honest(self)

    monkeypatch.setattr(Ledger, "verify", tampered)
    result = small()
    assert result.conforms
    assert not result.broken
    assert not result.passed
    assert result.ledger
    assert result.verdict()[-1].startswith("ITS LEDGER DOES NOT VERIFY: bulk: ")


def test_a_round_that_is_never_released_makes_it_no_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Silo.train

    def failing(self: Silo, announcement: Any, *more: Any) -> Any:
        if announcement.round == 2:
            raise MemoryError("no room")
        return honest(self, announcement, *more)

    monkeypatch.setattr(Silo, "train", failing)
    with pytest.raises(RpdpError, match=r"joined 4 rounds and released 3 updates.*round 2 could not be trained.*room"):
        small()


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, RuntimeError])
def test_nothing_is_left_after_an_interruption(interruption: type[BaseException]) -> None:
    """The fixture looks."""

    def on_round(done: int, total: int) -> None:
        raise interruption

    with pytest.raises(interruption):
        small(on_round=on_round)


def test_an_interruption_in_mid_request_waits_for_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request outlives its caller; it must not outlive the ledger, which is gone afterwards."""
    asked, ended, honest = threading.Event(), threading.Event(), Silo.admit

    def slow(self: Silo, *arguments: Any, **settings: Any) -> Any:
        asked.set()
        time.sleep(0.5)
        try:
            return honest(self, *arguments, **settings)
        finally:
            ended.set()

    def interrupted(socket: Path, request: bytes, *, timeout: float) -> bytes:
        if Frame.from_bytes(request, len(request)).kind != "admit":
            return ask(socket, request, timeout=timeout)
        threading.Thread(target=ask, args=(socket, request), kwargs={"timeout": timeout}, daemon=True).start()
        assert asked.wait(60.0)
        raise KeyboardInterrupt

    monkeypatch.setattr(Silo, "admit", slow)
    monkeypatch.setattr("rpdp.audit.served_audit.ask", interrupted)
    with pytest.raises(KeyboardInterrupt):
        small()
    assert ended.is_set()


def test_what_no_agent_serves_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"served silo reads .* plain SGD only, not with momentum = 0.9; leave --served"
    ):
        audit_served(make_public(momentum=0.9), groups=GROUPS)
    with pytest.raises(PrivacyRefusal, match=r"was not admitted \(audited: policy\).*micro_batch=16 is below 256"):
        audit_served(make_public(micro_batch=16), groups=GROUPS, per_group=300)
    with pytest.raises(InputError, match=r"confidence=1\.5"):
        small(confidence=1.5)


def test_a_path_that_is_too_long_for_a_socket(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = place / ("x" * 90)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with pytest.raises(InputError, match="choose a shorter path: set TMPDIR"):
        small()
    deep.rmdir()
