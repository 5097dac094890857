from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rpdp.cli.run import run


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_list_names_every_suite(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce", "list"]) == 0
    shown = capsys.readouterr().out
    for name in ("figure-2", "table-2", "figure-8", "table-4", "soundness", "fairness", "utility"):
        assert name in shown


def test_a_suite_runs_resumes_and_is_rendered(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce", "figure-2", "--jobs", "1"]) == 0
    assert run(["reproduce", "figure-2", "--jobs", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out.split("render --out runs/reproduce\n")[1])
    assert (told["reused"], told["skipped"], len(told["cells"])) == (1, 0, 1)
    assert run(["reproduce", "render", "--json"]) == 0
    files = json.loads(capsys.readouterr().out)["files"]
    assert "docs/reproduction.md" in files
    assert Path("docs/reproduction.md").read_text(encoding="utf-8").startswith("<!-- Made by")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["figure-3"], "is not a suite; did you mean figure-"),
        (["figure-2", "--profile", "huge"], "--profile huge is not a profile"),
        (["render", "figure-2"], "list and render stand alone"),
        (["figure-2", "--jobs", "0"], "--jobs"),
    ],
)
def test_bad_input_is_refused_by_name(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_the_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce", "--help"]) == 0
    assert "Example: rpdp reproduce all --profile quick" in " ".join(capsys.readouterr().out.split())


def test_listing_and_rendering_need_no_torch() -> None:
    code = (
        "import sys; from rpdp_lab.reproduction import PROFILES, SUITES, render; from pathlib import Path;"
        "[suite.cells(profile) for suite in SUITES.values() for profile in PROFILES];"
        "render(Path('nothing'), Path('docs')); sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
