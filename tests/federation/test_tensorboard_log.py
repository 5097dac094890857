"""What TensorBoard gets of a run: the public log of every round, and not a number more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rpdp import TensorBoardLog
from tests.federation.simulations import run

if TYPE_CHECKING:
    from pathlib import Path


def test_a_run_is_written_round_by_round(tmp_path: Path) -> None:
    with TensorBoardLog(tmp_path / "first") as log:
        result = run(on_round=log)
    events = EventAccumulator(str(tmp_path / "first")).Reload()
    written = {name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]}
    assert set(written) == {"silos/joined", "silos/rejected", "round/seconds", "test/accuracy"}
    assert [step for step, _ in written["silos/joined"]] == [1, 2, 3, 4, 5]
    assert [value for _, value in written["silos/joined"]] == [len(entry.joined) for entry in result.rounds]
    assert written["test/accuracy"][-1][1] == pytest.approx(result.rounds[-1].score["accuracy"])  # type: ignore[index]


def test_a_run_without_test_records_has_no_metrics(tmp_path: Path) -> None:
    with TensorBoardLog(tmp_path) as log:
        run(on_round=log, evaluation=None)
    tags = EventAccumulator(str(tmp_path)).Reload().Tags()["scalars"]
    assert not [name for name in tags if name.startswith("test/")]
