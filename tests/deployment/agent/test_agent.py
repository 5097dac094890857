"""The agent's answers: admission, rounds, the same bytes again, heads, and what a failure looks like."""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from rpdp.deployment.agent.agent import Agent
from rpdp.errors import InputError
from rpdp.federation import Update
from rpdp.federation.frames import Frame
from rpdp.ledger import Ledger
from rpdp.ledger.store.chain import GENESIS, PublicHead
from rpdp.planning import Recipe
from rpdp.version import __version__
from tests.deployment.agent.scene import (
    LIFETIME_DELTA,
    MODEL,
    READY,
    RECORDS,
    RUN,
    SIZE,
    Making,
    admission,
    admitted,
    announcement,
    cancellation,
    head_of,
    in_memory,
    opened,
    policy_of,
    public_plan,
    reason,
    status,
    told,
)
from tests.deployment.agent.shared import noted, noting
from tests.federation.world import make_records
from tests.ledger.faulty import FULL, KINDS, FaultyVFS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


PUBLIC = public_plan()
COINS = public_plan(12, participation=0.5)
MAKING = Making(PUBLIC)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """One that has admitted the plan in which every round is joined."""
    with admitted(tmp_path, MAKING, {RUN: PUBLIC}) as made:
        yield made


# Admission and rounds


def test_hello_tells_the_name_and_nothing_of_the_ledger(agent: Agent) -> None:
    """A head that is told at any time would tell when a round was stored, and so how long its training took."""
    facts = {"kind": "hello", "silo": "a", "is_simulation": False}
    answer = told(agent, Frame({"kind": "hello"})).facts
    assert abs(answer.pop("clock") - time.time()) < 60.0  # the wall clock, in whole seconds
    assert answer == {**facts, "version": __version__}
    assert told(agent, Frame({"kind": "hello", "version": "9", "clock": 5})).kind == "hello"
    assert reason(told(agent, Frame({"kind": "hello", "version": "9"}))) == "malformed"
    seeded = in_memory(Making(PUBLIC, seed=1))
    assert told(seeded, Frame({"kind": "hello"})).facts["is_simulation"] is True


def test_an_agent_says_which_models_it_trains() -> None:
    agent = in_memory(Making(PUBLIC, seed=1))
    assert [(model.fingerprint, model.parameters, model.bytes) for model in agent.models] == [(MODEL, SIZE, 4 * SIZE)]


@pytest.mark.parametrize("ask", [admission, lambda _, head: cancellation(head=head)], ids=["admit", "cancel"])
def test_a_head_that_the_account_does_not_know_stops_everything(ask: Callable[..., Frame]) -> None:
    """The account may be an old copy, which has forgotten charges."""
    agent = in_memory(Making(PUBLIC, seed=1))
    assert reason(told(agent, ask(PUBLIC, head=PublicHead("ledger", 1, "0" * 64)))) == "head"
    assert agent.silo.account.status().runs == ()
    assert told(agent, admission(PUBLIC)).kind == "admitted"
    assert reason(told(agent, ask(PUBLIC, head=PublicHead("ledger", 1, "0" * 64)))) == "head"
    assert status(agent).state == "held"
    assert reason(told(agent, announcement(PUBLIC, 1, head=PublicHead("ledger", 1, "0" * 64)))) == "head"
    assert status(agent).announced == 0


def test_a_run_that_is_admitted_again_is_one_of_this_process() -> None:
    """So that its server, which has shown its head then, need not show it with every round."""
    agent = in_memory(Making(PUBLIC, seed=1))
    assert told(agent, admission(PUBLIC)).kind == "admitted"
    agent._served.clear()  # as after a restart
    assert told(agent, admission(PUBLIC)).kind == "admitted"
    assert agent._served == {RUN}


def test_admission_reserves_and_tells_the_head(tmp_path: Path) -> None:
    with opened(tmp_path, MAKING) as agent:
        answer = told(agent, admission(PUBLIC))
        assert set(answer.facts) == {"kind", "uncovered", "head"}
        assert answer.facts["uncovered"] == []
        assert PublicHead(**answer.facts["head"]) == head_of(agent)
        assert answer.facts["head"]["count"] == 1
        left = agent.silo.account.left(MAKING.budgets, 0.01).amount
        assert (left < 0.01 * np.asarray(MAKING.budgets.epsilon)).all()  # the plan takes nearly all


