"""`rpdp silo check` refuses a `release_after` that a round can exceed because of a record."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rpdp.deployment.agent.checked_outlook import CheckedOutlook, require_time_to_plan
from rpdp.deployment.agent.slowest_rounds import require_enough_time, require_time_for_requests, slowest_requests
from rpdp.errors import PrivacyRefusal
from rpdp.federation.purposes import Purposes
from rpdp.statistics import ColumnSource
from tests.statistics.world import World


def silo_file(release_after: float | None) -> Any:
    policy = SimpleNamespace(release_after=release_after, max_local_steps=3)
    return SimpleNamespace(path=Path("silo.toml"), policy=policy)


def test_training_may_take_nine_tenths_of_the_public_time_and_no_more() -> None:
    require_enough_time(silo_file(10.0), {"small": 0.1, "large": 9.0})
    with pytest.raises(PrivacyRefusal, match=r"release_after=10 is too short: with model large .* Use release_after"):
        require_enough_time(silo_file(10.0), {"small": 9.01, "large": 9.1})


def test_the_time_that_is_advised_is_enough() -> None:
    seconds = {"only": 9.1}
    with pytest.raises(PrivacyRefusal) as refusal:
        require_enough_time(silo_file(1.0), seconds)
    advised = float(str(refusal.value).partition("Use release_after = ")[2].partition(",")[0])
    require_enough_time(silo_file(advised), seconds)


def test_planning_for_these_records_must_fit_into_the_public_time() -> None:
    """An admission plans twice that long: its answer would be late, and how late depends on the records."""
    require_time_to_plan(silo_file(10.0), CheckedOutlook("a plan", None, seconds=4.49))
    with pytest.raises(PrivacyRefusal, match=r"release_after=10 is too short: planning a run for these records"):
        require_time_to_plan(silo_file(10.0), CheckedOutlook("a plan", None, seconds=4.51))
    require_time_to_plan(silo_file(None), CheckedOutlook("a plan", None, seconds=1e6))


def test_without_a_public_time_no_round_is_too_slow() -> None:
    require_enough_time(silo_file(None), {"only": 1e6})
    require_time_for_requests(silo_file(None), {"statistics": 1e6})


def test_requests_may_take_nine_tenths_of_the_public_time_and_no_more() -> None:
    require_time_for_requests(silo_file(10.0), {"statistics": 0.1, "evaluation": 9.0})
    with pytest.raises(PrivacyRefusal, match=r"a request for evaluation can take up to 10\.1 s .* smaller max_cells"):
        require_time_for_requests(silo_file(10.0), {"statistics": 9.01, "evaluation": 9.1})


def test_the_slowest_request_of_every_purpose_is_measured() -> None:
    source = ColumnSource(World.make(50).columns)
    answering = Purposes("a", 50, {"statistics": source}, None)
    agent: Any = SimpleNamespace(silo=SimpleNamespace(purposes=answering))
    spec: Any = SimpleNamespace(silo=SimpleNamespace(threads=1), policy=SimpleNamespace(max_cells=100))
    found = slowest_requests(spec, agent)
    assert list(found) == ["statistics"]
    assert found["statistics"] > 0.0
