"""Which measure a set of metrics needs, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rpdp.errors import InputError
from rpdp.planning.request import MeasureSpec
from rpdp.statistics.evaluation_measures import CLASSES, ERRORS, SCORES, EvaluationMeasure


@pytest.mark.parametrize(
    ("metrics", "settings", "kind", "size"),
    [
        (["auc", "accuracy"], {"classes": 2}, SCORES, 512),
        (["accuracy"], {"classes": 2}, CLASSES, 4),
        (["accuracy", "balanced_accuracy"], {"classes": 5}, CLASSES, 25),
        (["mae", "rmse"], {"bound": 10.0}, ERRORS, 3),
        (["auc"], {"classes": 2, "bins": 16, "column": "sex", "levels": ["f", "m"]}, SCORES, 64),
    ],
)
def test_metrics_decide_on_the_measure(metrics: list[str], settings: dict[str, Any], kind: str, size: int) -> None:
    measure = EvaluationMeasure.for_metrics(metrics, **settings)
    assert (measure.kind, measure.spec().size) == (kind, size)
    assert EvaluationMeasure.of(measure.spec()) == measure


@pytest.mark.parametrize(
    ("metrics", "settings", "message"),
    [
        (["auc"], {"classes": 3}, r"'auc' cannot be measured together"),
        (["auc", "mae"], {"classes": 2, "bound": 1.0}, r"'mae' cannot be"),
        (["mae"], {}, r"public bound"),
        ([], {"classes": 2}, r"name at least one"),
        (["auc"], {"classes": 2, "bins": 15}, r"bins=15 must be even"),
        (["auc"], {"classes": 2, "column": "sex"}, r"declared levels"),
        (["auc"], {"classes": 2, "column": "sex", "levels": ["f", "f"]}, r"each once"),
        (["mae"], {"bound": -1.0}, r"bound=-1.0 must be positive"),
    ],
)
def test_what_cannot_be_measured_is_refused(metrics: list[str], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        EvaluationMeasure.for_metrics(metrics, **settings)


@pytest.mark.parametrize(
    "spec",
    [
        MeasureSpec(SCORES, 511, {"metrics": ["auc"], "classes": 2, "bins": 256, "limit": 8.0}),
        MeasureSpec(SCORES, 512, {"metrics": ["auc"], "classes": 2, "bins": 256, "limit": 8.0, "records": 5}),
        MeasureSpec(SCORES, 512, {"metrics": ["auc"], "classes": 2, "bins": 256, "limit": 8.0, "kind": "classes"}),
        MeasureSpec(CLASSES, 4, {"metrics": ["accuracy"], "classes": 2, "bound": 3.0}),
        MeasureSpec("records", 4, {"metrics": ["accuracy"], "classes": 2}),
    ],
)
def test_a_request_that_no_metrics_would_make_is_refused(spec: MeasureSpec) -> None:
    with pytest.raises(InputError):
        EvaluationMeasure.of(spec)


def test_the_predicted_class_changes_between_two_bins() -> None:
    edges = EvaluationMeasure.for_metrics(["auc"], classes=2).edges
    assert edges[127] == 0.0
    assert np.diff(edges) == pytest.approx(1 / 16)
