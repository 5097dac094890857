"""The audit of a deployed silo by its steward: a live agent behind its socket, a production ledger, secure randomness.

The auditor sees released bytes and nothing else. False alarms: at most 1e-6 a run.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from rpdp.audit import Canaries, CanaryLaw, Tally, analyse, canary_budgets, plant, round_observation
from rpdp.federation import Policy, Silo, Update, local, model_fingerprint
from rpdp.federation.agent.agent import Agent, AllowedModel, Timing
from rpdp.federation.agent.client import ask
from rpdp.federation.agent.protocol import Frame
from rpdp.federation.agent.service import Service
from rpdp.federation.coordinator import Coordinator, Settings
from rpdp.ledger import Ledger
from rpdp.sampling import Secure, Seeded
from rpdp.training import FlatModel, StepSettings
from tests.audit.world import make_public

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pytest

    from rpdp.audit import AuditResult

GROUPS = (0.5, 5.0)


class Listening:
    """A link over the agent's socket that keeps every released update."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self.updates: list[Update] = []

    def addresses(self) -> dict[str, str]:
        return {"far": ""}

    def ask(self, requests: Mapping[str, bytes], timeout: float) -> dict[str, bytes]:
        answers = {address: ask(self._socket, sent, timeout=timeout) for address, sent in requests.items()}
        for answer in answers.values():
            frame = Frame.from_bytes(answer, len(answer))
            if frame.kind == "update":
                self.updates.append(Update.from_bytes("far", frame.payload))
        return answers


def audited(folder: Path) -> AuditResult:
    """Canaries as the records of a served silo, a whole run over its socket, and what its bytes tell."""
    canaries = Canaries.flip(GROUPS, 10_000, Secure())
    plain = make_public()
    planted = plant(canaries, plain.clip_norm)
    public = replace(plain, model_fingerprint=model_fingerprint(planted.model))
    budgets = canary_budgets(canaries)
    with Ledger.create(folder / "ledger.db", budgets, kind="production", lifetime_delta=public.delta) as ledger:
        silo = Silo("far", planted.records, budgets, policy=Policy.of(public), account=ledger)
        agent = Agent(silo, [AllowedModel(planted.model, planted.loss)], Secure, Timing(None))
        service = Service(agent, folder / "agent.sock")
        thread = threading.Thread(target=service.serve)
        thread.start()
        try:
            while not (folder / "agent.sock").exists():
                threading.Event().wait(0.01)
            link = Listening(folder / "agent.sock")
            start = FlatModel(planted.model).values.data.clone()
            Coordinator(
                "audit",
                public,
                torch.zeros_like(start),
                ["far"],
                link,
                Settings(deadline=60.0),
                checkpoint=folder / "checkpoint",
                heads=folder / "heads.json",
            ).go()
        finally:
            service.stop()
            thread.join(30.0)
        assert ledger.verify().is_good
    q = public.curve.sampling_probability(canaries.groups)
    laws = [CanaryLaw(float(one), public.noise_multiplier, public.schedule.local_steps) for one in q]
    tally = Tally(canaries, laws)
    for update in link.updates:
        tally.add(round_observation(update, planted, public))
    return analyse(tally, public, len(link.updates), 0.95, Seeded(7).child("audit", "design"))


def test_a_deployed_agent_passes(tmp_path: Path) -> None:
    result = audited(tmp_path)
    assert result.view == "rounds"
    assert result.passed
    assert all(group.bound.epsilon <= group.epsilon for group in result.groups)


def test_one_with_too_little_noise_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(clip_norm: float, noise_multiplier: float, normaliser: float, micro_batch: int) -> StepSettings:
        return StepSettings(clip_norm, 0.9 * noise_multiplier, normaliser, micro_batch)

    monkeypatch.setattr(local, "StepSettings", careless)
    result = audited(tmp_path)
    assert not result.passed
    assert result.p_value < 1e-6
