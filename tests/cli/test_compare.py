"""`rpdp compare` and `rpdp report`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.studies.toy import Change, write_run

if TYPE_CHECKING:
    from tests.cli.conftest import Command

GRID: list[Change] = [
    ("tuning.seeds", "[7]"),
    ("tuning.learning_rates", "[0.5, 1e-6]"),
    ("tuning.clip_norms", "[1.0]"),
]


def test_the_table(rpdp: Command, tmp_path: Path) -> None:
    done = rpdp("compare", write_run(tmp_path, name="mine.toml"), "--methods", "rpdp,privacy_free", "--seeds", 2)
    assert done.code == 0
    assert len(done.err.splitlines()) == 4
    rows = [line.split() for line in done.out.splitlines() if line.startswith(("rpdp ", "privacy_free "))]
    assert [row[0] for row in rows[:2]] == ["rpdp", "privacy_free"]
    assert rows[0][-3:] == ["0", "of", "240"]
    assert rows[1][-3:] == ["240", "of", "240"]
    assert "±" in rows[0]
    assert "privacy_free promises: nothing" in done.out
    assert "report: runs/mine/compare/report.html" in done.out


def test_json_and_what_is_kept(rpdp: Command, tmp_path: Path) -> None:
    run = write_run(tmp_path)
    command = ["compare", run, "-m", "rpdp,minimum", "--seeds", 2, "--first-seed", 5, "-o", "out"]
    told = rpdp(*command, "--json").json
    assert told["seeds"] == [5, 6]
    assert [row["settings"]["method"] for row in told["methods"]] == ["rpdp", "minimum"]
    told_of = told["methods"][0]["metrics"]
    assert list(told_of) == ["accuracy"]
    assert set(told_of["accuracy"]) == {"mean", "deviation", "values", "mean_over_silos"}
    assert Path(told["files"]["report"]).is_file()
    again = rpdp(*command)
    assert again.err == ""  # nothing had to be run
    assert "4 of 4 runs were finished before" in again.out


def test_another_distribution(rpdp: Command, tmp_path: Path) -> None:
    run = write_run(tmp_path, ("budgets.overrides", None), name="mine.toml")
    done = rpdp("compare", run, "-m", "pooled", "--seeds", 1, "--distribution", "BoundedPareto")
    assert done.code == 0
    assert "pooled promises: nothing; every record leaves its silo" in done.out
    assert 'distribution = "BoundedPareto"' in Path("runs/mine/compare-BoundedPareto/study.toml").read_text()
    assert "must be one of" in rpdp("compare", run, "--distribution", "Flat").err


def test_tuning(rpdp: Command, tmp_path: Path) -> None:
    done = rpdp("compare", write_run(tmp_path, *GRID), "-m", "rpdp", "--seeds", 1, "--tune", "-o", "out")
    assert done.code == 0
    assert "1/2 rpdp, seed 7, η = 0.5, L = 1" in done.err
    assert "chosen by results on test records: no promise covers this" in " ".join(done.out.split())
    told = rpdp("compare", tmp_path / "run.toml", "-m", "rpdp", "--seeds", 1, "--tune", "-o", "out", "--json").json
    assert (told["tuned"], told["methods"][0]["settings"]["learning_rate"]) == (True, 0.5)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--methods", "rpdp,minimun"], "--methods='minimun' must be one of rpdp"),
        (["--methods", "rpdp,rpdp"], "--methods rpdp,rpdp names a method twice"),
        (["--seeds", "0"], "--seeds=0 must be between 1 and 10,000"),
        (["--first-seed", "3"], "--first-seed only goes with --seeds"),
        (["--seeds", "7"], "tuning.seeds=[7] must not be reported as well: 7 would be in both"),
        (["--workers", "0"], "--workers=0 must be"),
        (["--methods", "rpdp,threshold"], "method threshold needs a level"),
    ],
)
def test_bad_options(rpdp: Command, tmp_path: Path, arguments: list[str], expected: str) -> None:
    refused = rpdp("compare", write_run(tmp_path, *GRID), *arguments, "-o", "out")
    assert refused.code == 2
    assert expected in refused.err
    assert not Path("out", "comparison.json").exists()
    assert rpdp("compare", tmp_path / "run.toml", *arguments, "-o", "out", "--json").json["exit_code"] == 2


def test_tuning_without_a_grid(rpdp: Command, tmp_path: Path) -> None:
    assert "there is no section [tuning]" in rpdp("compare", write_run(tmp_path), "--tune").err


def test_refused_for_privacy(rpdp: Command, tmp_path: Path) -> None:
    refused = rpdp("compare", write_run(tmp_path, ("task.model", "batchnorm")), "-o", "out", "--json")
    assert refused.code == refused.json["exit_code"] == 3
    assert not Path("out").exists()


def test_reports_are_made_again(rpdp: Command, tmp_path: Path) -> None:
    run = write_run(tmp_path)
    assert rpdp("train", run, "-o", "alone").code == 0
    assert rpdp("compare", run, "-m", "rpdp,minimum", "-o", "many").code == 0
    for directory in ("alone", "many"):
        Path(directory, "report.html").unlink()
        assert rpdp("report", directory).out == f"report: {directory}/report.html\n"
        assert Path(directory, "report.html").read_text(encoding="utf-8").count("<svg") > 1
    told = rpdp("report", "many", "--edition", "share", "-o", "show/it.html", "--json").json
    assert told == {"report": "show/it.html", "edition": "share"}
    assert Path("show/it.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["nowhere"], "nowhere: no such directory"),
        (["."], "study.toml: cannot be read"),
        ([".", "--edition", "all"], "--edition='all' must be one of silo, share"),
        ([".", "-o", "x.pdf"], "--out x.pdf: the name of a report must end in .html"),
    ],
)
def test_bad_input_of_report(rpdp: Command, arguments: list[str], expected: str) -> None:
    refused = rpdp("report", *arguments)
    assert refused.code == 2
    assert expected in refused.err


def test_ctrl_c_ends_all_processes_and_keeps_what_is_done(rpdp: Command, tmp_path: Path) -> None:
    run = write_run(tmp_path, ("schedule.rounds", "60"), ("privacy.noise_multiplier", "8"), ("run.workers", "2"))
    command = ["compare", str(run), "-m", "rpdp,minimum", "--seeds", "30", "-o", str(tmp_path / "out")]
    process = subprocess.Popen(
        [sys.executable, "-c", "from rpdp.cli import main; main()", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    deadline = time.monotonic() + 60
    while len(list((tmp_path / "out").glob("cells/*/result.json"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the workers get it too
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, ""), errors
    assert "Traceback" not in errors
    assert f"Every finished run is kept in {tmp_path / 'out'}; the same command resumes." in errors
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
    kept = len(list((tmp_path / "out").glob("cells/*/result.json")))
    assert 2 <= kept < 60
    assert not (tmp_path / "out" / "comparison.json").exists()
