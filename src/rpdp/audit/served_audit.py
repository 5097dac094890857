"""The audit of a silo that is served as in a deployment: an agent behind its socket, a ledger, secure randomness.

Canaries are the only records of the silo. Its ledger is of kind "production" and its own; it lives in a private
directory that is removed afterwards, so no account of a real record changes. A coordinator goes through all rounds of
the plan over the agent's Unix socket. The auditor knows the public plan and the coins, and reads nothing but
released bytes. When the run is over, the ledger is verified from its raw events.

This is not a simulation: coins, draws and noise come from the operating system, so no two audits are alike.
"""

from __future__ import annotations

import logging
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rpdp.audit.analysis import analyse, require_confidence
from rpdp.audit.canaries import Canaries, canary_budgets
from rpdp.audit.observation import require_sums, round_observation
from rpdp.audit.planting import plant
from rpdp.audit.silo_audit import CONFIDENCE, GROUPS, audit_account, canary_laws, group_probabilities
from rpdp.audit.tally import Tally
from rpdp.deployment.agent import agent as agents
from rpdp.deployment.agent.agent_client import Unreachable, ask, is_answering
from rpdp.deployment.agent.release_timing import Timing
from rpdp.deployment.agent.socket_service import Service
from rpdp.deployment.own_socket import require_own_directory
from rpdp.errors import InputError, PrivacyRefusal, RpdpError
from rpdp.federation import Policy, Silo, Update, coordinator, model_fingerprint
from rpdp.federation.frames import Frame
from rpdp.federation.workers import one_thread
from rpdp.ledger import Ledger
from rpdp.planning import assign_allowed
from rpdp.sampling import Secure
from rpdp.training import FlatModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rpdp.audit.audit_result import AuditResult
    from rpdp.audit.planting import Planted
    from rpdp.budgets import BudgetTable
    from rpdp.planning import PublicPlan

SERVED = 10_000
"""Canaries of each group: every one is a record of the ledger and a number in every update."""

_ROUND_SECONDS = 24 * 3600.0
"""For a round: the agent is on this machine, and if it goes away that is noticed at once."""


def audit_served(
    public: PublicPlan,
    *,
    name: str = "audited",
    groups: Sequence[float] = GROUPS,
    per_group: int = SERVED,
    confidence: float = CONFIDENCE,
    on_round: Callable[[int, int], None] | None = None,
) -> AuditResult:
    """Serve a silo whose records are canaries, run its whole schedule over the socket, and see what can be proven.

    It does not pass either if the silo's ledger does not verify afterwards; `AuditResult.ledger` says why.

    Args:
        public: The plan of the run; only the model's fingerprint is replaced. Plain SGD only.
        name: Of the silo; the plan must have a weight for it.
        groups: ε of each budget group of canaries.
        per_group: Canaries of each group; about half of them are in.
        confidence: With which all lower bounds hold together.
        on_round: Called with the number of rounds done and in all.
    """
    began = time.perf_counter()
    require_confidence(confidence)
    require_sums(public, "the audit of a served silo", "leave --served out")
    source = Secure()
    canaries = Canaries.flip(groups, per_group, source.child("coins"))
    planted = plant(canaries, public.clip_norm)
    plan = replace(public, model_fingerprint=model_fingerprint(planted.model), schema_fingerprint=None)
    budgets = canary_budgets(canaries)
    tally = Tally(canaries, canary_laws(plan, _probabilities(plan, budgets, canaries), canaries, "rounds"))
    link = _Listening(name, lambda update: tally.add(round_observation(update, planted, plan)))
    with one_thread():
        facts = _served(plan, planted, budgets, link, on_round)
    if facts.joined != tally.observations:
        raise RpdpError(
            f"the served silo joined {facts.joined} rounds and released {tally.observations} updates, so the audit "
            f"is incomplete{facts.log}"
        )
    result = analyse(tally, plan, [tally.observations], confidence, source.child("design"))
    return replace(result, kernel=facts.kernel, ledger=facts.ledger, seconds=time.perf_counter() - began)


def _probabilities(public: PublicPlan, budgets: BudgetTable, canaries: Canaries) -> list[float]:
    """The q of each group in a silo that plans as an agent does."""
    policy = Policy.of(public)
    allowed = audit_account(public, len(budgets)).left(budgets, policy.lifetime_delta, policy.allowance(public))
    return group_probabilities(assign_allowed(public, budgets.ids, allowed), canaries)


