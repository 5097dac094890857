"""`train`: what a directory holds, when it is refused, and how an interrupted run goes on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rpdp.errors import InputError, PrivacyRefusal
from rpdp.studies.study_file import StudyFile
from rpdp.studies.training_run import TrainedRun, can_resume, train
from tests.studies.toy import Change, write_run

if TYPE_CHECKING:
    from rpdp.federation import RoundLog

FILES = {
    "study.toml",
    "public-plan.json",
    "rounds.jsonl",
    "model.safetensors",
    "result.json",
    "report.html",
    "report-share.html",
    "silo",
}


@pytest.fixture
def spec(tmp_path: Path) -> StudyFile:
    return StudyFile.read(write_run(tmp_path, ("schedule.participation", "0.6")))


def trained(spec: StudyFile, out: Path, *, seed: int = 1, resume: bool = False, force: bool = False) -> TrainedRun:
    return train(spec, spec.settings("rpdp"), seed, out, resume=resume, force=force, workers=1)


def interrupted(spec: StudyFile, out: Path, after: int, *, resume: bool = False) -> None:
    def stop(log: RoundLog) -> None:
        if log.round == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(spec, spec.settings("rpdp"), 1, out, resume=resume, workers=1, on_round=stop)


def test_what_a_run_leaves(spec: StudyFile, tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    done = train(spec, spec.settings("rpdp"), 1, str(out), workers=1)
    assert not done.was_finished
    assert {each.name for each in out.iterdir()} == FILES
    assert (out / "study.toml").read_text() == spec.text
    assert {each.name for each in (out / "silo" / "a").iterdir()} == {"silo-plan.parquet", "draws.parquet", "view.json"}


def test_an_interrupted_run_goes_on_to_the_same_model(spec: StudyFile, tmp_path: Path) -> None:
    whole = trained(spec, tmp_path / "whole")
    out = tmp_path / "parts"
    interrupted(spec, out, after=1)
    assert can_resume(out)
    assert not (out / "model.safetensors").exists()
    assert len((out / "rounds.jsonl").read_text().splitlines()) == 1
    interrupted(spec, out, after=2, resume=True)
    resumed = trained(spec, out, resume=True)
    assert {each.name for each in out.iterdir()} == FILES
    same = ("model.safetensors", "public-plan.json")
    assert all((out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes() for name in same)
    assert [log.score for log in resumed.result.rounds] == [log.score for log in whole.result.rounds]
    assert len((out / "rounds.jsonl").read_text().splitlines()) == 3


def test_an_interruption_after_the_last_round(spec: StudyFile, tmp_path: Path) -> None:
    interrupted(spec, tmp_path / "out", after=3)
    assert trained(spec, tmp_path / "out", resume=True).result.values.equal(
        trained(spec, tmp_path / "whole").result.values
    )


def test_a_finished_run_is_left_as_it_is(spec: StudyFile, tmp_path: Path) -> None:
    first = trained(spec, tmp_path / "out")
    before = (tmp_path / "out" / "model.safetensors").stat().st_mtime_ns
    again = trained(spec, tmp_path / "out", resume=True)
    assert again.was_finished
    assert again.result.values.equal(first.result.values)
    assert (tmp_path / "out" / "model.safetensors").stat().st_mtime_ns == before
    with pytest.raises(
        InputError, match="holds a finished run of method rpdp, seed 1, but you asked for method rpdp, seed 2"
    ):
        trained(spec, tmp_path / "out", seed=2, resume=True)


def test_a_directory_in_use_is_refused(spec: StudyFile, tmp_path: Path) -> None:
    out = tmp_path / "out"
    interrupted(spec, out, after=1)
    with pytest.raises(InputError, match=r"already holds files; choose another directory \(--out\), continue"):
        trained(spec, out)
    with pytest.raises(InputError, match="give one of them"):
        trained(spec, out, resume=True, force=True)
    assert trained(spec, out, force=True).result.rounds


def test_force_removes_nothing_that_is_not_a_run(spec: StudyFile, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match=r"holds thesis\.tex, which no run wrote"):
        trained(spec, out, force=True)
    with pytest.raises(InputError, match="holds no run to continue"):
        trained(spec, out, resume=True)
    assert (out / "thesis.tex").read_text() == "precious"
    with pytest.raises(InputError, match="is not a directory; give"):
        trained(spec, out / "thesis.tex")


def test_another_run_file_is_not_resumed(spec: StudyFile, tmp_path: Path) -> None:
    interrupted(spec, tmp_path / "out", after=1)
    spec.path.write_text(spec.text.replace("learning_rate = 0.5", "learning_rate = 0.4"))
    with pytest.raises(InputError, match=r"is not the study file with which the run in .* was started"):
        trained(StudyFile.read(spec.path), tmp_path / "out", resume=True)
    spec.path.write_text(spec.text)
    with pytest.raises(InputError, match="the checkpoint belongs to another run"):
        trained(spec, tmp_path / "out", seed=2, resume=True)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (("task.data", "one_empty"), InputError),
        (("task.model", "Hard"), InputError),
        (("task.model", "batchnorm"), PrivacyRefusal),
        (("task.loss", "mean_loss"), InputError),
        (("policy.lifetime_delta", "1e-9"), PrivacyRefusal),
    ],
)
def test_a_refused_run_leaves_nothing(tmp_path: Path, change: Change, kind: type[Exception]) -> None:
    spec = StudyFile.read(write_run(tmp_path, change))
    with pytest.raises(kind):
        trained(spec, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_numbers_that_torch_cannot_hold_release_no_model(tmp_path: Path) -> None:
    spec = StudyFile.read(write_run(tmp_path, ("training.learning_rate", "1e300")))
    with pytest.raises(InputError, match="training stopped: value cannot be converted"):
        trained(spec, tmp_path / "out")
    assert not (tmp_path / "out" / "model.safetensors").exists()
    assert not (tmp_path / "out" / "result.json").exists()
