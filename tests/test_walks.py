"""The two walks of docs/architecture.md are what the code does: their stops are entered, in that order."""

from __future__ import annotations

import itertools
import re
import sys
import tempfile
import threading
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.deployment.agent.federations import PUBLIC, agents, coordinator
from tests.deployment.agent.links import Local
from tests.studies.steward import Steward

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
BUDGET, ROUND = "A budget, from its file to the report", "A round in production"
MOST_STOPS, MOST_CHANGES = 30, 14
OVER_FLOWER = ("deployment.flower", "agent_client", "socket_service", "ledger.")
"""Stops of a round that agents in this process, asked without Flower and with accounts in memory, do not enter."""


def walk(heading: str) -> list[str]:
    """The stops listed below a heading: `rpdp.package.module:Class.function`."""
    section = (
        PAGE.read_text(encoding="utf-8").partition(f"### {heading}\n")[2].partition("\n### ")[0].partition("\n## ")[0]
    )
    return re.findall(r"^\d+\. `([\w.]+:[\w.]+)`", section, flags=re.MULTILINE)


def changes(stops: Sequence[str]) -> int:
    """How often the next stop is in another top-level package."""
    rooms = [stop.split(":")[0].split(".")[1] for stop in stops]
    return sum(before != after for before, after in itertools.pairwise(rooms))


def entered(work: Callable[[], object], stops: Sequence[str]) -> list[str]:
    """Which of the stops the work enters, in order, in every thread and every process that it forks."""
    wanted = set(stops)
    with tempfile.NamedTemporaryFile() as seen:

        def note(frame: FrameType, event: str, argument: Any) -> None:
            if event == "call":
                name = f"{frame.f_globals.get('__name__')}:{frame.f_code.co_qualname}"
                if name in wanted:
                    # By name: a process that trains has let go of every file that it inherited.
                    with Path(seen.name).open("a", encoding="utf-8") as file:
                        file.write(f"{name}\n")

        threading.setprofile(note)
        sys.setprofile(note)
        try:
            work()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        return Path(seen.name).read_text(encoding="utf-8").splitlines()


def assert_in_order(stops: Sequence[str], seen: Sequence[str]) -> None:
    calls = iter(seen)
    for number, stop in enumerate(stops, 1):
        assert any(call == stop for call in calls), f"stop {number}, {stop}, is not entered after the one before it"


@pytest.fixture
def steward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Steward:
    monkeypatch.chdir(tmp_path)
    return Steward(tmp_path, capsys)


@pytest.mark.parametrize("heading", [BUDGET, ROUND])
def test_a_walk_is_short_and_its_stops_exist(heading: str) -> None:
    stops = walk(heading)
    assert 10 <= len(stops) <= MOST_STOPS
    assert changes(stops) <= MOST_CHANGES
    for stop in stops:
        module, _, name = stop.partition(":")
        value = import_module(module)
        for part in name.split("."):
            value = getattr(value, part)


def test_a_budget_walks_from_its_file_to_the_report(steward: Steward) -> None:
    steward.creates()
    study, stops = steward.writes(), walk(BUDGET)
    seen = entered(lambda: steward.types("train", study), stops)
    assert_in_order(stops, seen)
    with pytest.raises(AssertionError, match="is not entered after the one before it"):
        assert_in_order([stops[1], stops[0], *stops[2:]], seen)  # the control: the order matters


def test_a_round_walks_from_the_server_to_a_silo_and_back(tmp_path: Path) -> None:
    stops = [stop for stop in walk(ROUND) if not any(part in stop for part in OVER_FLOWER)]
    assert len(stops) > 18
    # The agent is made inside, so that the process in which it trains is seen too.
    seen = entered(lambda: coordinator(tmp_path, PUBLIC, Local(agents(PUBLIC, ("a",))), ("a",)).go(), stops)
    assert_in_order(stops, seen)
    with pytest.raises(AssertionError, match="is not entered after the one before it"):
        assert_in_order([*stops, stops[0]], seen)  # the control: a run begins once