def test_admission_twice_reserves_once(agent: Agent) -> None:
    before = head_of(agent)
    assert told(agent, admission(PUBLIC)).kind == "admitted"
    assert head_of(agent) == before


def test_rounds_are_charged_answered_and_booked(tmp_path: Path) -> None:
    with opened(tmp_path, Making(COINS, seed=1)) as agent:
        told(agent, admission(COINS))
        answers = {number: told(agent, announcement(COINS, number)) for number in range(1, 13)}
        joined = tuple(number for number, answer in answers.items() if answer.kind == "update")
        assert {answer.kind for answer in answers.values()} == {"update", "sat-out"}
        assert status(agent).joined == status(agent).released == joined
        assert status(agent).announced == 12
        sizes = {kind: {len(one.to_bytes()) for one in answers.values() if one.kind == kind} for kind in
                 ("update", "sat-out")}  # fmt: skip
        assert all(max(found) - min(found) <= 1 for found in sizes.values())  # a digit of the head's public count
        for number in joined:
            update = Update.from_bytes("a", answers[number].payload)
            assert (update.round, len(update.change)) == (number, SIZE)
        with Ledger.read(tmp_path / "a.db") as ledger:
            assert ledger.verify().is_good


def test_every_round_has_one_answer_for_ever(tmp_path: Path) -> None:
    """Sat out stays sat out, and an update is the same bytes, from whatever model the round is asked for again."""
    with opened(tmp_path, Making(COINS)) as agent:
        told(agent, admission(COINS))
        first = {number: told(agent, announcement(COINS, number)) for number in range(1, 13)}
        head = head_of(agent)
        for number in (5, 12, 1, 7, 7, 3):
            for values in (0.0, 1.0):
                again = told(agent, announcement(COINS, number, values))
                assert (again.kind, again.payload) == (first[number].kind, first[number].payload)
        assert head_of(agent) == head


def test_two_agents_answer_with_different_noise(tmp_path: Path) -> None:
    """The control of the test above: nobody could repeat these bytes."""
    payloads = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        with opened(tmp_path / name, MAKING) as agent:
            told(agent, admission(PUBLIC))
            payloads.append(told(agent, announcement(PUBLIC, 1)).payload)
    assert payloads[0] != payloads[1]


def test_a_correction_is_added_after_the_noise() -> None:
    """Two seeded agents: the same round with and without it differ by −rate · correction per step, to rounding."""
    changes = []
    for correction in (None, 0.25):
        agent = in_memory(Making(PUBLIC, seed=3))
        told(agent, admission(PUBLIC))
        answer = told(agent, announcement(PUBLIC, 1, correction=correction))
        changes.append(Update.from_bytes("a", answer.payload).change.numpy())
    moved = changes[1] - changes[0]
    assert np.abs(moved).max() > 0.05
    assert np.abs(moved + 3 * PUBLIC.recipe.learning_rate * 0.25).max() < 0.02  # the model has moved a little, too


def test_an_agent_without_a_model_is_refused() -> None:
    with pytest.raises(InputError, match="no model is allowed"):
        Agent(in_memory(Making(PUBLIC, seed=1)).silo, [], lambda: None, READY)  # type: ignore[arg-type, return-value]


def test_micro_batches_of_a_few_records_are_refused_whatever_the_policy_says() -> None:
    """A step would take so much longer for every drawn record that the time would show how many were drawn."""
    for size, word in ((255, "policy"), (256, "")):
        public = public_plan(recipe=Recipe(micro_batch=size))
        agent = in_memory(Making(public, seed=1, policy=policy_of(public, min_micro_batch=1)))
        answer = told(agent, admission(public))
        assert answer.facts.get("reason", "") == word
        assert len(agent.silo.account.status().runs) == (not word)


