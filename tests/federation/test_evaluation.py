from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rpdp import Metric
from rpdp.errors import InputError
from rpdp.federation import Evaluation, Score
from rpdp.training import FlatModel, Records


def is_equal(output: Tensor, targets: Tensor) -> Tensor:
    return output[:, 0] == targets


def make_test(*targets: float) -> Records:
    return Records.of(torch.ones(len(targets), 1), torch.tensor(targets))


def identity(columns: int = 1) -> nn.Module:
    """A model that hands on its inputs, and in training mode something else."""
    layer = nn.Linear(columns, columns, bias=False)
    nn.init.eye_(layer.weight)
    return nn.Sequential(layer, nn.Dropout(0.999)).train()


def flat(columns: int = 1) -> FlatModel:
    return FlatModel(identity(columns))


def of_logits(logits: list[list[float]], targets: object, dtype: torch.dtype = torch.int64) -> Records:
    return Records.of(torch.tensor(logits), torch.tensor(targets, dtype=dtype))


TESTS = {"a": make_test(1, 1, 1, 0), "b": make_test(0, 0), "c": Records.of(torch.ones(0, 1), torch.ones(0))}
BINARY = {
    "a": of_logits([[2.0], [-1.0], [0.5], [-3.0]], [1, 0, 0, 0]),
    "b": of_logits([[2.5], [3.0]], [0, 1]),
}


@pytest.mark.parametrize(
    "measured", [{"correct": is_equal}, {"metrics": ["accuracy"]}, {}], ids=["a function", "by name", "by default"]
)
def test_pooled_accuracy_and_the_mean_over_silos(measured: dict[str, object]) -> None:
    """By hand: 3 of 4 and 0 of 2; a silo without test records has no accuracy."""
    model = flat()
    score = Evaluation(TESTS, **measured).measure(model)  # type: ignore[arg-type]
    assert score.accuracy == 0.5
    assert score.mean_over_silos == {"accuracy": 0.375}
    assert score.by_silo == {"a": {"accuracy": 0.75}, "b": {"accuracy": 0.0}}
    assert model.module.training


def test_evaluation_leaves_every_layer_in_the_mode_that_it_was_in() -> None:
    """A dropout layer that was switched off must stay so: the kernel has no masks for it."""
    model = FlatModel(nn.Sequential(nn.Linear(1, 1), nn.Dropout(0.5).eval()))
    Evaluation(TESTS, is_equal).predict(model, TESTS["a"])
    assert [layer.training for layer in model.module.modules()] == [True, True, False]


def test_several_metrics_in_their_order() -> None:
    score = Evaluation(BINARY, metrics=["auc", "accuracy", "log_loss"]).measure(flat())
    assert list(score.values) == ["auc", "accuracy", "log_loss"]
    assert (score.first, score["auc"]) == ("auc", 7 / 8)
    assert score.accuracy == pytest.approx(4 / 6)
    assert score.by_silo["b"]["auc"] == 1.0
    assert score.by_class == {"accuracy": {"0": 0.5, "1": 1.0}}
    assert score.majority_share == pytest.approx(4 / 6)
    assert score.only_class is None
    with pytest.raises(InputError, match="metric 'f1' was not measured; there are auc, accuracy, log_loss"):
        score["f1"]


def test_without_details_only_the_values() -> None:
    tests, model = Evaluation(BINARY, metrics=["auc"]), flat()
    found = {silo: tests.predict(model, records) for silo, records in BINARY.items()}
    assert tests.score(found, details=False) == Score({"auc": 7 / 8})


def test_a_model_that_never_leaves_one_class_is_called_that() -> None:
    tests = {"a": of_logits([[-2.0], [-1.0], [-0.5]], [1, 0, 0])}
    score = Evaluation(tests, metrics=["accuracy"]).measure(flat())
    assert (score.accuracy, score.majority_share, score.only_class) == (2 / 3, 2 / 3, "0")
    assert score.warnings == ("the model assigns class 0 to every test record: accuracy says nothing about it",)
    one_class = {"a": of_logits([[-2.0], [-1.0]], [0, 0])}
    assert Evaluation(one_class, metrics=["accuracy"]).measure(flat()).only_class is None


def test_the_default_follows_from_outputs_and_targets() -> None:
    numbers = {"a": of_logits([[2.0], [-1.0]], [2.5, -1.0], torch.float32)}
    labels = {"a": of_logits([[2.0, -1.0], [-1.0, 1.0]], [[1, 0], [0, 0]])}
    for tests, columns, names in (
        (BINARY, 1, ["accuracy"]),
        (numbers, 1, ["rmse", "mae", "r2"]),
        (labels, 2, ["multilabel_f1"]),
    ):
        assert list(Evaluation(tests).measure(flat(columns)).values) == names


@pytest.mark.parametrize(
    ("metric", "records", "said"),
    [
        (
            "accuracy",
            of_logits([[2.0]], [2.5], torch.float32),
            "no whole numbers; for regression, name metrics such as",
        ),
        ("accuracy", of_logits([[2.0, 1.0]], [[1, 0]]), r"\(records, 2\); for several labels per record, name"),
        ("auc", of_logits([[2.0]], [3]), r"from 0 to 1, because the model gives \(records, 1\), but the targets go"),
        ("rmse", of_logits([[2.0, 1.0]], [2.5], torch.float32), "as many numbers as a record has targets"),
        ("multilabel_f1", of_logits([[2.0, 1.0]], [1]), "for one class number per record, name metrics"),
        ("concordance", of_logits([[2.0]], [1]), "a time and then 1 where the event was seen"),
    ],
    ids=["numbers", "labels", "too many classes", "too few outputs", "no labels", "no events"],
)
def test_what_does_not_fit_is_refused_in_words(metric: str, records: Records, said: str) -> None:
    with pytest.raises(InputError, match=f"silo a: metric {metric} needs .*{said}"):
        Evaluation({"a": records}, metrics=[metric]).checked(identity(records.inputs[0].shape[1]))