class _Listening:
    """A link to one agent over its socket that shows the auditor every released update."""

    def __init__(self, silo: str, released: Callable[[Update], None]) -> None:
        self.silo = silo
        self.socket: Path | None = None
        self._released = released

    def addresses(self) -> dict[str, str]:
        return {self.silo: self.silo}

    def ask(self, requests: Mapping[str, bytes], timeout: float) -> dict[str, bytes]:
        assert self.socket is not None
        try:
            answers = {address: ask(self.socket, sent, timeout=timeout) for address, sent in requests.items()}
        except Unreachable as error:
            raise RpdpError(f"the served silo does not answer any more: {error}") from None
        for answer in answers.values():
            frame = Frame.from_bytes(answer, len(answer))
            if frame.kind == "update":
                self._released(Update.from_bytes(self.silo, frame.payload))
        return answers


@dataclass(frozen=True)
class _Facts:
    """What is known at the silo when the run is over: rounds joined, kernel, what is wrong with its ledger, its log."""

    joined: int
    kernel: str
    ledger: tuple[str, ...]
    log: str


def _served(
    public: PublicPlan,
    planted: Planted,
    budgets: BudgetTable,
    link: _Listening,
    on_round: Callable[[int, int], None] | None,
) -> _Facts:
    """A whole run over the socket of an agent, in a directory that is gone afterwards."""
    with (
        tempfile.TemporaryDirectory(prefix="rpdp-") as made,
        _kept_warnings() as said,
        _ledger(Path(made) / "ledger.db", budgets, public) as ledger,
    ):
        folder = Path(made)
        settings = coordinator.RoundSettings(deadline=_ROUND_SECONDS, patience=_ROUND_SECONDS)
        policy = replace(Policy.of(public), max_hold=settings.held_for)
        silo = Silo(link.silo, planted.records, budgets, policy=policy, account=ledger)
        link.socket = folder / "agent.sock"
        with _listening(_Agent(silo, agents.AllowedModel(planted.model, planted.loss)), link.socket):
            server = coordinator.Coordinator(
                f"audit-{public.fingerprint[:16]}",
                public,
                FlatModel(planted.model).values.data.clone(),
                [link.silo],
                link,
                settings,
                checkpoint=folder / "checkpoint",
                heads=folder / "heads.json",
            )
            try:
                server.go(None if on_round is None else lambda log: on_round(log.round, public.schedule.rounds))
            except PrivacyRefusal as refusal:
                raise PrivacyRefusal(f"{refusal}{_log_text(said)}", refusal.reason) from None
        findings = ledger.verify().findings
        wrong = tuple(f"{found.check}: {found.problem}" for found in findings)
        return _Facts(len(silo.joined), silo.kernel_name, wrong, _log_text(said))


def _ledger(path: Path, budgets: BudgetTable, public: PublicPlan) -> Ledger:
    """Return a ledger for this run alone. Sums price one run most closely, so they leave the audit most to find."""
    return Ledger.create(
        path,
        budgets,
        kind="production",
        lifetime_delta=public.delta if public.lifetime_delta is None else public.lifetime_delta,
        account=public.account or "sums",
        silos_per_person=public.silos_per_person,
    )


class _Agent(agents.Agent):
    """An agent that can be waited for: a request may outlive its caller, and must not outlive the ledger."""

    def __init__(self, silo: Silo, model: agents.AllowedModel) -> None:
        super().__init__(silo, [model], Secure, Timing(None))
        self._answering = threading.Lock()

    def answer(self, request: Frame) -> Frame:
        with self._answering:
            return super().answer(request)

    def close(self) -> None:
        super().close()
        with self._answering:
            return


@contextmanager
def _listening(agent: _Agent, socket: Path) -> Iterator[None]:
    """An agent that answers on its socket until the end of the block."""
    try:
        require_own_directory(socket)
    except InputError as error:
        raise InputError(f"{error}: set TMPDIR to one") from None
    service = Service(agent, socket)
    thread = threading.Thread(target=service.serve, name="served silo", daemon=True)
    thread.start()
    try:
        while not is_answering(socket):
            if not thread.is_alive():
                raise RpdpError(f"the agent of the served silo did not start to listen on {socket}")
            time.sleep(0.01)
        yield
    finally:
        service.stop()
        thread.join()
        agent.close()


class _Log(logging.Handler):
    """Keeps the messages."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        cause = "" if record.exc_info is None else f" ({record.exc_info[1]!r})"
        self.said.append(record.getMessage() + cause)


@contextmanager
def _kept_warnings() -> Iterator[list[str]]:
    """Keep the warnings of silo and server for an error message instead of printing them."""
    log, loggers = _Log(), (agents.LOG, coordinator.LOG)
    before = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.addHandler(log)
        logger.propagate = False
    try:
        yield log.said
    finally:
        for logger, propagate in zip(loggers, before, strict=True):
            logger.removeHandler(log)
            logger.propagate = propagate


def _log_text(said: Sequence[str]) -> str:
    return f"; the log says: {said[0]}" if said else ""
