"""Rules of privacy.md that a seeded bug has shown to need a small test of their own: what an agent does not accept."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from rpdp.deployment.agent.agent import SMALLEST_MICRO_BATCH
from rpdp.deployment.agent.request_decoding import checked_facts
from rpdp.errors import PrivacyRefusal, Reason, RpdpError
from rpdp.federation.frames import Frame
from rpdp.planning import Recipe
from rpdp.training import SMALLEST_CLIP_NORM
from tests.deployment.agent.federations import PUBLIC as COINS
from tests.deployment.agent.federations import SEED, agents, coordinator
from tests.deployment.agent.links import Local
from tests.deployment.agent.scene import (
    SIZE,
    Making,
    admission,
    announcement,
    in_memory,
    numbers,
    public_plan,
    reason,
    status,
    told,
)

if TYPE_CHECKING:
    from pathlib import Path

    from rpdp.deployment.agent.agent import Agent

PUBLIC = public_plan()


@pytest.fixture
def agent() -> Agent:
    return in_memory(Making(PUBLIC, seed=1))


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"model_fingerprint": None}, "model"),
        ({"model_fingerprint": "0" * 64}, "model"),
        ({"clip_norm": SMALLEST_CLIP_NORM / 10}, "policy"),
    ],
    ids=["no model", "another model", "a clip norm that float32 cannot tell"],
)
def test_a_plan_that_is_not_for_this_agent(agent: Agent, changes: dict[str, Any], word: str) -> None:
    assert reason(told(agent, admission(replace(PUBLIC, **changes)))) == word
    assert agent.silo.account.status().runs == ()
    assert told(agent, admission(PUBLIC)).kind == "admitted"


@pytest.mark.parametrize("size", [1, 255, 256, 1024])
def test_pieces_so_small_that_their_time_would_tell(size: int) -> None:
    """Below the limit a step takes so long for each record that it tells how many were drawn; at it, it is trained."""
    assert SMALLEST_MICRO_BATCH == 256
    plan = public_plan(recipe=Recipe(micro_batch=size))
    agent = in_memory(Making(plan, seed=1))  # the policy alone would allow it
    answer = told(agent, admission(plan))
    if size < SMALLEST_MICRO_BATCH:
        assert reason(answer) == "policy"
        assert agent.silo.account.status().runs == ()
    else:
        assert answer.kind == "admitted"
        assert told(agent, announcement(plan, 1)).kind == "update"


def test_a_round_says_what_it_must_and_nothing_else(agent: Agent) -> None:
    """Neither facts that somebody might come to listen to, nor a model of another size."""
    told(agent, admission(PUBLIC))
    good = announcement(PUBLIC, 1)
    assert reason(told(agent, Frame({**good.facts, "seed": 7}, good.payload))) == "malformed"
    assert reason(told(agent, Frame(good.facts, numbers(size=SIZE - 1)))) == "shape"
    assert reason(told(agent, Frame(good.facts, numbers(size=SIZE + 1)))) == "shape"
    assert status(agent).announced == 0
    assert told(agent, good).kind == "update"


@pytest.mark.parametrize(
    ("run", "is_valid"), [("", False), ("r", True), ("r" * 100, True), ("r" * 101, False), ("a\nb", False)]
)
def test_names_are_short_and_printable(run: str, is_valid: bool) -> None:
    """They go into the ledger and the log for ever."""
    request = Frame({"kind": "cancel", "run": run, "head": None})
    if is_valid:
        assert checked_facts(request)["run"] == run
        return
    with pytest.raises(PrivacyRefusal, match="is not a valid name") as refusal:
        checked_facts(request)
    assert refusal.value.reason is Reason.MALFORMED


@pytest.mark.parametrize(("hold", "is_valid"), [(-1, False), (0, False), (1, True), (True, False)])
def test_a_hold_is_a_number_of_seconds(hold: int, is_valid: bool) -> None:
    request = Frame({"kind": "admit", "run": "run", "plan": {}, "hold": hold, "head": None})
    if is_valid:
        assert checked_facts(request)["hold"] == hold
        return
    with pytest.raises(PrivacyRefusal) as refusal:
        checked_facts(request)
    assert refusal.value.reason is Reason.MALFORMED


def test_a_real_run_does_not_begin_with_seeded_silos(tmp_path: Path) -> None:
    """What such silos release protects nobody, and the run would not say so."""
    with pytest.raises(RpdpError, match="cannot be mixed"):
        coordinator(tmp_path, COINS, Local(agents(COINS)), seed=None, patience=0.2).go()
    seeded = coordinator(tmp_path, COINS, Local(agents(COINS)), seed=SEED, patience=5.0).go()
    assert seeded.is_simulation


def test_a_server_keeps_the_newest_head_it_has_seen(tmp_path: Path) -> None:
    """A silo that was rolled back would else have its older state acknowledged."""
    server = coordinator(tmp_path, COINS, Local(agents(COINS)))
    for count, newest in ((3, 3), (5, 5), (4, 5), (6, 6)):
        told_head = {"ledger": "0" * 32, "count": count, "head": f"{count:064x}"}
        server._keep_head("a", Frame({"kind": "sat-out", "head": told_head}))
        assert server._heads["a"].count == newest
