"""An agent that was stopped or killed: it goes on where its ledger stands, with the same answers to the same rounds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.deployment.agent.scene import (
    Making,
    admission,
    announcement,
    head_of,
    opened,
    public_plan,
    reason,
    status,
    told,
)

if TYPE_CHECKING:
    from pathlib import Path

PUBLIC = public_plan()
COINS = public_plan(12, participation=0.5)
MAKING = Making(PUBLIC)


def test_a_restarted_agent_goes_on_where_its_ledger_stands(tmp_path: Path) -> None:
    with opened(tmp_path, Making(COINS)) as agent:
        told(agent, admission(COINS))
        first = {number: told(agent, announcement(COINS, number)) for number in range(1, 7)}
        known = head_of(agent)
    with opened(tmp_path, Making(COINS)) as agent:
        assert reason(told(agent, announcement(COINS, 3))) == "run"  # it does not know the run before it is told
        assert told(agent, admission(COINS, head=known)).kind == "admitted"
        assert head_of(agent) == known
        for number, before in first.items():
            again = told(agent, announcement(COINS, number, 1.0, head=known))
            assert (again.kind, again.payload) == (before.kind, before.payload)
        assert status(agent).announced == 6
        told(agent, announcement(COINS, 7, head=known))
        assert status(agent).announced == 7


def test_a_restarted_agent_admits_no_other_plan_under_the_same_name(tmp_path: Path) -> None:
    with opened(tmp_path, MAKING) as agent:
        told(agent, admission(PUBLIC))
    with opened(tmp_path, MAKING) as agent:
        assert reason(told(agent, admission(replace(PUBLIC, normaliser=11.0), head=head_of(agent)))) == "plan"
        assert told(agent, admission(PUBLIC, head=head_of(agent))).kind == "admitted"


class Killed(BaseException):
    """As if the process had died."""


def test_a_round_that_a_killed_agent_left_sits_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object) -> None:
        raise Killed

    with opened(tmp_path, MAKING) as agent:
        told(agent, admission(PUBLIC))
        monkeypatch.setattr(agent.silo, "compute", die)
        monkeypatch.setattr(agent.silo, "train", die)
        with pytest.raises(Killed):
            told(agent, announcement(PUBLIC, 1))
    with opened(tmp_path, MAKING) as agent:
        told(agent, admission(PUBLIC, head=head_of(agent)))
        assert told(agent, announcement(PUBLIC, 1)).kind == "sat-out"
        assert (status(agent).joined, status(agent).released) == ((1,), ())
        assert told(agent, announcement(PUBLIC, 2)).kind == "update"
