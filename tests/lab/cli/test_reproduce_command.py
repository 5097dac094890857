from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rpdp_lab.reproduction.run_cells import CellsRun

    from tests.lab.cli.conftest import LabCommand


def test_the_list_names_every_suite(rpdp_lab: LabCommand) -> None:
    shown = rpdp_lab("reproduce", "list")
    assert shown.code == 0
    for name in ("figure-2", "table-2", "figure-8", "table-4", "soundness", "fairness", "utility"):
        assert name in shown.out
        assert name in rpdp_lab("reproduce", "list", "--json").json["suites"]


def test_a_suite_runs_resumes_and_is_rendered(rpdp_lab: LabCommand) -> None:
    first = rpdp_lab("reproduce", "figure-2", "--jobs", 1)
    assert first.code == 0
    assert "render --out runs/reproduce" in first.out
    again = rpdp_lab("reproduce", "figure-2", "--jobs", 1, "--json").json
    assert (again["reused"], again["skipped"], len(again["cells"])) == (1, 0, 1)
    files = rpdp_lab("reproduce", "render", "--json").json["files"]
    assert {"docs/reproduction.md", "docs/reproduction/figure-2.svg", "lab/cells/figure-2.json"} == set(files)
    assert Path("docs/reproduction.md").read_text(encoding="utf-8").startswith("<!-- Made by `rpdp-lab reproduce")


def test_a_suite_without_any_data_is_bad_input(rpdp_lab: LabCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    from rpdp_lab.reproduction.run_cells import run_cells

    def without_data(*arguments: object, **settings: object) -> CellsRun:
        done = run_cells(*arguments, **settings)  # type: ignore[arg-type]
        return replace(done, results=tuple(replace(one, skipped="mnist.npz is missing") for one in done.results))

    monkeypatch.setattr("rpdp_lab.reproduction.run_cells.run_cells", without_data)
    refused = rpdp_lab("reproduce", "figure-2", "figure-5", "--jobs", 1)
    assert refused.code == 2
    assert refused.err.count("every cell was skipped because its data are missing: mnist.npz is missing") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["figure-3"], "is not a suite; did you mean figure-"),
        (["figure-2", "--profile", "huge"], "--profile huge is not a profile"),
        (["render", "figure-2"], "list and render stand alone"),
        (["figure-2", "--jobs", "0"], "--jobs"),
    ],
)
def test_bad_input_is_refused_by_name(rpdp_lab: LabCommand, arguments: list[str], message: str) -> None:
    refused = rpdp_lab("reproduce", *arguments)
    assert refused.code == 2
    assert message in refused.err


def test_listing_and_rendering_need_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from rpdp_lab.reproduction import PROFILES;"
        "from rpdp_lab.reproduction.reproduction_page import render; from rpdp_lab.reproduction.suites import SUITES;"
        "[suite.cells(profile) for suite in SUITES.values() for profile in PROFILES];"
        "render(Path('nothing'), Path('docs'), Path('cells')); sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
