"""Every metric against a value found by hand or by another library, and against its own definition."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from rpdp.errors import InputError
from rpdp.metrics import METRICS, NEEDS, Metric, Predictions, metric_named, title_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

RNG = np.random.default_rng(17)
LABELS = RNG.integers(0, 3, 200)
LOGITS = RNG.normal(size=(200, 3)) + 1.5 * np.eye(3)[LABELS]
YES = (RNG.random(200) < 0.2).astype(np.int64)
LOGIT = RNG.normal(size=200) + 1.2 * YES - 1.0


def value(name: str, outputs: Any, targets: Any) -> float | None:
    return metric_named(name)(Predictions(np.asarray(outputs, dtype=np.float32), np.asarray(targets)))


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    exp = np.exp(logits.astype(np.float32).astype(np.float64))
    return np.asarray(exp / exp.sum(axis=1, keepdims=True))


def sigmoid(logit: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(1.0 / (1.0 + np.exp(-logit.astype(np.float32).astype(np.float64))))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("accuracy", ((LOGIT > 0) == YES).mean()),
        ("balanced_accuracy", sklearn_metrics.balanced_accuracy_score(YES, LOGIT > 0)),
        ("auc", sklearn_metrics.roc_auc_score(YES, LOGIT)),
        ("average_precision", sklearn_metrics.average_precision_score(YES, LOGIT)),
        ("f1", sklearn_metrics.f1_score(YES, LOGIT > 0)),
        ("log_loss", sklearn_metrics.log_loss(YES, sigmoid(LOGIT))),
        ("brier", sklearn_metrics.brier_score_loss(YES, sigmoid(LOGIT))),
        ("top_1", ((LOGIT > 0) == YES).mean()),
    ],
)
def test_two_classes(name: str, expected: float) -> None:
    """A single logit, as a column or not, and two logits are the same thing."""
    for outputs in (LOGIT, LOGIT[:, None], np.stack([np.zeros(200), LOGIT], axis=1)):
        for targets in (YES, YES[:, None], YES.astype(np.float32)):
            assert value(name, outputs, targets) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("accuracy", (LOGITS.argmax(1) == LABELS).mean()),
        ("balanced_accuracy", sklearn_metrics.balanced_accuracy_score(LABELS, LOGITS.argmax(1))),
        ("auc", sklearn_metrics.roc_auc_score(LABELS, softmax(LOGITS), multi_class="ovr")),
        ("f1", sklearn_metrics.f1_score(LABELS, LOGITS.argmax(1), average="macro")),
        ("log_loss", sklearn_metrics.log_loss(LABELS, softmax(LOGITS))),
        ("brier", ((softmax(LOGITS) - np.eye(3)[LABELS]) ** 2).sum(1).mean()),
        ("top_2", sklearn_metrics.top_k_accuracy_score(LABELS, LOGITS, k=2)),
        ("top_3", 1.0),
    ],
)
def test_three_classes(name: str, expected: float) -> None:
    assert value(name, LOGITS, LABELS) == pytest.approx(expected, rel=1e-5)


def test_labels() -> None:
    truth = (RNG.random((150, 4)) < 0.3).astype(np.int64)
    logits = RNG.normal(size=(150, 4)) + truth
    assert value("multilabel_f1", logits, truth) == pytest.approx(
        sklearn_metrics.f1_score(truth, logits > 0, average="macro")
    )
    assert value("auc", logits, truth) == pytest.approx(sklearn_metrics.roc_auc_score(truth, logits))
    by_label = METRICS["multilabel_f1"].classwise(Predictions(logits, truth))
    assert list(by_label) == ["0", "1", "2", "3"]


def test_numbers() -> None:
    actual, predicted = [1.0, 2.0, 4.0], [1.0, 3.0, 2.0]
    assert value("mae", predicted, actual) == pytest.approx(1.0)
    assert value("rmse", predicted, actual) == pytest.approx((5 / 3) ** 0.5)
    assert value("r2", predicted, actual) == pytest.approx(sklearn_metrics.r2_score(actual, predicted))
    assert value("r2", [1.0, 2.0], [3.0, 3.0]) is None
    two = np.stack([actual, predicted], axis=1)
    assert value("r2", two, two) == 1.0


def test_calibration_by_hand() -> None:
    """Four records at 0.7 of which two happen, one at 0.1 that does not: gaps 0.2 and 0.1, weighted 4 to 1."""
    stated = np.array([0.7, 0.7, 0.7, 0.7, 0.1])
    found = value("calibration_error", np.log(stated / (1 - stated)), [1, 1, 0, 0, 0])
    assert found == pytest.approx((4 * 0.2 + 0.1) / 5, rel=1e-5)


class TestConcordance:
    def test_by_hand(self) -> None:
        """Known pairs: 1 before 2, 3 and 4; 3 before 4. Record 2 was censored. One pair is in the wrong order."""
        targets = [[1.0, 1], [2.0, 0], [3.0, 1], [4.0, 1]]
        assert value("concordance", [4.0, 3.0, 1.0, 2.0], targets) == 0.75
        assert value("concordance", [4.0, 3.0, 2.0, 2.0], targets) == 3.5 / 4
        assert value("concordance", [[1.0]] * 4, [[1.0, 0]] * 4) is None

    def test_against_every_pair(self) -> None:
        time, event, risk = RNG.integers(1, 9, 60), RNG.random(60) < 0.6, RNG.integers(0, 5, 60)
        right = pairs = 0.0
        for one in range(60):
            for other in range(60):
                later = time[other] > time[one] or (time[other] == time[one] and not event[other])
                if event[one] and later:
                    pairs += 1
                    right += 1.0 if risk[one] > risk[other] else 0.5 * float(risk[one] == risk[other])
        found = value("concordance", risk, np.stack([time, event], axis=1))
        assert found == pytest.approx(right / pairs)

    def test_hazards_of_intervals(self) -> None:
        """Who has higher hazards is expected to survive fewer intervals."""
        hazards = [[3.0, 3.0], [0.0, 0.0], [-3.0, -3.0]]
        assert value("concordance", hazards, [[1.0, 1], [2.0, 1], [3.0, 1]]) == 1.0
        assert value("concordance", hazards, [[3.0, 1], [2.0, 1], [1.0, 1]]) == 0.0


def test_a_better_model_has_a_better_value() -> None:
    """Direction: the truth itself is at least as good as noise, for every metric."""
    cases: dict[str, tuple[Any, Any, Any]] = {
        "survival": ([[1.0, 1], [2.0, 1], [3.0, 1]], [3.0, 2.0, 1.0], [1.0, 3.0, 2.0]),
        "numbers": ([1.0, 2.0, 4.0], [1.0, 2.0, 4.0], [4.0, 1.0, 0.0]),
        "labels": ([[1, 0], [0, 1], [1, 1]], [[9.0, -9], [-9, 9], [9, 9]], [[-9.0, 9], [9, -9], [9, -9]]),
    }
    other = ([0, 1, 1, 0], [-9.0, 9.0, 9.0, -9.0], [9.0, 9.0, -9.0, 9.0])
    for metric in METRICS.values():
        targets, good, bad = cases.get(metric.needs, other)
        best, worst = value(metric.name, good, targets), value(metric.name, bad, targets)
        assert best is not None
        assert worst is not None
        assert (best >= worst) if metric.larger_is_better else (best <= worst), metric.name


def test_every_metric_says_what_it_is() -> None:
    for metric in METRICS.values():
        assert metric.explanation
        assert "\n" not in metric.explanation
        assert metric.needs in NEEDS
    assert (title_of("auc"), title_of("my own")) == ("AUC", "my own")
    assert metric_named("top_7").title == "top-7 accuracy"


@pytest.mark.parametrize("name", ["top_0", "top_x", "roc", ""])
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"is not a metric.*your own is \"module:function\""):
        metric_named(name)


def test_a_metric_is_checked_when_it_is_made() -> None:
    with pytest.raises(InputError, match="name='' of a metric is empty"):
        Metric("", "nothing", lambda outputs, targets: 0.0)
    with pytest.raises(InputError, match="metric m: needs='klasses' must be one of"):
        Metric("m", "nothing", lambda outputs, targets: 0.0, "klasses")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="metric m: function=3 must be a function"):
        Metric("m", "nothing", 3)  # type: ignore[arg-type]


def test_names_load_neither_torch_nor_sklearn() -> None:
    code = "import sys, rpdp.metrics; print(sorted({'torch', 'sklearn'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
