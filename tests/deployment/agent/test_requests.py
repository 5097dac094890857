"""Statistics and evaluation through agents: the way that training goes, with the same frames, ledger and server."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from rpdp.deployment.agent.release_timing import Timing
from rpdp.errors import Reason
from rpdp.federation import ReleasedSums, Silo, Update, model_fingerprint, release_sums
from rpdp.federation.coordinator import Coordinator, RoundSettings
from rpdp.federation.frames import Frame
from rpdp.ledger import Ledger
from rpdp.planning import MeasureSpec, Request
from tests.deployment.agent.federations import start
from tests.deployment.agent.links import Local
from tests.deployment.agent.scene import (
    RECORDS,
    RUN,
    SIZE,
    Making,
    admission,
    admitted,
    announcement,
    head_of,
    opened,
    policy_of,
    public_plan,
    reason,
    status,
    told,
)
from tests.federation.requests import TWO, Bins, make_asked
from tests.federation.world import make_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from rpdp import PublicPlan
    from rpdp.deployment.agent.agent import Agent
    from rpdp.federation import RoundLog
    from rpdp.federation.cells import Cells
    from rpdp.planning import Purpose

    Asking = Callable[[Agent], Frame]

NAMES = ("a", "b", "c")
HELD = np.arange(RECORDS) % 3 == 0
TRAINED = public_plan(2, 2)
COUNTED = make_asked(2, noise_multiplier=2.0)
TESTED = make_asked(purpose="evaluation", noise_multiplier=2.0, model_fingerprint=model_fingerprint(make_model()))
POLICY = policy_of(TRAINED, max_share_per_run=0.3, max_runs=9, max_cells=5)


def making(name: str = "a", source: Bins | None = None, **more: Any) -> Making:
    bins = Bins(RECORDS) if source is None else source
    both: dict[Purpose, Bins] = {"statistics": bins, "evaluation": bins}
    return Making(TRAINED, name, epsilon=[20.0], policy=POLICY, measured=both, held_out=HELD, **more)


@contextmanager
def agents(folder: Path, names: Sequence[str] = NAMES, **more: Any) -> Iterator[dict[str, Agent | None]]:
    """Agents over their ledgers, which are made at the first call and opened at later ones."""
    with ExitStack() as stack:
        yield {f"at {name}": stack.enter_context(opened(folder, making(name, **more))) for name in names}


def coordinator(folder: Path, public: PublicPlan, link: Local, run: str, seed: int | None = None) -> Coordinator:
    values = torch.zeros(0) if public.purpose == "statistics" else start()
    settings = RoundSettings(deadline=20.0, patience=5.0, seed=seed)
    return Coordinator(
        run, public, values, NAMES, link, settings, checkpoint=folder / run, heads=folder / "heads.json"
    )  # fmt: skip


def test_three_purposes_in_one_study(tmp_path: Path) -> None:
    """Statistics, training and evaluation by real agents, one after the other; every ledger is good in the end."""
    with agents(tmp_path) as made:
        link = Local(made)
        counted = coordinator(tmp_path, COUNTED, link, "statistics").release()
        trained = coordinator(tmp_path, TRAINED, link, "training").go()
        tested = coordinator(tmp_path, TESTED, link, "evaluation").release()
    assert (counted.silos, tested.silos) == (NAMES, NAMES)
    assert len(trained.rounds) == 2
    for found, each in ((counted, RECORDS), (tested, HELD.sum())):
        assert (found.answered == 3).all()
        assert (np.abs(found.sums[:, 0] - 3 * each) < 6 * found.noise_std).all()
    for name in NAMES:
        with Ledger.read(tmp_path / f"{name}.db") as ledger:
            assert ledger.verify().is_good
            purposes = [one.purpose for one in ledger.overview().runs]
            assert sorted(purposes) == ["evaluation", "statistics", "training"]
            assert ledger.explain("r0").share_used <= 1.0


def test_agents_release_what_the_simulator_releases(tmp_path: Path) -> None:
    """The same class, bit for bit."""
    with agents(tmp_path, seed=7) as made:
        found = coordinator(tmp_path, COUNTED, Local(made), RUN, seed=7).release()
    silos = [
        Silo(name, one.held, one.budgets, policy=POLICY, measured=one.measured, held_out=HELD)
        for name, one in ((name, making(name)) for name in NAMES)
    ]
    simulated = release_sums(COUNTED, silos, seed=7)
    for name in NAMES:
        np.testing.assert_array_equal(found.by_silo[name], simulated.by_silo[name])


def test_a_server_that_was_killed_gets_the_same_numbers_again(tmp_path: Path) -> None:
    """After round 1 of 2, and again when the run is over: nothing is charged or released twice."""
    with agents(tmp_path) as made:
        link = Local(made)
        first: list[ReleasedSums] = []

        def killed(_: object) -> None:
            first.append(ReleasedSums(RUN, COUNTED, dict(stopped._server.released), None))  # type: ignore[attr-defined]
            raise KeyboardInterrupt

        stopped = coordinator(tmp_path, COUNTED, link, RUN)
        with pytest.raises(KeyboardInterrupt):
            stopped.release(killed)
        found = coordinator(tmp_path, COUNTED, link, RUN).release()
        again = coordinator(tmp_path, COUNTED, link, RUN).release()
        assert {agent.silo.announced(RUN) for agent in made.values() if agent} == {2}
    for name in NAMES:
        np.testing.assert_array_equal(found.by_silo[name][0], first[0].by_silo[name][0])
        np.testing.assert_array_equal(found.by_silo[name], again.by_silo[name])


def test_a_silo_whose_sums_do_not_fit_is_left_out_by_name(tmp_path: Path) -> None:
    class Broken(Local):
        def answered(self, address: str, request: Frame, answer: Callable[[], Frame]) -> Frame:
            given = answer()
            if address == "at b" and given.kind == "update":
                numbers = Update.from_bytes("b", given.payload).change[:4]
                return Frame(given.facts, Update("b", request.facts["round"], numbers).to_bytes())
            return given

    logs: list[RoundLog] = []
    with agents(tmp_path) as made:
        found = coordinator(tmp_path, COUNTED, Broken(made), RUN).release(logs.append)
    assert [log.joined for log in logs] == [("a", "c")] * 2
    assert "shape (4,)" in logs[0].rejected["b"]
    assert np.isnan(found.by_silo["b"]).all()
    np.testing.assert_array_equal(found.sums, found.by_silo["a"] + found.by_silo["c"])


class TestTime:
    class Endless(Bins):
        def cells(self, request: Request, values: torch.Tensor, rows: np.ndarray) -> Cells:
            time.sleep(600.0)
            raise AssertionError

    def test_code_that_does_not_end_is_ended_and_the_round_sits_out(self, tmp_path: Path) -> None:
        made = making(source=self.Endless(RECORDS), timing=Timing(1.0))
        with admitted(tmp_path, made, {RUN: COUNTED}) as agent:
            began = time.monotonic()
            assert told(agent, announcement(COUNTED, 1, size=0, head=head_of(agent))).kind == "sat-out"
            assert time.monotonic() - began < 20.0
            assert told(agent, announcement(COUNTED, 1, size=0, head=head_of(agent))).kind == "sat-out"
            assert status(agent).released == ()
            assert agent.silo.account.verify().is_good  # type: ignore[attr-defined]

    def test_a_record_that_fails_is_not_seen(self, tmp_path: Path) -> None:
        with admitted(tmp_path, making(source=Bins(RECORDS, failing=[7])), {RUN: COUNTED}) as agent:
            assert told(agent, announcement(COUNTED, 1, size=0, head=head_of(agent))).kind == "update"

    def test_code_for_one_purpose_is_enough(self, tmp_path: Path) -> None:
        """An agent without models answers statistics, and trains nothing."""
        with opened(tmp_path, making(has_model=False)) as agent:
            assert agent.most_payload == 0
            assert told(agent, admission(COUNTED)).kind == "admitted"
            assert told(agent, announcement(COUNTED, 1, size=0, head=head_of(agent))).kind == "update"
            assert reason(told(agent, admission(TRAINED, "other", head=head_of(agent)))) == Reason.MODEL


# The hostile server

WIDE = make_asked(request=Request("everyone", (MeasureSpec("histogram", 6),)))
OTHER = make_asked(2, noise_multiplier=3.0)


def _round(public: PublicPlan = COUNTED, number: int = 1, size: int = 0, **changes: Any) -> Asking:
    def frame(agent: Agent) -> Frame:
        good = announcement(public, number, size=size, head=head_of(agent))
        return Frame({**good.facts, **changes}, good.payload)

    return frame


def _admit(public: PublicPlan, run: str = "new", **changes: Any) -> Asking:
    def frame(agent: Agent) -> Frame:
        facts = admission(public, run, head=head_of(agent)).facts
        return Frame({**facts, "plan": {**facts["plan"], **changes}})

    return frame


def _unnamed(public: PublicPlan) -> PublicPlan:
    return replace(public, model_fingerprint=None)


HOSTILE: dict[str, tuple[Asking, Reason]] = {
    "a model for statistics": (_round(size=SIZE), Reason.SHAPE),
    "one number too many": (_round(size=1), Reason.SHAPE),
    "a correction for statistics": (_round(correction=True), Reason.SHAPE),
    "no model for an evaluation": (_round(TESTED, run="tested"), Reason.SHAPE),
    "half a model for an evaluation": (_round(TESTED, size=SIZE - 1, run="tested"), Reason.SHAPE),
    "a round of statistics with the plan of an evaluation": (_round(plan=TESTED.fingerprint), Reason.PLAN),
    "a round with another request": (_round(plan=OTHER.fingerprint), Reason.PLAN),
    "round 0": (_round(number=0), Reason.ROUND),
    "more rounds than were asked for": (_round(number=3), Reason.ROUND),
    "a run that was never admitted": (_round(run="never"), Reason.RUN),
    "the run again with another request": (_admit(OTHER, RUN), Reason.PLAN),
    "a request that the silo's code refuses": (_admit(WIDE), Reason.POLICY),
    "a request for a purpose that is not answered": (_admit(_unnamed(TESTED)), Reason.MODEL),
    "statistics of a model": (_admit(replace(COUNTED, model_fingerprint="0" * 64)), Reason.MODEL),
    "a request with another fingerprint": (_admit(COUNTED, fingerprint="0" * 64), Reason.PLAN),
    "a training plan with a request": (_admit(COUNTED, purpose="training"), Reason.MALFORMED),
    "statistics without a request": (_admit(TRAINED, purpose="statistics"), Reason.MALFORMED),
    "a request of no measures": (_admit(COUNTED, request={"estimator": "everyone", "measures": []}), Reason.MALFORMED),
    "a request of four million and one cells": (
        _admit(
            COUNTED, request={"estimator": "everyone", "measures": [{"kind": "a", "size": 4194305, "settings": {}}]}
        ),
        Reason.MALFORMED,
    ),
    "an estimator of its own": (_admit(COUNTED, request={**TWO.plain(), "estimator": "all"}), Reason.MALFORMED),
    "a smaller clip norm": (_admit(COUNTED, clip_norm=0.1), Reason.MALFORMED),
    "a weight for the sum": (_admit(COUNTED, weights=1e-9), Reason.MALFORMED),
}


def test_what_a_hostile_server_asks_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with admitted(tmp_path, making(), {RUN: COUNTED, "tested": TESTED}) as agent:
        before = agent.silo.account.status(), head_of(agent)
        for name, (asking, word) in HOSTILE.items():
            frame = asking(agent)
            assert (name, reason(agent.answer(frame))) == (name, str(word))
        assert (agent.silo.account.status(), head_of(agent)) == before
        assert agent.silo.account.verify().is_good  # type: ignore[attr-defined]


def test_a_round_asked_again_gets_the_same_bytes_whatever_is_said(tmp_path: Path) -> None:
    """Also with another model, and after a restart; fresh noise on the same sums would tell them."""
    with admitted(tmp_path, making(), {"tested": TESTED}) as agent:
        first = [told(agent, _round(TESTED, size=SIZE, run="tested")(agent)) for _ in range(3)]
        other = announcement(TESTED, 1, 7.0, run="tested", head=head_of(agent))
        first.append(told(agent, other))
    with opened(tmp_path, making()) as agent:
        assert told(agent, admission(TESTED, "tested", head=head_of(agent))).kind == "admitted"
        first.append(told(agent, _round(TESTED, size=SIZE, run="tested")(agent)))
    assert {answer.kind for answer in first} == {"update"}
    assert len({answer.payload for answer in first}) == 1


def test_what_is_reserved_for_training_is_not_open_to_statistics(tmp_path: Path) -> None:
    policy = replace(POLICY, reserved={"training": 0.9}, max_share_per_run=1.0)
    with admitted(tmp_path, replace(making(), policy=policy), {RUN: make_asked(noise_multiplier=0.5)}) as agent:
        assert (agent.silo.plan.cost <= 0.1 * 20.0 * (1.0 + 1e-9)).all()
