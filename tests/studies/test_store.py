"""A run written to files and read back is the same run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from rpdp.errors import InputError, TamperedPlanError
from rpdp.studies.building import build
from rpdp.studies.execution import execute
from rpdp.studies.run_directory import is_finished, read_result, read_summary, write_result
from rpdp.studies.study_file import StudyFile
from tests.studies.toy import write_run

if TYPE_CHECKING:
    from torch import nn

    from rpdp.federation import RunResult


@pytest.fixture(params=["rpdp", "privacy_free"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[RunResult, nn.Module, Path]:
    spec = StudyFile.read(write_run(tmp_path, ("task.model", "deep"), ("schedule.participation", "0.5")))
    built = build(spec, spec.settings(request.param), 1)
    result = execute(built, workers=1)
    write_result(result, built.model, tmp_path / "out")
    return result, built.model, tmp_path / "out"


def test_what_is_read_is_what_was_written(stored: tuple[RunResult, nn.Module, Path]) -> None:
    result, _, directory = stored
    read = read_result(directory)
    assert torch.equal(read.values, result.values)
    assert read.public == result.public
    for name in ("run", "method", "seed", "seconds", "rounds"):
        assert getattr(read, name) == getattr(result, name)
    assert read.silos.keys() == result.silos.keys()
    for name, view in result.silos.items():
        other = read.silos[name]
        assert other.plan.fingerprint == view.plan.fingerprint
        assert other.plan.public is read.public
        assert (other.joined, other.overdrawn) == (view.joined, view.overdrawn)
        for column in ("draws", "expected_draws", "correct"):
            assert np.array_equal(getattr(other, column), getattr(view, column))


def test_the_model_can_be_loaded_by_name(stored: tuple[RunResult, nn.Module, Path]) -> None:
    result, model, directory = stored
    model.load_state_dict(load_file(directory / "model.safetensors"))
    assert torch.equal(torch.nn.utils.parameters_to_vector(model.parameters()).detach(), result.values)


def test_what_is_read_knows_values_and_no_module(stored: tuple[RunResult, nn.Module, Path]) -> None:
    result, model, directory = stored
    read = read_result(directory)
    with pytest.raises(InputError, match="load_into"):
        _ = read.model
    loaded, kept = (dict(each.named_parameters()) for each in (read.load_into(model), result.model))
    assert all(torch.equal(loaded[name], kept[name]) for name in kept)


def test_the_public_part_names_no_record(stored: tuple[RunResult, nn.Module, Path]) -> None:
    _, _, directory = stored
    for name in ("result.json", "rounds.jsonl", "public-plan.json"):
        text = (directory / name).read_text()
        assert not any(f'"{silo}-{row}"' in text for silo in "abc" for row in range(40))
        assert "draws" not in text
        assert "overdrawn" not in text
    lines = [json.loads(line) for line in (directory / "rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3]


@pytest.mark.parametrize("name", ["public-plan.json", "rounds.jsonl", "model.safetensors", "silo/b/draws.parquet"])
def test_a_missing_file_is_named(stored: tuple[RunResult, nn.Module, Path], name: str) -> None:
    directory = stored[2]
    (directory / name).unlink()
    with pytest.raises(InputError, match=Path(name).name):
        read_result(directory)


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"format": "rpdp-run/1"}'])
def test_a_damaged_result(stored: tuple[RunResult, nn.Module, Path], content: str) -> None:
    directory = stored[2]
    (directory / "result.json").write_text(content)
    with pytest.raises(InputError, match=r"damaged|not the result of a run"):
        read_result(directory)


def test_a_plan_of_another_run_is_refused(stored: tuple[RunResult, nn.Module, Path]) -> None:
    directory = stored[2]
    plan = directory / "public-plan.json"
    plan.write_text(plan.read_text().replace('"delta": 0.001', '"delta": 0.002'))
    with pytest.raises(TamperedPlanError, match="altered"):
        read_result(directory)


def test_unfinished_until_the_last_file(stored: tuple[RunResult, nn.Module, Path]) -> None:
    directory = stored[2]
    assert is_finished(directory)
    assert read_summary(directory)["parameters"] == 21
    (directory / "result.json").unlink()
    assert not is_finished(directory)
    with pytest.raises(InputError, match="not a finished run"):
        read_summary(directory)


def test_a_directory_may_be_a_text(stored: tuple[RunResult, nn.Module, Path]) -> None:
    result, model, directory = stored
    copy = f"{directory}-copy"
    write_result(result, model, copy)
    assert is_finished(copy)
    assert read_summary(copy) == read_summary(directory)
    assert read_result(copy).run == result.run