def test_closing_an_agent_ends_the_processes_that_train() -> None:
    """They hold the records, and must not outlast the agent."""
    before = set(multiprocessing.active_children())
    agent = in_memory(Making(PUBLIC, seed=1))
    (keeper,) = set(multiprocessing.active_children()) - before
    agent.close()
    assert keeper not in multiprocessing.active_children()
    agent.close()  # twice is harmless


# Failures after the charge


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def raising(error: Exception) -> Any:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("where", "failure"),
    [
        ("compute", raising(RuntimeError("CUDA out of memory"))),
        ("compute", raising(MemoryError())),
        ("compute", raising(KeyError("record 17"))),
        ("compute", raising(TimeoutError("not this agent's"))),
        ("claim", raising(AssertionError())),
        ("finish", full_disk),
        ("store", full_disk),
        ("store", raising(ZeroDivisionError())),
    ],
    ids=["RuntimeError", "MemoryError", "KeyError", "TimeoutError", "claim", "finish", "store OSError", "store other"],
)
def test_a_failure_after_the_charge_looks_like_sitting_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, failure: Any
) -> None:
    """To the byte, but for the head, whose hash covers the coin: compared with a round that was missed."""
    (tmp_path / "other").mkdir()
    with opened(tmp_path / "other", MAKING) as other:
        told(other, admission(PUBLIC))
        told(other, announcement(PUBLIC, 3))
        missed = told(other, announcement(PUBLIC, 2))
    with opened(tmp_path, MAKING) as agent:
        told(agent, admission(PUBLIC))
        owner = agent.silo.account if where == "store" else agent.silo
        with monkeypatch.context() as broken:
            broken.setattr(owner, where, failure)
            answer = told(agent, announcement(PUBLIC, 2))
        assert (answer.kind, answer.payload) == ("sat-out", b"")
        assert answer.facts.keys() == missed.facts.keys()
        assert len(answer.to_bytes()) == len(missed.to_bytes())
        assert (status(agent).joined, status(agent).released) == ((2,), ())
        assert told(agent, announcement(PUBLIC, 2)).kind == "sat-out"  # and is never trained again
        assert told(agent, announcement(PUBLIC, 3)).kind == "update"


@pytest.mark.parametrize("kind", KINDS)
def test_a_disk_that_fails_when_the_update_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The ledger's own file layer fails, from the first write or sync of the store on; a broken one needs a restart."""
    with opened(tmp_path, MAKING) as agent:
        told(agent, admission(PUBLIC))
    vfs = FaultyVFS("of an agent")
    try:
        with opened(tmp_path, replace(MAKING, vfs=vfs.name)) as agent:
            assert told(agent, admission(PUBLIC, head=head_of(agent))).kind == "admitted"
            finish = agent.silo.finish

            def on_a_bad_disk(trained: Any) -> Any:
                vfs.arm(kind, 0)
                return finish(trained)

            monkeypatch.setattr(agent.silo, "finish", on_a_bad_disk)
            assert told(agent, announcement(PUBLIC, 1)).kind == "sat-out"
            assert vfs.failed > 0
            vfs.disarm()
            monkeypatch.undo()
            again = told(agent, announcement(PUBLIC, 2))
            assert again.kind == "update" if kind == FULL else reason(again) == "storage"
    finally:
        vfs.unregister()
    with opened(tmp_path, MAKING) as agent:
        told(agent, admission(PUBLIC, head=head_of(agent)))
        assert told(agent, announcement(PUBLIC, 3)).kind == "update"
        assert status(agent).joined == ((1, 2, 3) if kind == FULL else (1, 3))
        assert status(agent).released == ((2, 3) if kind == FULL else (3,))