def test_columns_of_one_do_not_multiply_records() -> None:
    """Targets of shape (records, 1) beside predictions of shape (records,) once gave an accuracy above 1."""
    tests = {"a": Records.of(torch.tensor([[2.0], [-1.0], [3.0]]), torch.tensor([[1], [1], [1]]))}
    assert Evaluation(tests, metrics=["accuracy"]).measure(flat()).accuracy == pytest.approx(2 / 3)
    with pytest.raises(InputError, match=r"correct returned a tensor of shape \(3, 3\).* for 3 records; it must"):
        Evaluation(tests, is_equal).measure(flat())


def test_undefined_values_have_none() -> None:
    tests = {"a": of_logits([[2.0], [1.0]], [1, 1]), "b": of_logits([[2.0], [1.0]], [1, 0])}
    score = Evaluation(tests, metrics=["auc"]).measure(flat())
    assert score.by_silo == {"a": {"auc": None}, "b": {"auc": 1.0}}
    assert score.mean_over_silos == {"auc": 1.0}
    assert score.text(3) == "AUC 0.833"


def test_outputs_that_are_not_finite_are_said() -> None:
    tests = {"a": of_logits([[float("nan")], [1.0]], [1, 0])}
    score = Evaluation(tests, metrics=["auc", "accuracy"]).measure(flat())
    assert score["auc"] is None
    assert score.warnings == ("the model gives NaN or infinity for 1 of 2 records",)


class TestOwnMetrics:
    def test_by_object(self) -> None:
        bias = Metric("bias", "mean error", lambda out, y: (out[:, 0] - y).mean(), larger_is_better=False)
        assert Evaluation(BINARY, metrics=[bias]).measure(flat())["bias"] == pytest.approx(1 / 3)

    @pytest.mark.parametrize(
        ("returned", "said"),
        [
            (torch.zeros(3), r"returned an array of shape \(3,\); it must return one number"),
            ("good", "returned str; it must return one number"),
            (True, "returned bool; it must"),
        ],
        ids=["array", "text", "truth"],
    )
    def test_what_is_no_number_is_refused(self, returned: object, said: str) -> None:
        own = Metric("own", "a test", lambda out, y: returned)  # type: ignore[arg-type,return-value]
        with pytest.raises(InputError, match=f"metric own {said}"):
            Evaluation(BINARY, metrics=[own]).checked(identity())

    def test_a_failure_before_the_run_is_refused_and_later_has_no_value(self) -> None:
        def fragile(outputs: Tensor, targets: Tensor) -> float:
            if float(outputs.max()) > 2.5:
                raise ValueError("too large")
            return 1.0

        own = Metric("own", "a test", fragile)
        with pytest.raises(InputError, match="silo b: metric own failed: ValueError: too large"):
            Evaluation(BINARY, metrics=[own]).checked(identity())
        score = Evaluation(BINARY, metrics=[own, "accuracy"]).measure(flat())
        assert score["own"] is None
        assert score.warnings == ("metric own failed: ValueError: too large",)
        assert score.accuracy > 0.5

    def test_the_kept_outputs_are_those_that_metrics_need(self) -> None:
        only_hits = Evaluation(TESTS, is_equal)
        assert only_hits.predict(flat(), TESTS["a"]).outputs is None
        both = Evaluation(BINARY, is_equal, metrics=["accuracy", "auc"])
        assert list(both.measure(flat()).values) == ["accuracy", "auc"]


def test_training_records_by_budget() -> None:
    tests = Evaluation(BINARY, metrics=["accuracy", "auc"])
    found = tests.predict(flat(), BINARY["a"])
    strict, generous = tests.by_budget(found, np.array([0.1, 0.1, 5.0, 5.0]))
    assert (strict.low, strict.high, strict.records) == (0.1, 0.1, 2)
    assert strict.values == {"accuracy": 1.0, "auc": 1.0}
    assert generous.values == {"accuracy": 0.5, "auc": None}
    assert tests.by_budget(found, np.array([0.1, 0.1, 5.0, np.inf])) == ()


@pytest.mark.parametrize("tests", [{}, {"c": TESTS["c"]}], ids=["no silo", "no record"])
def test_nothing_to_evaluate_on_is_refused(tests: dict[str, Records]) -> None:
    with pytest.raises(InputError, match="no test record"):
        Evaluation(tests, is_equal)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(InputError, match=r"metrics='auc' must be a list, such as metrics=\['auc'\]"):
        Evaluation(TESTS, metrics="auc")
    with pytest.raises(InputError, match="must not name anything twice"):
        Evaluation(TESTS, metrics=["auc", "auc"])
    with pytest.raises(InputError, match="'acuracy' is not a metric; did you mean accuracy"):
        Evaluation(TESTS, metrics=["acuracy"])
    with pytest.raises(InputError, match="correct='auc' is no function"):
        Evaluation(TESTS, "auc")  # type: ignore[arg-type]


def test_a_score_is_written_and_read_and_that_of_release_0_1_too() -> None:
    score = Evaluation(BINARY, metrics=["auc", "accuracy"]).measure(flat())
    assert Score.of_json(json.loads(json.dumps(asdict(score)))) == score
    old = Score.of_json({"accuracy": 0.5, "mean_over_silos": 0.375, "by_silo": {"a": 0.75, "b": 0.0}})
    assert (old.accuracy, old.mean_over_silos) == (0.5, {"accuracy": 0.375})
