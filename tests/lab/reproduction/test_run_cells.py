from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from rpdp_lab.reproduction.cell import RESULTS_VERSION, Cell, require_profile
from rpdp_lab.reproduction.cell_files import read_result
from rpdp_lab.reproduction.run_cells import run_cells
from rpdp_lab.reproduction.suites.table_2 import against_filter

import rpdp
from rpdp.errors import InputError
from tests.lab.reproduction.conftest import small_cell

if TYPE_CHECKING:
    from pathlib import Path

    from rpdp_lab.reproduction.run_cells import FinishedCell


def test_a_finished_cell_is_not_computed_again(tmp_path: Path) -> None:
    cell = small_cell()
    assert run_cells([cell], tmp_path).reused == 0
    _mark(cell, tmp_path)
    again = run_cells([cell], tmp_path)
    assert (again.reused, again.results[0].numbers) == (1, {"marked": True})
    assert "rdp" in run_cells([cell], tmp_path, force=True).results[0].numbers


def test_a_cell_of_another_profile_is_not_computed_again(tmp_path: Path) -> None:
    run_cells([small_cell()], tmp_path)
    _mark(small_cell(), tmp_path)
    larger = replace(small_cell(), profile="cpu")
    found = run_cells([larger], tmp_path)
    assert (found.reused, found.results[0].numbers, found.results[0].profile) == (1, {"marked": True}, "cpu")
    other = replace(small_cell(noise_multiplier=4.0), profile="full")
    assert run_cells([other], tmp_path).reused == 0  # the same name, other settings


@pytest.mark.parametrize("any_version", [False, True])
def test_results_of_another_version_count_only_if_wanted(tmp_path: Path, any_version: bool) -> None:
    cell = small_cell()
    run_cells([cell], tmp_path)
    _mark(cell, tmp_path, results_version=RESULTS_VERSION + 1)
    found = run_cells([cell], tmp_path, any_version=any_version)
    assert (found.results[0].numbers == {"marked": True}) is any_version
    other = run_cells([small_cell(delta=1e-4)], tmp_path, any_version=any_version)
    assert other.reused == 0  # other settings are another computation, whatever the version


def test_other_settings_are_computed_again(tmp_path: Path) -> None:
    run_cells([small_cell()], tmp_path)
    found = run_cells([small_cell(noise_multiplier=4.0)], tmp_path)
    assert found.reused == 0
    assert found.results[0].settings["noise_multiplier"] == 4.0


def test_a_damaged_file_is_computed_again(tmp_path: Path) -> None:
    cell = small_cell()
    run_cells([cell], tmp_path)
    cell.path(tmp_path).write_text('{"format": "rpdp-repro', encoding="utf-8")
    assert run_cells([cell], tmp_path).reused == 0


def test_two_processes_find_the_same_as_one(tmp_path: Path) -> None:
    cells = [small_cell(name, noise_multiplier=sigma) for name, sigma in (("a", 1.0), ("b", 2.0), ("c", 3.0))]
    told: list[FinishedCell] = []
    alone = run_cells(cells, tmp_path / "one")
    both = run_cells(cells, tmp_path / "two", jobs=2, on_cell=told.append)
    assert [found.numbers for found in both.results] == [found.numbers for found in alone.results]
    assert [progress.done for progress in told] == [1, 2, 3]
    assert {progress.result.name for progress in told} == {"a", "b", "c"}


def test_what_two_suites_share_is_computed_once(tmp_path: Path) -> None:
    told: list[FinishedCell] = []
    found = run_cells([small_cell(), small_cell()], tmp_path, on_cell=told.append)
    assert (len(found.results), len(told)) == (1, 1)


def test_missing_data_skip_a_cell_and_say_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RPDP_DATA", str(tmp_path / "nothing"))
    settings = {"task": "heart", "steps": 1, "filter_steps": 1, "split": 0, "seed": 0, "method": "plain SGD"}
    cell = Cell("toy", "part", "no-data", against_filter, settings)
    found = run_cells([cell, small_cell()], tmp_path)
    assert [each.skipped is None for each in found.results] == [False, True]
    assert "heart_disease/processed.cleveland.data not found" in str(found.skipped[0].skipped)
    assert run_cells([cell], tmp_path).reused == 0  # tried again: the data may be there by now


def test_an_unknown_device_or_profile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--device tpu must be one of cpu, cuda"):
        run_cells([], tmp_path, device="tpu")
    with pytest.raises(InputError, match="--profile large is not a profile; there are quick, cpu, full"):
        require_profile("large")


def test_a_result_survives_its_file_and_names_its_versions(tmp_path: Path) -> None:
    cell = small_cell()
    found = run_cells([cell], tmp_path).results[0]
    assert read_result(cell.path(tmp_path)) == found
    assert (found.results_version, found.rpdp_version) == (RESULTS_VERSION, rpdp.__version__)


def _mark(cell: Cell, directory: Path, **changes: int) -> None:
    path = cell.path(directory)
    values = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**values, "numbers": {"marked": True}, **changes}), encoding="utf-8")
