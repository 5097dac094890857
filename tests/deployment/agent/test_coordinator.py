"""A run over agents: the same model as the simulator's, the same run after a crash, and silos that come and go."""

from __future__ import annotations

import itertools
import shutil
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from rpdp.errors import InputError, RpdpError
from rpdp.federation.heads import read_heads
from rpdp.training import FlatModel
from tests.deployment.agent.federations import (
    NAMES,
    PUBLIC,
    SEED,
    agents,
    coordinator,
    making,
    plan,
    rounds,
    simulated,
    start,
)
from tests.deployment.agent.links import Local
from tests.deployment.agent.scene import in_memory, opened
from tests.federation.world import evaluation, make_ids, make_model, make_recipe

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor

    from rpdp.federation import RoundLog
    from rpdp.federation.frames import Frame


# The simulator's model


@pytest.mark.parametrize("backbone", ["fedavg", "scaffold", "fedadam", "fedprox"])
def test_a_seeded_run_over_agents_is_the_simulators_to_the_last_bit(tmp_path: Path, backbone: str) -> None:
    public = plan(backbone)
    expected = simulated(public)
    result = coordinator(tmp_path, public, Local(agents(public))).go()
    assert torch.equal(result.values, expected.values)
    assert rounds(result) == rounds(expected)
    assert (result.seed, result.is_simulation, result.run) == (SEED, True, "run")
    assert not torch.equal(result.values, start())
    assert {len(log.joined) for log in result.rounds} != {3}  # coins were flipped


def test_averaged_rounds_are_the_simulators_too(tmp_path: Path) -> None:
    public = replace(PUBLIC, recipe=replace(make_recipe("fedavg"), averaged_rounds=3))
    result = coordinator(tmp_path, public, Local(agents(public))).go()
    assert torch.equal(result.values, simulated(public).values)


def test_another_seed_makes_another_model(tmp_path: Path) -> None:
    """The control of the equalities."""
    other = {f"at {name}": in_memory(replace(making(PUBLIC, name), seed=SEED + 1)) for name in NAMES}
    result = coordinator(tmp_path, PUBLIC, Local(other)).go()
    assert not torch.equal(result.values, simulated(PUBLIC).values)


def test_every_round_is_scored_and_logged(tmp_path: Path) -> None:
    model, public_records = FlatModel(make_model()), evaluation(NAMES)

    def score(values: Tensor) -> Any:
        model.values.data.copy_(values)
        return public_records.measure(model)

    seen: list[RoundLog] = []
    result = coordinator(tmp_path, PUBLIC, Local(agents(PUBLIC)), score=score).go(seen.append)
    assert seen == list(result.rounds)
    assert result.score is not None
    assert all(log.score is not None for log in seen)


# Crashes of the server


class Stop(Exception):
    """As if the server's process had died."""


def stopping(after: int) -> Callable[[RoundLog], None]:
    def on_round(log: RoundLog) -> None:
        if log.round == after:
            raise Stop

    return on_round


@pytest.mark.parametrize("backbone", ["fedavg", "scaffold", "fedadam"])
def test_a_server_that_stops_after_any_round_goes_on_to_the_same_model(tmp_path: Path, backbone: str) -> None:
    public = plan(backbone)
    link = Local(agents(public))
    for after in (1, 3, 4):
        with pytest.raises(Stop):
            coordinator(tmp_path, public, link).go(stopping(after))
    result = coordinator(tmp_path, public, link).go()
    expected = simulated(public)
    assert torch.equal(result.values, expected.values)
    assert rounds(result) == rounds(expected)


class Dying(Local):
    """A link that breaks at the nth frame, before or after the agent has answered it."""

    def __init__(self, link: Local, at: int, *, after: bool) -> None:
        super().__init__(link.agents)
        self._left, self._after = at, after

    def answered(self, address: str, request: Frame, answer: Callable[[], Frame]) -> Frame:
        self._left -= 1
        if self._left == 0 and not self._after:
            raise Stop
        given = answer()
        if self._left == 0:
            raise Stop
        return given


@pytest.mark.parametrize("after", [True, False], ids=["answered", "not answered"])
@pytest.mark.parametrize("backbone", ["scaffold"])
def test_a_server_that_stops_within_a_round_goes_on_to_the_same_model(
    tmp_path: Path, backbone: str, after: bool
) -> None:
    """Whichever frame it was: silos that had finished send the same bytes, the others have not heard of the round."""
    public = plan(backbone, rounds=4)
    expected = simulated(public)
    for at in (1, 3, 4, 7, 8, 9, 12, 17, 18):  # of 3 hellos, 3 admissions, 4 rounds of 3
        folder = tmp_path / str(at)
        link = Local(agents(public))
        with pytest.raises(Stop):
            coordinator(folder, public, Dying(link, at, after=after)).go()
        result = coordinator(folder, public, link).go()
        assert torch.equal(result.values, expected.values), at
        assert rounds(result) == rounds(expected)


def test_a_run_that_is_over_is_not_run_again(tmp_path: Path) -> None:
    link = Local(agents(PUBLIC))
    first = coordinator(tmp_path, PUBLIC, link).go()
    link.agents = {}
    again = coordinator(tmp_path, PUBLIC, link).go()
    assert torch.equal(again.values, first.values)
    assert rounds(again) == rounds(first)


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    link = Local(agents(PUBLIC))
    with pytest.raises(Stop):
        coordinator(tmp_path, PUBLIC, link).go(stopping(1))
    with pytest.raises(InputError, match="belongs to another run"):
        coordinator(tmp_path, replace(PUBLIC, normaliser=11.0), link).go()


# Silos that come and go


