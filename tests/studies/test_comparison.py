"""Comparisons: the table, what is kept and used again, tuning, and the processes behind them."""

from __future__ import annotations

import json
import os
import stat
import statistics
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import ANY

import pytest

from rpdp.errors import InputError, PrivacyRefusal, RpdpError
from rpdp.federation.workers import run_jobs
from rpdp.metrics import METRICS
from rpdp.spread import Spread
from rpdp.studies import comparison
from rpdp.studies.comparison import Comparison, compare
from rpdp.studies.run_directory import read_result
from rpdp.studies.run_reports import rebuild_report
from rpdp.studies.study_file import MethodSettings, StudyFile
from rpdp.studies.training_run import train
from rpdp.studies.tuning import Trial, tune
from tests.studies.toy import write_run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rpdp.studies.execution import MethodRun


@pytest.fixture
def spec(tmp_path: Path) -> StudyFile:
    grid = [("tuning.seeds", "[7, 8]"), ("tuning.learning_rates", "[0.5, 1e-6]"), ("tuning.clip_norms", "[1.0]")]
    return StudyFile.read(write_run(tmp_path, *grid))


def run(spec: StudyFile, out: Path, methods: Sequence[str], seeds: Sequence[int], workers: int = 1) -> Comparison:
    return compare(spec, [spec.settings(name) for name in methods], seeds, out, workers=workers)


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The cells that were really run, in this process."""
    ran: list[str] = []
    really = comparison._run_cell

    def counted(spec: StudyFile, cell: MethodRun, home: Path, workers: int | None, *, keep_silos: bool) -> None:
        ran.append(f"{cell.settings.method}-{cell.seed}")
        really(spec, cell, home, workers, keep_silos=keep_silos)

    monkeypatch.setattr(comparison, "_run_cell", counted)
    return ran


def test_the_table(spec: StudyFile, tmp_path: Path) -> None:
    done = run(spec, tmp_path / "out", ["rpdp", "dropout", "privacy_free"], [1, 2])
    assert [row.settings.method for row in done.rows] == ["rpdp", "dropout", "privacy_free"]
    ours, _, free = done.rows
    assert ours.metrics == ("accuracy",)
    accuracies = [value for value in ours.values("accuracy") if value is not None]
    assert len(accuracies) == len(ours.means("accuracy")) == len(ours.seconds) == 2
    assert (ours.overdrawn, ours.records) == (0, 240)
    assert (free.overdrawn, free.promise) == (240, "nothing")
    written = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert written["seeds"] == [1, 2]
    told = written["methods"][0]["metrics"]["accuracy"]
    assert (told["mean"], told["deviation"]) == (statistics.fmean(accuracies), statistics.stdev(accuracies))
    assert told["values"] == accuracies
    assert told["mean_over_silos"]["values"] == list(ours.means("accuracy"))
    assert written["methods"][0]["majority_shares"] == [score.majority_share for score in ours.scores]
    assert len(written["cells"]) == 6
    assert (tmp_path / "out" / "report.html").read_text(encoding="utf-8").count("<svg") > 1
    assert (tmp_path / "out" / "report-share.html").exists()


def test_a_cell_is_the_run_that_train_makes(spec: StudyFile, tmp_path: Path) -> None:
    alone = train(spec, spec.settings("rpdp"), 2, tmp_path / "alone", workers=1).result
    done = run(spec, tmp_path / "out", ["minimum", "rpdp"], [1, 2], workers=2)
    assert alone.score is not None
    assert done.rows[1].values("accuracy")[1] == alone.score.accuracy
    cells = json.loads((tmp_path / "out" / "comparison.json").read_text())["cells"]
    home = next(cell["directory"] for cell in cells if (cell["method"], cell["seed"]) == ("rpdp", 2))
    one, other = (folder / "model.safetensors" for folder in (tmp_path / "alone", tmp_path / "out" / home))
    assert one.read_bytes() == other.read_bytes()


def test_finished_cells_are_not_run_again(spec: StudyFile, tmp_path: Path, count: list[str]) -> None:
    first = run(spec, tmp_path, ["rpdp"], [1, 2])
    assert count == ["rpdp-1", "rpdp-2"]
    more = run(spec, tmp_path, ["rpdp", "minimum"], [1, 2, 3])
    assert sorted(count[2:]) == ["minimum-1", "minimum-2", "minimum-3", "rpdp-3"]
    assert more.rows[0].scores[:2] == first.rows[0].scores
    count.clear()
    compare(spec, [spec.settings("rpdp")], [1], tmp_path, workers=1, force=True)
    assert count == ["rpdp-1"]


@pytest.mark.parametrize("what", ["learning rate", "code", "output"])
def test_a_change_that_matters_is_noticed(spec: StudyFile, tmp_path: Path, count: list[str], what: str) -> None:
    run(spec, tmp_path / "out", ["rpdp"], [1])
    if what == "learning rate":
        spec.path.write_text(spec.text.replace("learning_rate = 0.5", "learning_rate = 0.4"))
    elif what == "code":
        module = next(tmp_path.glob("toy_*.py"))
        module.write_text(module.read_text() + "\n# changed\n")
    else:
        spec.path.write_text(spec.text + 'output = "elsewhere"\n' if "[run]" in spec.text[-60:] else spec.text + "\n")
    run(StudyFile.read(spec.path), tmp_path / "out", ["rpdp"], [1])
    assert len(count) == (1 if what == "output" else 2)


def test_an_interrupted_comparison_goes_on(
    spec: StudyFile, tmp_path: Path, count: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(cell: MethodRun, done: int, total: int) -> None:
        assert total == 4
        if done == 2:
            raise KeyboardInterrupt

    chosen = [spec.settings(name) for name in ("rpdp", "minimum")]
    with pytest.raises(KeyboardInterrupt):
        compare(spec, chosen, [1, 2], tmp_path / "out", workers=1, on_cell=stop)
    assert not (tmp_path / "out" / "comparison.json").exists()
    compare(spec, chosen, [1, 2], tmp_path / "out", workers=1)
    assert sorted(count) == ["minimum-1", "minimum-2", "rpdp-1", "rpdp-2"]


def test_tuning_gives_every_method_the_same_trials(spec: StudyFile, tmp_path: Path, count: list[str]) -> None:
    best = tune(spec, ["rpdp", "privacy_free"], tmp_path, workers=1)
    assert sorted(count) == sorted([f"{name}-{seed}" for name in ("rpdp", "privacy_free") for seed in (7, 7, 8, 8)])
    assert [(one.method, one.learning_rate, one.tuned) for one in best] == [
        ("rpdp", 0.5, True),
        ("privacy_free", 0.5, True),
    ]
    trials = json.loads((tmp_path / "tuning.json").read_text())["trials"]
    assert [len(tried) for tried in trials.values()] == [2, 2]
    tune(spec, ["rpdp", "privacy_free"], tmp_path, workers=1)
    assert len(count) == 8
    done = compare(spec, best, [1], tmp_path, workers=1)
    cell = json.loads((tmp_path / "comparison.json").read_text())["cells"][0]["directory"]
    assert "not covered: learning rate" in (tmp_path / cell / "public-plan.json").read_text()
    assert done.rows[0].settings.tuned


@pytest.mark.parametrize(("metric", "best"), [("rmse", 0.5), ("own:cost", 0.5), ("r2", 0.5)])
def test_the_first_metric_decides_whichever_way_is_better(tmp_path: Path, metric: str, best: float) -> None:
    """With almost no learning the error is larger, and r2 smaller: both prefer the larger rate."""
    small = [("tuning.seeds", "[7]"), ("tuning.learning_rates", "[1e-6, 0.5]"), ("tuning.clip_norms", "[1.0]")]
    path = write_run(tmp_path, ("task.data", "numbers"), ("task.loss", "squared"), *small)
    module = next(tmp_path.glob("toy_*.py")).stem
    path.write_text(path.read_text() + f'[evaluation]\nmetrics = ["{metric.replace("own", module)}", "mae"]\n')
    chosen = tune(StudyFile.read(path), ["privacy_free"], tmp_path / "out", workers=1)
    assert [one.learning_rate for one in chosen] == [best]
    kept = json.loads((tmp_path / "out" / "tuning.json").read_text())
    assert kept["metric"] == metric.removeprefix("own:")
    values = [trial["values"][0] for trial in kept["trials"]["privacy_free"]]
    assert (values[1] > values[0]) == (metric == "r2")


def test_a_metric_without_a_value_is_worst() -> None:
    settings = MethodSettings("rpdp", 0.1, 1.0)
    good, none = (Trial(settings, METRICS["rmse"], values) for values in ((5.0,), (None,)))
    assert good.merit == -5.0
    assert none.merit < good.merit


def test_all_metrics_of_a_comparison_are_kept(tmp_path: Path) -> None:
    """Also by class, by silo, and, beside the silos' own files, by budget."""
    spec = StudyFile.read(write_run(tmp_path, ("evaluation.metrics", '["auc", "accuracy"]')))
    done = run(spec, tmp_path / "out", ["rpdp"], [1])
    score = done.rows[0].scores[0]
    assert list(score.values) == ["auc", "accuracy"]
    assert sorted(score.by_silo) == ["a", "b", "c"]
    assert list(score.by_class) == ["accuracy"]
    told = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert told["methods"][0]["metrics"]["auc"] == {
        "mean": score["auc"],
        "deviation": None,
        "values": [score["auc"]],
        "mean_over_silos": {"mean": score.mean_over_silos["auc"], "deviation": None, "values": [ANY]},
    }
    cell = tmp_path / "out" / told["cells"][0]["directory"]
    again = read_result(cell)
    assert again.score == score
    assert [group.low for group in again.groups] == [0.3, 1.0, 5.0]
    assert set(again.groups[0].values) == {"auc", "accuracy"}
    assert stat.S_IMODE((cell / "silo" / "budget-groups.json").stat().st_mode) == 0o600
    assert "budget-groups" not in (cell / "result.json").read_text()


