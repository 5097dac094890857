"""The doctor: what it finds on good and bad runs, and that it writes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpdp.budgets import BudgetTable
from rpdp.studies.doctor import Examination, examine
from rpdp.studies.study_file import StudyFile
from tests.studies.toy import Change, write_run


def examined(directory: Path, *changes: Change, method: str = "rpdp") -> Examination:
    spec = StudyFile.read(write_run(directory, *changes))
    before = sorted(directory.iterdir())
    done = examine(spec, spec.settings(method), 1)
    assert [path for path in sorted(directory.iterdir()) if path.name != "__pycache__"] == before
    return done


def said(done: Examination, level: str) -> str:
    return "\n".join(f"{one.topic}: {one.message} {one.advice}" for one in done.findings if one.level == level)


def test_a_run_that_can_start(tmp_path: Path) -> None:
    done = examined(tmp_path)
    assert done.exit_code == 0
    assert said(done, "problem") == ""
    text = said(done, "ok")
    for part in (
        "120 training records in 3 silos",
        "4 trainable parameters; closed form",
        "all 120 records can take part",
        "3 rounds × 2 local steps, participation 1 · σ = 2",
        "expected batch",
        "signal to noise",
        "time: about",
        "18 local steps",
        "memory: about",
        "seeded: a simulation",
        "1 worker(s) with one thread each",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("change", "code", "expected"),
    [
        (("task.model", "batchnorm"), 3, "model: 1: BatchNorm1d normalises a record"),
        (("task.model", "noisy"), 3, "model or loss draw random numbers with aten.rand_like"),
        (("task.model", "Hard"), 2, "model: the model is not differentiable"),
        (("task.model", "Rounded"), 2, "model: the model is not differentiable"),
        (("task.model", "narrow"), 2, "model: silo a: model and loss fail on made-up records"),
        (("task.model", "text"), 2, "it must return a torch.nn.Module"),
        (("task.loss", "mean_loss"), 2, "one value per record"),
        (
            ("evaluation.metrics", '["multilabel_f1"]'),
            2,
            "metrics: silo a: metric multilabel_f1 needs",
        ),
        (("task.data", "one_empty"), 2, "data: silo b: it has no training records"),
        (("task.data", "repeated_ids"), 2, "data: silo b: 1 record ids occur more than once"),
        (("task.data", "failing"), 2, "the disk is on fire"),
        (("policy.lifetime_delta", "1e-9"), 3, "budgets and plan: the plan exceeds this silo's policy"),
    ],
)
def test_a_run_that_cannot(tmp_path: Path, change: Change, code: int, expected: str) -> None:
    done = examined(tmp_path, change)
    assert done.exit_code == code
    assert expected in said(done, "problem")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([("task.data", "with_nan")], "NaN or infinite values in records of b: 2"),
        ([("task.data", "constant")], "1 features are the same in all records"),
        ([("task.data", "constant")], "all records have the same label in a, b, c"),
        ([("task.data", "one_single")], "a single record in b"),
        ([("task.data", "without_tests")], "there are no test records"),
        ([("task.model", "Unreached")], "the loss does not reach spare"),
        ([("task.model", "Unreached")], "there is no closed form for"),
        ([("budgets.overrides", "{ levels = [0.05, 0.1, 0.2] }")], "signal to noise Σq/σ is only"),
        ([("training.tuned", "true")], "not covered: learning rate and clip norm were chosen"),
    ],
)
def test_what_somebody_should_look_at(tmp_path: Path, changes: list[Change], expected: str) -> None:
    done = examined(tmp_path, *changes)
    assert done.exit_code == 0
    assert expected in said(done, "warning")


def test_budgets_that_will_never_be_used(tmp_path: Path) -> None:
    for silo in "abc":
        delta = [1e-2] * 30 + [1e-6] * 10
        BudgetTable([f"{silo}-{row}" for row in range(40)], [1.0] * 40, delta=delta).write(tmp_path / f"{silo}.csv")
    files: list[Change] = [
        ("budgets.distribution", None),
        ("budgets.files", '{ a = "a.csv", b = "b.csv", c = "c.csv" }'),
        ("budgets.declared", '"ThreeLevels"'),
    ]
    text = said(examined(tmp_path, *files), "warning")
    assert "sit out" not in text  # a record with a small δ is priced at its own
    assert "30 of 120 records are expected in less than one batch of the whole run" in text
    dropped = said(examined(tmp_path, method="dropout"), "warning")
    assert "84 of 120 records sit out: their ε is too small for the method" in dropped


def test_missing_data_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("RPDP_DATA", "RPDP_CACHE"):
        monkeypatch.setenv(variable, str(tmp_path / "nowhere"))
    done = examined(tmp_path, ("task", ""), ("task.name", '"rpdp_lab.tasks:heart_disease"'))
    assert done.exit_code == 2
    assert "processed.cleveland.data" in said(done, "problem")


def test_an_output_that_is_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    used = tmp_path / "out" / "rpdp-1"
    used.mkdir(parents=True)
    (used / "result.json").write_text("{}")
    assert "is not empty" in said(examined(tmp_path, ("run.output", '"out"')), "warning")


class TestMetrics:
    def test_what_will_be_measured(self, tmp_path: Path) -> None:
        assert "metrics: accuracy (the study file names none" in said(examined(tmp_path), "ok")
        named = examined(tmp_path, ("evaluation.metrics", '["auc", "accuracy"]'))
        assert "metrics: auc, accuracy; auc decides" in said(named, "ok")

    @pytest.mark.parametrize(
        ("data", "model", "loss", "metrics", "expected"),
        [
            (
                "numbers",
                "model",
                "squared",
                "accuracy",
                "they are no whole numbers; for regression, name",
            ),
            (
                "numbers",
                "two_outputs",
                "squared",
                "rmse",
                "one output for every target number, but outputs",
            ),
            (
                "two_labels",
                "two_outputs",
                "label_loss",
                "accuracy",
                "for several labels per record, name",
            ),
            ("data", "model", "loss", "concordance", "a time and then 1 where the event was seen"),
            ("data", "model", "loss", "broken", "metric broken failed: ValueError: no such luck"),
        ],
    )
    def test_a_misfit_is_said_in_words(
        self, tmp_path: Path, data: str, model: str, loss: str, metrics: str, expected: str
    ) -> None:
        changes = [("task.data", data), ("task.model", model), ("task.loss", loss)]
        path = write_run(tmp_path, *changes)
        if metrics == "broken":
            metrics = f"{next(tmp_path.glob('toy_*.py')).stem}:broken"
        path.write_text(path.read_text() + f'[evaluation]\nmetrics = ["{metrics}"]\n')
        spec = StudyFile.read(path)
        done = examine(spec, spec.settings("rpdp"), 1)
        assert done.exit_code == 2
        assert expected in said(done, "problem")
        assert len([one for one in done.findings if one.level == "problem"]) == 1

    @pytest.mark.parametrize(
        ("data", "model", "loss", "expected"),
        [
            ("numbers", "model", "squared", "rmse, mae, r2"),
            ("two_labels", "two_outputs", "label_loss", "multilabel_f1"),
        ],
    )
    def test_regression_and_labels_can_start(
        self, tmp_path: Path, data: str, model: str, loss: str, expected: str
    ) -> None:
        done = examined(tmp_path, ("task.data", data), ("task.model", model), ("task.loss", loss))
        assert done.exit_code == 0
        assert f"metrics: {expected} (the study file names none" in said(done, "ok")

    def test_imbalance_and_probabilities_are_said(self, tmp_path: Path) -> None:
        done = examined(tmp_path, ("task.data", "imbalanced"))
        assert "of the test records are of one class" in said(done, "warning")
        first = examined(tmp_path, ("task.data", "imbalanced"), ("evaluation.metrics", '["auc"]'))
        assert "of one class" not in said(first, "warning")
        odd = examined(tmp_path, ("task.model", "sigmoid"), ("task.loss", "after_sigmoid"))
        assert "look like probabilities, but metrics read logits" in said(odd, "warning")
        assert "look like probabilities" not in said(done, "warning")
