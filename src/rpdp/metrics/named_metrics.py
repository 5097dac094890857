"""The metrics that study files and Python know by name."""

from __future__ import annotations

from difflib import get_close_matches

from rpdp.errors import InputError
from rpdp.metrics import classification, regression
from rpdp.metrics.metric import Metric

METRICS: dict[str, Metric] = {
    one.name: one
    for one in (
        Metric(
            "accuracy",
            "share of records whose class is predicted correctly",
            classification.accuracy,
            "classes",
            by_class=classification.recalls,
        ),
        Metric(
            "balanced_accuracy",
            "mean over the classes of the share predicted correctly; 1 / classes is guessing",
            classification.balanced_accuracy,
            "classes",
            title="balanced accuracy",
        ),
        Metric(
            "auc",
            "area under the ROC curve: how well scores order the records; 0.5 is guessing",
            classification.auc,
            "ranking",
            title="AUC",
            by_class=classification.auc_by_class,
        ),
        Metric(
            "average_precision",
            "area under precision over recall; the share of the class is guessing",
            classification.average_precision,
            "ranking",
            title="average precision",
            by_class=classification.average_precision_by_class,
        ),
        Metric(
            "f1",
            "harmonic mean of precision and recall, of class 1; with more classes the mean over them",
            classification.f1,
            "classes",
            title="F1",
            by_class=classification.f1_by_class,
        ),
        Metric(
            "top_5",
            "share of records whose class is among the five most probable ones",
            classification.top(5),
            "probabilities",
            title="top-5 accuracy",
        ),
        Metric(
            "log_loss",
            "minus the mean logarithm of the probability of the true class",
            classification.log_loss,
            "probabilities",
            larger_is_better=False,
            title="log loss",
        ),
        Metric(
            "brier",
            "mean squared error of the probabilities",
            classification.brier,
            "probabilities",
            larger_is_better=False,
            title="Brier score",
        ),
        Metric(
            "calibration_error",
            "how far stated probabilities are from what happens, over 15 bins",
            classification.calibration_error,
            "probabilities",
            larger_is_better=False,
            title="calibration error",
        ),
        Metric(
            "multilabel_f1",
            "mean over the labels of their F1, for several yes/no labels per record",
            classification.multilabel_f1,
            "labels",
            title="multi-label F1",
            by_class=classification.f1_by_label,
        ),
        Metric(
            "mae",
            "mean absolute error of predicted numbers",
            regression.mean_absolute_error,
            "numbers",
            larger_is_better=False,
            title="MAE",
        ),
        Metric(
            "rmse",
            "root of the mean squared error of predicted numbers",
            regression.root_mean_squared_error,
            "numbers",
            larger_is_better=False,
            title="RMSE",
        ),
        Metric(
            "r2",
            "share of the variance that the prediction explains; 0 is always predicting the mean",
            regression.r_squared,
            "numbers",
            title="R²",
        ),
        Metric(
            "concordance",
            "survival: share of comparable pairs that the risk orders correctly; 0.5 is guessing",
            regression.concordance,
            "survival",
        ),
    )
}


def metric_named(name: str) -> Metric:
    """Return the metric with this name; "top_K" for any K.

    >>> metric_named("auc").explanation
    'area under the ROC curve: how well scores order the records; 0.5 is guessing'
    """
    if name in METRICS:
        return METRICS[name]
    kind, _, number = name.rpartition("_")
    if kind == "top" and number.isascii() and number.isdigit() and int(number) > 0:
        words = f"share of records whose class is among the {int(number)} most probable ones"
        return Metric(name, words, classification.top(int(number)), "probabilities", title=f"top-{number} accuracy")
    close = get_close_matches(name, METRICS, n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise InputError(
        f'{name!r} is not a metric{hint} (known: {", ".join(METRICS)}; top_K for any K; your own is "module:function")'
    )


def title_of(name: str) -> str:
    """Return what people call the metric of a result; a name that is not known here stays as it is."""
    try:
        return metric_named(name).title or name
    except InputError:
        return name


def number(value: float | None, digits: int) -> str:
    """A value with so many decimals; a dash where it is not defined."""
    return "–" if value is None else f"{value:.{digits}f}"
