"""A run is paused, continued, given up: between rounds, with the same model at the end, and without a hold left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from rpdp.errors import InputError
from rpdp.federation.run_stops import GIVE_UP, PAUSE, StoppedRunError, ask_to_stop, go_on, is_running, stop_word
from tests.deployment.agent.federations import PUBLIC, agents, coordinator, simulated
from tests.deployment.agent.links import Local

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rpdp.federation import RoundLog
    from rpdp.federation.frames import Frame


def states(link: Local) -> set[str]:
    """Where the run stands at the silos."""
    return {
        one.state for agent in link.agents.values() if agent is not None for one in agent.silo.account.status().runs
    }


def test_a_paused_run_goes_on_to_the_same_model(tmp_path: Path) -> None:
    link = Local(agents(PUBLIC))

    def after_two(log: RoundLog) -> None:
        if log.round == 2:
            ask_to_stop(tmp_path, PAUSE)

    with pytest.raises(StoppedRunError, match=r"paused after 2 of 6 rounds; the same run id continues it$"):
        coordinator(tmp_path, PUBLIC, link, asked=lambda: stop_word(tmp_path)).go(after_two)
    with pytest.raises(StoppedRunError, match="paused after 2 of 6"):
        coordinator(tmp_path, PUBLIC, link, asked=lambda: stop_word(tmp_path)).go()
    go_on(tmp_path)
    result = coordinator(tmp_path, PUBLIC, link, asked=lambda: stop_word(tmp_path)).go()
    assert torch.equal(result.values, simulated(PUBLIC).values)


class AskedWhileHolding(Local):
    """The operator asks when the first silo holds the run."""

    folder: Path
    word = GIVE_UP

    def answered(self, address: str, request: Frame, answer: Callable[[], Frame]) -> Frame:
        given = answer()
        if given.kind == "admitted":
            ask_to_stop(self.folder, self.word)
        return given


def test_given_up_before_the_first_round_returns_all_holds(tmp_path: Path) -> None:
    link = AskedWhileHolding(agents(PUBLIC))
    link.folder = tmp_path
    with pytest.raises(
        StoppedRunError, match=r"given up after 0 of 6.*nobody is charged; cancelled at a, b, c"
    ) as said:
        coordinator(tmp_path, PUBLIC, link, asked=lambda: stop_word(tmp_path)).go()
    assert "Mend this" not in str(said.value)
    assert states(link) == {"cancelled"}
    with pytest.raises(InputError, match="its id never returns"):
        go_on(tmp_path)


def test_a_paused_run_that_silos_hold_is_given_up_by_another_server_process(tmp_path: Path) -> None:
    link = AskedWhileHolding(agents(PUBLIC))
    link.folder, link.word = tmp_path, PAUSE
    with pytest.raises(StoppedRunError, match="keep them until their holds end"):
        coordinator(tmp_path, PUBLIC, link, asked=lambda: stop_word(tmp_path)).go()
    assert states(link) == {"held"}
    ask_to_stop(tmp_path, GIVE_UP)
    ask_to_stop(tmp_path, PAUSE)  # too late
    with pytest.raises(StoppedRunError, match="cancelled at a, b, c"):
        coordinator(tmp_path, PUBLIC, link, asked=lambda: stop_word(tmp_path)).go()
    assert states(link) == {"cancelled"}


def test_given_up_after_it_has_begun_nothing_is_cancelled(tmp_path: Path) -> None:
    link = Local(agents(PUBLIC))
    with pytest.raises(StoppedRunError, match=r"given up after 1 of 6 rounds. What silos have charged stays charged"):
        coordinator(tmp_path, PUBLIC, link, asked=lambda: stop_word(tmp_path)).go(
            lambda _: ask_to_stop(tmp_path, GIVE_UP)
        )
    assert states(link) == {"committed"}
    assert "cancel" not in {kind for _, kind in link.asked}


def test_a_word_that_is_none(tmp_path: Path) -> None:
    assert stop_word(tmp_path) == ""
    assert not is_running(tmp_path)
    (tmp_path / "stop").write_text("tomorrow")
    with pytest.raises(InputError, match="'tomorrow' must be pause or give-up"):
        stop_word(tmp_path)