def test_a_failure_before_the_charge_is_one_word_and_charges_nothing(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(agent.silo, "begin", raising(KeyError("the path of something")))
        assert reason(told(agent, announcement(PUBLIC, 1))) == "failed"
        broken.setattr(agent.silo, "admit", raising(AssertionError("budgets of r1, r2")))
        assert reason(told(agent, admission(PUBLIC))) == "failed"
    assert status(agent).announced == 0
    assert told(agent, announcement(PUBLIC, 1)).kind == "update"


def test_the_silos_own_log_says_what_failed(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The server hears one word, or that the silo sat out; the steward has to find the cause."""
    agent = in_memory(Making(PUBLIC, seed=1))
    told(agent, admission(PUBLIC))
    for where, answer in (("compute", "sat-out"), ("begin", "refused")):
        with monkeypatch.context() as broken:
            broken.setattr(agent.silo, where, raising(KeyError(f"the cause in {where}")))
            assert told(agent, announcement(PUBLIC, 1)).kind == answer
        assert f"the cause in {where}" in caplog.text


def test_a_record_that_breaks_the_loss_is_not_to_be_seen() -> None:
    records = make_records(RECORDS)
    records.inputs[0][4] = float("nan")
    for held in (None, records):
        agent = in_memory(Making(PUBLIC, seed=2, records=held, epsilon=(100.0,)))
        told(agent, admission(PUBLIC))
        answers = [told(agent, announcement(PUBLIC, number)) for number in range(1, 7)]
        assert [answer.kind for answer in answers] == ["update"] * 6


# Closed runs, other runs, heads


def test_a_closed_run_is_refused_and_makes_room_for_another(tmp_path: Path) -> None:
    alone = replace(MAKING, max_concurrent_runs=1)
    with opened(tmp_path, alone) as agent:
        told(agent, admission(PUBLIC))
        told(agent, announcement(PUBLIC, 1))
        known = head_of(agent)
        assert reason(told(agent, admission(PUBLIC, "second", known))) == "other-run"
    with opened(tmp_path, replace(alone, closed_runs=(RUN,))) as agent:
        assert reason(told(agent, admission(PUBLIC, head=known))) == "closed-run"
        assert reason(told(agent, announcement(PUBLIC, 2, head=known))) == "closed-run"
        assert told(agent, admission(PUBLIC, "second", known)).kind == "admitted"
        assert status(agent, RUN).announced == 1


def test_only_a_plan_on_the_list_may_run(tmp_path: Path) -> None:
    """Any other plan within the limits would book budgets too, whoever made it."""
    other = replace(PUBLIC, normaliser=PUBLIC.normaliser + 1.0)
    listed = replace(MAKING, policy=policy_of(PUBLIC, allowed_plans=(PUBLIC.fingerprint,)))
    with opened(tmp_path, listed) as agent:
        before = agent.silo.account.left(agent.silo.budgets, LIFETIME_DELTA).amount.tolist()
        assert reason(told(agent, admission(other))) == "policy"
        assert agent.silo.account.status().runs == ()
        assert agent.silo.account.left(agent.silo.budgets, LIFETIME_DELTA).amount.tolist() == before
        assert told(agent, admission(PUBLIC)).kind == "admitted"
        assert told(agent, announcement(PUBLIC, 1)).kind == "update"


def test_without_a_list_any_plan_within_the_limits_may_run_and_with_an_empty_one_none(tmp_path: Path) -> None:
    with opened(tmp_path, replace(MAKING, policy=policy_of(PUBLIC, allowed_plans=()))) as agent:
        assert reason(told(agent, admission(PUBLIC))) == "policy"
    with opened(tmp_path, MAKING) as agent:
        assert told(agent, admission(PUBLIC)).kind == "admitted"
        known = head_of(agent)
    with opened(tmp_path, replace(MAKING, policy=policy_of(PUBLIC, allowed_plans=("0" * 64,)))) as agent:
        assert reason(told(agent, admission(PUBLIC, head=known))) == "policy"  # nor does a run that began go on


def test_a_run_that_is_over_makes_room_up_to_the_most_runs(tmp_path: Path) -> None:
    short = public_plan(1)
    with opened(tmp_path, Making(short, policy=policy_of(short, max_runs=2))) as agent:
        for number, run in enumerate(("first", "second")):
            head = head_of(agent) if number else None
            assert told(agent, admission(short, run, head)).kind == "admitted"
            told(agent, announcement(short, 1, run=run, head=head))
        assert reason(told(agent, admission(short, "third", head_of(agent)))) == "policy"


def test_a_ledger_that_was_rolled_back_is_refused(tmp_path: Path) -> None:
    now, then = tmp_path / "now", tmp_path / "then"
    now.mkdir()
    with opened(now, MAKING) as agent:
        told(agent, admission(PUBLIC))
        told(agent, announcement(PUBLIC, 1))
    shutil.copytree(now, then)
    with opened(now, MAKING) as agent:
        told(agent, admission(PUBLIC, head=head_of(agent)))
        told(agent, announcement(PUBLIC, 2))
        known = head_of(agent)
    with opened(then, MAKING) as agent:
        assert reason(told(agent, admission(PUBLIC, head=known))) == "head"
        assert reason(told(agent, admission(PUBLIC))) == "head"  # nor without any head
        own = admission(PUBLIC, head=head_of(agent))
        assert told(agent, own).kind == "admitted"  # the control: a server that knows no better
        assert reason(told(agent, announcement(PUBLIC, 2, head=known))) == "head"
        assert status(agent).announced == 1
    with opened(now, MAKING) as agent:
        assert told(agent, admission(PUBLIC, head=known)).kind == "admitted"


def test_a_server_that_knows_nothing_of_earlier_runs_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path, replace(MAKING, closed_runs=("first",))) as agent:
        agent.silo.admit("first", PUBLIC, *_model_of(agent))
        head = head_of(agent)
        assert reason(told(agent, admission(PUBLIC, "second"))) == "head"
        nothing = PublicHead(head.ledger, 0, GENESIS.hex())
        assert reason(told(agent, admission(PUBLIC, "second", nothing))) == "head"
        assert told(agent, admission(PUBLIC, "second", head)).kind == "admitted"
        assert reason(told(agent, announcement(PUBLIC, 1, run="second"))) == "head"
        assert told(agent, announcement(PUBLIC, 1, run="second", head=head)).kind == "update"


def _model_of(agent: Agent) -> Any:
    (model,) = agent._models.values()
    return model.module, model.loss, agent._randomness()


@pytest.mark.parametrize(
    "changes",
    [
        {"ledger": "another"},
        {"ledger": 5},
        {"count": 10**30},
        {"count": -1, "head": ""},
        {"count": -(10**30)},
        {"count": 1.0},
        {"count": True},
        {"count": "1"},
        {"head": "00" * 32},
        {"head": None},
        {"more": 1},
    ],
    ids=str,
)
def test_a_head_that_is_none_of_this_ledger(agent: Agent, changes: dict[str, Any]) -> None:
    known = announcement(PUBLIC, 1, head=head_of(agent))
    bad = {**known.facts, "head": {**known.facts["head"], **changes}}
    assert reason(told(agent, Frame(bad, known.payload))) == "head"
    assert reason(told(agent, Frame({**admission(PUBLIC).facts, "head": bad["head"]}))) == "head"
    assert status(agent).announced == 0
    assert told(agent, known).kind == "update"


# Withdrawals


def test_a_withdrawal_between_rounds_counts_from_the_next_step_on(tmp_path: Path) -> None:
    """Given beside the agent, by another process's view of the ledger; nobody outside can tell."""
    drawn = tmp_path / "drawn"
    with opened(tmp_path, replace(MAKING, epsilon=(200.0,), silo=noting(drawn))) as agent:
        told(agent, admission(PUBLIC))
        assert (agent.silo.plan.q == 1.0).all()
        told(agent, announcement(PUBLIC, 1))
        assert noted(drawn) == [list(range(RECORDS))] * 3
        with Ledger.read(tmp_path / "a.db") as beside:
            beside.withdraw(["r4", "r7"], reason="asked to")
        answer = told(agent, announcement(PUBLIC, 2))
        assert noted(drawn) == [[row for row in range(RECORDS) if row not in (4, 7)]] * 3
        assert answer.kind == "update"
        assert answer.facts["head"]["count"] == 5  # admit, and twice charge and release: no trace of the withdrawal


def test_most_payload_is_the_model_and_a_correction() -> None:
    assert in_memory(Making(PUBLIC, seed=1)).most_payload == 2 * 4 * SIZE
