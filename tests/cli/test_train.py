"""`rpdp train`: what it shows, its exit codes, and Ctrl-C in the middle."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rpdp.budgets import BudgetTable
from rpdp.federation import Silo
from tests.studies.toy import Change, write_run

if TYPE_CHECKING:
    from tests.cli.conftest import Command

RELEASED = ("model.safetensors", "rounds.jsonl", "result.json")


def test_progress_table_and_files(rpdp: Command, tmp_path: Path) -> None:
    done = rpdp("train", write_run(tmp_path, name="mine.toml"), "--seed", 4)
    assert done.code == 0
    assert [line.split(" · ")[0] for line in done.err.splitlines()] == [f"{n}/3 joined: all" for n in (1, 2, 3)]
    assert "rpdp, seed 4" in done.out
    assert "0 of 120 records over budget" in done.out
    assert "A simulation: seeded, nobody is protected." in done.out
    assert "model: runs/mine/rpdp-4/model.safetensors" in done.out
    assert all(Path("runs/mine/rpdp-4", name).is_file() for name in RELEASED)


def test_json(rpdp: Command, tmp_path: Path) -> None:
    run = write_run(tmp_path)
    told = rpdp("train", run, "--method", "minimum", "-o", "out", "--json").json
    assert (told["method"], told["seed"], told["is_simulation"], told["was_finished"]) == ("minimum", 1, True, False)
    assert Path(told["files"]["model"]).is_file()
    again = rpdp("train", run, "--method", "minimum", "-o", "out", "--resume", "--json").json
    assert again == {**told, "was_finished": True}
    shown = rpdp("train", run, "--method", "minimum", "-o", "out", "--resume")
    assert shown.out.startswith("out: this run is finished; nothing was done")


def test_a_slow_kernel_is_mentioned_once(rpdp: Command, tmp_path: Path) -> None:
    done = rpdp("train", write_run(tmp_path, ("task.model", "Unreached")))
    assert done.code == 0
    assert done.err.count("there is no closed form for") == 1


@pytest.mark.parametrize(
    ("changes", "code", "expected"),
    [
        ([("task.data", "one_empty")], 2, "silo b: it has no training records"),
        ([("task.model", "Hard")], 2, "not differentiable"),
        ([("task.model", "batchnorm")], 3, "BatchNorm1d"),
        ([("policy.lifetime_delta", "1e-9")], 3, "exceeds this silo's policy"),
        ([("privacy.detla", "1e-3")], 2, "run.toml: privacy.detla is not a setting; did you mean privacy.delta?"),
        ([("training.learning_rate", "-1")], 2, "run.toml: training.learning_rate=-1.0 must be positive"),
    ],
)
def test_bad_input_releases_nothing(
    rpdp: Command, tmp_path: Path, changes: list[Change], code: int, expected: str
) -> None:
    run = write_run(tmp_path, *changes)
    refused = rpdp("train", run, "-o", "out")
    assert (refused.code, refused.out) == (code, "")
    assert expected in refused.err
    told = rpdp("train", run, "-o", "out", "--json")
    assert told.code == told.json["exit_code"] == code
    assert expected in told.json["error"]
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("budgets", "code", "expected"),
    [
        ([1.0] * 38, 2, "silo c: 2 of 40 records have no budget"),
        ([1.0] * 43, 2, "silo c: 3 budgets belong to no record"),
        ([1e-9] * 40, 3, "all 120 budgets are below what"),
    ],
)
def test_budgets_that_do_not_fit(rpdp: Command, tmp_path: Path, budgets: list[float], code: int, expected: str) -> None:
    for silo in "abc":
        mine = budgets if silo == "c" or budgets[0] < 1 else [1.0] * 40
        BudgetTable([f"{silo}-{row}" for row in range(len(mine))], mine).write(tmp_path / f"{silo}.csv")
    files = '{ a = "a.csv", b = "b.csv", c = "c.csv" }'
    changes = [("budgets.distribution", None), ("budgets.files", files), ("budgets.declared", '"ThreeLevels"')]
    refused = rpdp("train", write_run(tmp_path, *changes), "-o", "out")
    assert refused.code == code
    assert expected in refused.err
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["no.toml"], "no.toml: cannot be read: No such file or directory"),
        (["run.toml", "--method", "minimun"], "--method='minimun' must be one of"),
        (["run.toml", "--seed", "-1"], "--seed=-1 must be at least 0"),
        (["run.toml", "--workers", "0"], "--workers=0 must be between 1 and 1,024"),
        (["run.toml", "--method", "threshold"], "method threshold needs a level"),
        (["run.toml", "--device", "tpu"], "--device tpu must be one of cpu, cuda"),
        (["run.toml", "--device", "cuda"], "--device cuda: torch finds no CUDA device; use --device cpu"),
        ([], "Missing argument 'FILE'"),
    ],
)
def test_bad_options(
    rpdp: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], expected: str
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    write_run(tmp_path)
    refused = rpdp("train", *arguments)
    assert refused.code == 2
    assert expected in refused.err
    assert not Path("runs").exists()


def test_the_device_is_an_option_and_goes_to_the_silos(
    rpdp: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "--device" in rpdp("train", "--help").out
    run = write_run(tmp_path)
    usual = rpdp("train", run, "-o", "usual", "--json").json
    monkeypatch.setattr("rpdp.studies.training_run.require_device", lambda *_: None)
    seen = []
    make = Silo.__init__

    def noted(self: Silo, *arguments: Any, **more: Any) -> None:
        seen.append(more["device"])
        make(self, *arguments, **more)

    monkeypatch.setattr(Silo, "__init__", noted)
    other = rpdp("train", run, "-o", "other", "--device", "cpu:0", "--json").json
    assert seen == ["cpu:0"] * 3
    assert Path(other["files"]["model"]).read_bytes() == Path(usual["files"]["model"]).read_bytes()


def test_an_interrupted_run_goes_on_on_its_device(
    rpdp: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rpdp.studies.training_run.train", interrupted)
    monkeypatch.setattr("rpdp.studies.training_run.can_resume", lambda directory: True)
    stopped = rpdp("train", write_run(tmp_path), "--device", "cuda")
    assert stopped.code == 130
    assert "--device cuda --resume" in stopped.out + stopped.err


def test_a_gpu_is_not_shared_by_processes(rpdp: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    refused = rpdp("train", write_run(tmp_path), "--device", "cuda", "--workers", "2")
    assert refused.code == 2
    assert "forked processes cannot share a GPU; use --workers 1" in refused.err
    assert not Path("runs").exists()


def test_a_directory_in_use(rpdp: Command, tmp_path: Path) -> None:
    run = write_run(tmp_path)
    assert rpdp("train", run, "-o", "out").code == 0
    refused = rpdp("train", run, "-o", "out")
    assert refused.code == 2
    assert "(--resume), or remove it (--force)" in refused.err
    assert rpdp("train", run, "-o", "out", "--force").code == 0


@pytest.mark.parametrize("as_json", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["text", "JSON"])
def test_ctrl_c_leaves_a_run_that_goes_on_to_the_same_model(rpdp: Command, tmp_path: Path, as_json: bool) -> None:
    run = write_run(tmp_path, ("schedule.rounds", "150"), ("privacy.noise_multiplier", "8"))
    command = ["train", str(run), "--out", str(tmp_path / "out"), *(["--json"] if as_json else [])]
    process = subprocess.Popen(
        [sys.executable, "-c", "from rpdp.cli import main; main()", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    log = tmp_path / "out" / "rounds.jsonl"
    deadline = time.monotonic() + 60
    while not (log.exists() and log.read_text().count("\n") >= 3) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    again = f"rpdp train {run} --out {tmp_path / 'out'} --resume"
    if as_json:
        assert json.loads(out)["resume"] == again
    else:
        assert out == ""
        assert f"Continue to exactly the same model with:\n  {again}" in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "out" / "model.safetensors").exists()
    assert 3 <= len(log.read_text().splitlines()) < 150
    assert rpdp(*again.split()[1:]).code == 0
    assert rpdp("train", run, "-o", "whole").code == 0
    one, other = (tmp_path / name / "model.safetensors" for name in ("out", "whole"))
    assert one.read_bytes() == other.read_bytes()
    assert len(log.read_text().splitlines()) == 150