def test_seeds_that_were_tuned_on_are_not_reported(spec: StudyFile, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"tuning\.seeds=\[7, 8\] must not be reported as well: 8 would be in both"):
        run(spec, tmp_path, ["rpdp"], [8, 9])


def test_tuning_needs_a_grid_and_test_records(tmp_path: Path) -> None:
    spec = StudyFile.read(write_run(tmp_path))
    with pytest.raises(InputError, match=r"there is no section \[tuning\]"):
        tune(spec, ["rpdp"], tmp_path)
    small = [("tuning.seeds", "[7]"), ("tuning.learning_rates", "[0.5]"), ("tuning.clip_norms", "[1.0]")]
    blind = StudyFile.read(write_run(tmp_path, ("task.data", "without_tests"), *small))
    with pytest.raises(InputError, match="tuning needs test records"):
        tune(blind, ["rpdp"], tmp_path, workers=1)


def test_without_test_records_there_is_no_accuracy(tmp_path: Path) -> None:
    spec = StudyFile.read(write_run(tmp_path, ("task.data", "without_tests")))
    assert run(spec, tmp_path / "out", ["rpdp"], [1]).rows[0].scores == ()


@pytest.mark.parametrize("edition", ["silo", "share"])
def test_reports_can_be_made_again(spec: StudyFile, tmp_path: Path, edition: str) -> None:
    run(spec, tmp_path / "out", ["rpdp", "minimum"], [1])
    name = {"silo": "report.html", "share": "report-share.html"}[edition]
    made = rebuild_report(tmp_path / "out", edition, tmp_path / "again.html")  # type: ignore[arg-type]
    assert made.stat().st_size == pytest.approx((tmp_path / "out" / name).stat().st_size, rel=1e-3)


