"""Results on disk: format 1 can still be read, and says the same as the cells that were converted from it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from rpdp_lab.reproduction.cell_files import FORMAT_1, bundle_text, plain, read_bundles, read_result, write_result
from rpdp_lab.reproduction.suites.task_names import REFERENCES

from tests.lab.reproduction.conftest import result, small_cell

FORMER = Path(__file__).parent / "format_1"
"""Cells written before format 2: one for each kind of task."""


def test_format_1_is_read_with_stable_names() -> None:
    results = read_bundles(FORMER)
    assert len(results) > 15
    assert {each.results_version for each in results} == {1}
    assert {each.rpdp_version for each in results} == {"0.1.0"}
    assert "rpdp.reproduction" in (FORMER / "cells.json").read_text(encoding="utf-8")
    named = {value for each in results for value in _names(each.settings.get("task"))}
    assert named == set(REFERENCES)
    assert not any("rpdp.reproduction" in json.dumps(plain(each)) for each in results)


def _names(task: object) -> set[str]:
    return {value for key, value in task.items() if key != "partition"} if isinstance(task, dict) else set()


def test_a_single_file_of_format_1_is_read(tmp_path: Path) -> None:
    first = json.loads((FORMER / "cells.json").read_text(encoding="utf-8"))["cells"][0]
    (tmp_path / "cell.json").write_text(json.dumps({"format": FORMAT_1, **first}), encoding="utf-8")
    assert read_result(tmp_path / "cell.json") == read_bundles(FORMER)[0]


def test_files_and_bundles_give_back_what_was_written(tmp_path: Path) -> None:
    results = [replace(result(small_cell(name), accuracy=0.5), results_version=7) for name in ("b", "a")]
    write_result(results[0], tmp_path / "deep" / "cell.json")
    assert read_result(tmp_path / "deep" / "cell.json") == results[0]
    (tmp_path / "toy.json").write_text(bundle_text(results), encoding="utf-8")
    assert read_bundles(tmp_path) == results[::-1]


def test_an_unknown_format_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "cell.json"
    write_result(result(small_cell()), path)
    path.write_text(path.read_text(encoding="utf-8").replace("reproduction/2", "reproduction/9"), encoding="utf-8")
    assert read_result(path) is None
    assert read_result(tmp_path / "nothing.json") is None