def test_a_silo_that_is_away_costs_its_own_updates_only(tmp_path: Path) -> None:
    """Weighted means of the others; the rounds it missed are charged when it is back."""
    link = Local(agents(PUBLIC))
    held = link.agents["at 1"]
    assert held is not None

    def come_and_go(log: RoundLog) -> None:
        link.hidden = {"at 1"} if log.round in (2, 3) else set()

    result = coordinator(tmp_path, PUBLIC, link).go(come_and_go)
    expected = {log.round: log.joined for log in simulated(PUBLIC).rounds}
    for log in result.rounds:
        away = log.round in (3, 4)
        assert log.joined == tuple(name for name in expected[log.round] if not (away and name == "b"))
    status = held.silo.account.status().runs[0]
    assert status.announced == 6
    assert not {3, 4} & set(status.joined)


def test_an_agent_that_cannot_be_reached_is_away(tmp_path: Path) -> None:
    link = Local(agents(PUBLIC))
    held = link.agents["at 0"]

    def come_and_go(log: RoundLog) -> None:
        link.agents["at 0"] = None if log.round in (2, 3) else held

    result = coordinator(tmp_path, PUBLIC, link).go(come_and_go)
    assert len(result.rounds) == 6
    assert all("a" not in log.joined for log in result.rounds if log.round in (3, 4))


def test_silos_may_come_late(tmp_path: Path) -> None:
    link = Local(agents(PUBLIC))
    link.hidden = {"at 2"}

    def come(log: RoundLog) -> None:
        link.hidden = set() if log.round == 2 else link.hidden

    result = coordinator(tmp_path, PUBLIC, link, least_silos=2, patience=0.2).go(come)
    expected = {log.round: log.joined for log in simulated(PUBLIC).rounds}
    assert [log.joined for log in result.rounds if log.round > 2] == [expected[number] for number in range(3, 7)]


def test_too_few_silos_do_not_start(tmp_path: Path) -> None:
    link = Local(agents(PUBLIC))
    link.hidden = {"at 0", "at 2"}
    with pytest.raises(RpdpError, match=r"1 of 3 silos are ready after 0.2 s, but 3 are needed; missing: a: .*; c: "):
        coordinator(tmp_path, PUBLIC, link, patience=0.2).go()
    with pytest.raises(RpdpError, match="2 are needed"):
        coordinator(tmp_path, PUBLIC, link, patience=0.2, least_silos=2).go()
    assert not (tmp_path / "checkpoint").exists()


def test_an_agent_that_is_restarted_within_a_round_is_admitted_again(tmp_path: Path) -> None:
    """With a ledger on disk it goes on; the model is the simulator's, as no round was lost."""
    ledgers = ExitStack()
    with ExitStack() as stack:
        link = Local({f"at {name}": stack.enter_context(opened(tmp_path, making(PUBLIC, name))) for name in "ac"})
        link.agents["at b"] = ledgers.enter_context(opened(tmp_path, making(PUBLIC, "b")))

        def restart(log: RoundLog) -> None:
            if log.round in (2, 4):
                ledgers.close()
                link.agents["at b"] = ledgers.enter_context(opened(tmp_path, making(PUBLIC, "b")))

        result = coordinator(tmp_path, PUBLIC, link).go(restart)
        ledgers.close()
    assert torch.equal(result.values, simulated(PUBLIC).values)
    assert [kind for address, kind in link.asked if address == "at b"].count("admit") == 3


def test_a_ledger_that_was_rolled_back_sits_the_rest_of_the_run_out(tmp_path: Path) -> None:
    """The server's head tells; the others go on."""
    backup = tmp_path / "backup"
    ledgers = ExitStack()
    with ExitStack() as stack:
        link = Local({f"at {name}": stack.enter_context(opened(tmp_path, making(PUBLIC, name))) for name in "ac"})
        home = tmp_path / "b"
        home.mkdir()
        link.agents["at b"] = ledgers.enter_context(opened(home, making(PUBLIC, "b")))

        def roll_back(log: RoundLog) -> None:
            if log.round == 1:
                ledgers.close()
                shutil.copytree(home, backup)
                link.agents["at b"] = ledgers.enter_context(opened(home, making(PUBLIC, "b")))
            if log.round == 3:
                ledgers.close()
                link.agents["at b"] = ledgers.enter_context(opened(backup, making(PUBLIC, "b")))

        result = coordinator(tmp_path, PUBLIC, link).go(roll_back)
        ledgers.close()
    assert [dict(log.rejected) for log in result.rounds] == [{}] * 3 + [{"b": "refused: head"}] * 3


def test_heads_are_kept_after_every_round(tmp_path: Path) -> None:
    with ExitStack() as stack:
        link = Local({f"at {name}": stack.enter_context(opened(tmp_path, making(PUBLIC, name))) for name in NAMES})
        counts: list[int] = []

        def look(log: RoundLog) -> None:
            heads = read_heads(tmp_path / "heads.json")
            assert sorted(heads) == list(NAMES)
            for name in NAMES:
                agent = link.agents[f"at {name}"]
                assert agent is not None
                assert heads[name] == agent.silo.account.public_head()
            counts.append(sum(head.count for head in heads.values()))

        coordinator(tmp_path, PUBLIC, link).go(look)
    assert counts == sorted(counts)


def test_ids_of_records_do_not_matter_to_the_server() -> None:
    """The control of `making`: three silos with different records, under the same ids, each with its own ledger."""
    held = [making(PUBLIC, name).held.inputs[0] for name in NAMES]
    assert all(not torch.equal(one, other) for one, other in itertools.combinations(held, 2))
    assert {making(PUBLIC, name).budgets.ids.to_pylist() == make_ids(30) for name in NAMES} == {True}
