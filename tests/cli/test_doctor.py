"""`rpdp doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.studies.toy import Change, write_run

if TYPE_CHECKING:
    from tests.cli.conftest import Command


def test_a_run_that_can_start(rpdp: Command, tmp_path: Path) -> None:
    done = rpdp("doctor", write_run(tmp_path))
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("This run can start (1 warning).\n")  # few steps: many are rarely drawn
    assert "ok       data: 120 training records in 3 silos (40)" in done.out
    told = rpdp("doctor", tmp_path / "run.toml", "--seed", 3, "--method", "minimum", "--json").json
    assert (told["runnable"], told["exit_code"]) == (True, 0)
    assert {finding["level"] for finding in told["findings"]} <= {"ok", "warning"}
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("change", "code", "expected"),
    [
        (("task.model", "batchnorm"), 3, "problem  model: 1: BatchNorm1d"),
        (("task.model", "Hard"), 2, "problem  model: the model is not differentiable"),
        (("task.data", "one_empty"), 2, "problem  data: silo b"),
    ],
)
def test_a_run_that_cannot(rpdp: Command, tmp_path: Path, change: Change, code: int, expected: str) -> None:
    done = rpdp("doctor", write_run(tmp_path, change))
    assert done.code == code
    assert expected in done.out
    assert "This run cannot start: 1 problem." in done.out
    told = rpdp("doctor", tmp_path / "run.toml", "--json")
    assert told.code == told.json["exit_code"] == code
    assert told.json["runnable"] is False


def test_advice(rpdp: Command, tmp_path: Path) -> None:
    done = rpdp("doctor", write_run(tmp_path, ("task.data", "with_nan")))
    assert done.code == 0
    assert "warning  data: NaN or infinite values in records of b: 2 → such a record contributes nothing" in done.out


def test_a_run_file_that_is_wrong(rpdp: Command, tmp_path: Path) -> None:
    refused = rpdp("doctor", write_run(tmp_path, ("privacy.clip_norm", "0")))
    assert refused.code == 2
    assert "privacy.clip_norm=0.0 must be positive" in refused.err
