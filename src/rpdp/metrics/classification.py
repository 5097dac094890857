"""Metrics of classes and labels. Scikit-learn computes what takes more than a line."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]
    Classes = NDArray[np.int64]
    Truth = NDArray[np.bool_]
    ByClass = dict[str, float | None]

CALIBRATION_BINS = 15
_TINY = float(np.finfo(np.float64).tiny)


@contextmanager
def quiet_sklearn() -> Iterator[Any]:
    """`sklearn.metrics`, loaded when it is first needed, without its warnings about classes that are missing."""
    from sklearn import metrics

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield metrics


def share_of_hits(hits: Truth) -> float:
    """The share of correct answers."""
    return float(hits.mean())


def accuracy(actual: Classes, predicted: Classes) -> float:
    """The share of correct predictions."""
    return float((actual == predicted).mean())


def recalls(actual: Classes, predicted: Classes) -> ByClass:
    """Of the records of each class: the share that is predicted correctly."""
    right = actual == predicted
    return {str(label): float(right[actual == label].mean()) for label in np.unique(actual)}


def balanced_accuracy(actual: Classes, predicted: Classes) -> float:
    """The mean of the recalls."""
    return float(np.mean([share for share in recalls(actual, predicted).values() if share is not None]))


def top(k: int) -> Callable[[Classes, Numbers], float]:
    """Return the share of records whose class is among the k most probable ones."""

    def top_k(actual: Classes, probabilities: Numbers) -> float:
        above = (probabilities > probabilities[np.arange(len(actual)), actual][:, None]).sum(axis=1)
        return float((above < k).mean())

    return top_k


def f1(actual: Classes, predicted: Classes) -> float:
    """F1 of class 1 if there are two classes, else the mean over the classes."""
    several = max(actual.max(), predicted.max()) > 1
    with quiet_sklearn() as metrics:
        return float(metrics.f1_score(actual, predicted, average="macro" if several else "binary", zero_division=0.0))


def f1_by_class(actual: Classes, predicted: Classes) -> ByClass:
    """F1 of every class that occurs."""
    labels = np.unique(actual)
    with quiet_sklearn() as metrics:
        values = metrics.f1_score(actual, predicted, labels=labels, average=None, zero_division=0.0)
    return dict(zip(map(str, labels), map(float, values), strict=True))


def multilabel_f1(truth: Truth, predicted: Truth) -> float:
    """The mean of the F1 of the labels."""
    with quiet_sklearn() as metrics:
        return float(metrics.f1_score(truth, predicted, average="macro", zero_division=0.0))


def f1_by_label(truth: Truth, predicted: Truth) -> ByClass:
    """F1 of every label."""
    with quiet_sklearn() as metrics:
        values = metrics.f1_score(truth, predicted, average=None, zero_division=0.0)
    return {str(label): float(value) for label, value in enumerate(values)}


def auc(truth: Truth, scores: Numbers) -> float | None:
    """The area under the ROC curve: of class 1, or the mean over the classes or labels."""
    return _mean(_by_column("roc_auc_score", truth, scores))


def auc_by_class(truth: Truth, scores: Numbers) -> ByClass:
    """One class against the others, or each label; nothing for two classes, where both are alike."""
    return {} if truth.shape[1] == 1 else _by_column("roc_auc_score", truth, scores)


def average_precision(truth: Truth, scores: Numbers) -> float | None:
    """Precision averaged over the recalls: of class 1, or the mean over the classes or labels."""
    return _mean(_by_column("average_precision_score", truth, scores))


def average_precision_by_class(truth: Truth, scores: Numbers) -> ByClass:
    """One class against the others, or each label; nothing for two classes."""
    return {} if truth.shape[1] == 1 else _by_column("average_precision_score", truth, scores)


def log_loss(actual: Classes, probabilities: Numbers) -> float:
    """Minus the mean logarithm of the probability given to the true class."""
    given = probabilities[np.arange(len(actual)), actual]
    return float(-np.log(np.maximum(given, _TINY)).mean())


def brier(actual: Classes, probabilities: Numbers) -> float:
    """The mean squared error of the probability of class 1; with more classes, the sum over all of them."""
    if probabilities.shape[1] == 2:
        return float(((probabilities[:, 1] - actual) ** 2).mean())
    truth = actual[:, None] == np.arange(probabilities.shape[1])
    return float(((probabilities - truth) ** 2).sum(axis=1).mean())


def calibration_error(actual: Classes, probabilities: Numbers) -> float:
    """How far stated probabilities are from what happens, in 15 equal bins, weighted by the records in each.

    Of class 1 if there are two classes; with more, of the predicted class (the expected calibration error).
    """
    if probabilities.shape[1] == 2:
        stated, happened = probabilities[:, 1], actual == 1
    else:
        stated, happened = probabilities.max(axis=1), probabilities.argmax(axis=1) == actual
    bins = np.minimum((stated * CALIBRATION_BINS).astype(np.int64), CALIBRATION_BINS - 1)
    gaps = np.bincount(bins, weights=happened - stated, minlength=CALIBRATION_BINS)
    return float(np.abs(gaps).sum() / len(actual))


def _by_column(name: str, truth: Truth, scores: Numbers) -> ByClass:
    """A metric of each column; None where all records, or none, belong to the class."""
    with quiet_sklearn() as metrics:
        score = getattr(metrics, name)
        return {
            str(column): float(score(truth[:, column], scores[:, column]))
            if 0 < truth[:, column].sum() < len(truth)
            else None
            for column in range(truth.shape[1])
        }


def _mean(values: ByClass) -> float | None:
    known = [value for value in values.values() if value is not None]
    return float(np.mean(known)) if known else None