def test_a_report_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such directory"):
        rebuild_report(tmp_path / "no", "silo", tmp_path / "x.html")
    (tmp_path / "run.toml").write_text(write_run(tmp_path, name="other.toml").read_text())
    with pytest.raises(InputError, match="holds neither a finished run"):
        rebuild_report(tmp_path, "silo", tmp_path / "x.html")


def test_spread() -> None:
    assert Spread.of([]) is None
    assert Spread.of([None, 0.5]) == Spread(0.5, None)
    assert Spread.of([0.5]) == Spread(0.5, None)
    both = Spread.of([0.0, 1.0])
    assert both is not None
    assert (both.mean, both.deviation) == pytest.approx((0.5, 0.5**0.5))


def _write(path: Path) -> Callable[[], None]:
    def job() -> None:
        path.write_text(str(os.getpid()))

    return job


def test_jobs_run_beside_each_other(tmp_path: Path) -> None:
    done: list[int] = []
    run_jobs([_write(tmp_path / str(number)) for number in range(5)], 2, done.append)
    assert sorted(done) == list(range(5))
    pids = {(tmp_path / str(number)).read_text() for number in range(5)}
    assert str(os.getpid()) not in pids


def _fail_as_refused() -> None:
    raise PrivacyRefusal("not this one")


def _fail_otherwise() -> None:
    raise ZeroDivisionError("by zero")


def _die() -> None:
    os._exit(9)


@pytest.mark.parametrize(
    ("job", "kind", "message"),
    [
        (_fail_as_refused, PrivacyRefusal, "not this one"),
        (_fail_otherwise, RpdpError, "ZeroDivisionError: by zero"),
        (_die, RpdpError, "a worker process died"),
    ],
)
def test_errors_of_jobs_reach_the_caller(job: Callable[[], None], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        run_jobs([job, job, job], 2, lambda _: None)
