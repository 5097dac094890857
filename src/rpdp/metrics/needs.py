"""What a metric can be made from: views of a model's outputs and targets, checked, with the way out in words.

| need | what a metric's function gets |
|---|---|
| `classes` | the true and the predicted class of each record |
| `probabilities` | the true class of each record, and (records, classes) probabilities |
| `ranking` | (records, columns) truth and scores: a column for two classes, else one per class, or one per label |
| `labels` | (records, labels) truth and prediction, for several yes/no labels per record |
| `numbers` | (records, numbers) true and predicted numbers |
| `survival` | time, whether the event was seen, and predicted risk of each record |
| `hits` | whether each record is answered correctly, as the user's own function says |
| `outputs` | outputs and targets as torch tensors, as the model and the data give them |

Outputs are logits: a single one per record for two classes, one per class, or one per label. For survival they are a
risk per record (larger: earlier), or the logits of the hazards of intervals; targets are (records, 2): time, and 1
where the event was seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rpdp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]
    Classes = NDArray[np.int64]
    Truth = NDArray[np.bool_]
    Arrays = tuple[NDArray[Any], ...]

Need = Literal["classes", "probabilities", "ranking", "labels", "numbers", "survival", "hits", "outputs"]

FOR_REGRESSION = "for regression, name metrics such as rmse, mae, r2"
FOR_LABELS = "for several labels per record, name metrics such as multilabel_f1, auc, average_precision"


def as_classes(outputs: NDArray[Any], targets: NDArray[Any]) -> tuple[Classes, Classes]:
    """Return the true and the predicted class: the sign of a single logit, or the largest of several."""
    actual, logits = _class_logits(outputs, targets)
    return actual, logits.argmax(axis=1) if logits.shape[1] > 1 else (logits[:, 0] > 0).astype(np.int64)


def as_probabilities(outputs: NDArray[Any], targets: NDArray[Any]) -> tuple[Classes, Numbers]:
    """Return the true class and the probability of every class."""
    actual, logits = _class_logits(outputs, targets)
    return actual, np.exp(log_softmax(logits if logits.shape[1] > 1 else _two_columns(logits)))


def as_ranking(outputs: NDArray[Any], targets: NDArray[Any]) -> tuple[Truth, Numbers]:
    """Return truth and score: of class 1 if there are two classes, of each class if more, of each label if labels."""
    if _columns(targets) > 1:
        truth, logits = _label_logits(outputs, targets)
        return truth, logits
    actual, logits = _class_logits(outputs, targets)
    if logits.shape[1] == 1:
        return (actual == 1)[:, None], logits
    if logits.shape[1] == 2:
        return (actual == 1)[:, None], logits[:, 1:] - logits[:, :1]
    return actual[:, None] == np.arange(logits.shape[1]), log_softmax(logits)


def as_labels(outputs: NDArray[Any], targets: NDArray[Any]) -> tuple[Truth, Truth]:
    """Return truth and prediction of every label."""
    truth, logits = _label_logits(outputs, targets)
    return truth, logits > 0


def as_numbers(outputs: NDArray[Any], targets: NDArray[Any]) -> tuple[Numbers, Numbers]:
    """Return true and predicted numbers, one column for each number per record."""
    predicted, actual = _rows(outputs), _rows(targets)
    if predicted.shape != actual.shape or predicted.ndim != 2:
        raise InputError(
            f"needs one output for every target number, but outputs are {_shape(outputs)} and targets "
            f"{_shape(targets)}: let the model give as many numbers as a record has targets"
        )
    return actual.astype(np.float64), predicted.astype(np.float64)


def as_survival(outputs: NDArray[Any], targets: NDArray[Any]) -> tuple[Numbers, Truth, Numbers]:
    """Return time, event and risk. The risk of hazards is minus the expected number of intervals survived."""
    if targets.ndim != 2 or targets.shape[1] != 2 or not np.isin(targets[:, 1], (0, 1)).all():
        raise InputError(
            f"needs targets of shape (records, 2), a time and then 1 where the event was seen or 0 where it was not; "
            f"these are {_shape(targets)}: let the targets hold both"
        )
    logits = _rows(outputs).astype(np.float64)
    if logits.ndim != 2:
        raise InputError(f"needs a risk per record or a logit per interval; the outputs are {_shape(outputs)}")
    risk = logits[:, 0] if logits.shape[1] == 1 else -np.exp(np.cumsum(-np.logaddexp(0.0, logits), axis=1)).sum(axis=1)
    return targets[:, 0].astype(np.float64), targets[:, 1] == 1, risk


NEEDS: Mapping[Need, Callable[[NDArray[Any], NDArray[Any]], Arrays] | None] = {
    "classes": as_classes,
    "probabilities": as_probabilities,
    "ranking": as_ranking,
    "labels": as_labels,
    "numbers": as_numbers,
    "survival": as_survival,
    "hits": None,
    "outputs": None,
}
"""The view of each need; None where `Predictions` gives it as it is."""


def log_softmax(logits: NDArray[Any]) -> Numbers:
    """Return log-probabilities in double precision: scores that do not collapse into ties near 0 and 1."""
    wide = logits.astype(np.float64)
    shifted = wide - wide.max(axis=1, keepdims=True)
    normal: Numbers = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return normal


def _two_columns(logits: Numbers) -> Numbers:
    return np.concatenate([np.zeros_like(logits), logits], axis=1)


def _class_logits(outputs: NDArray[Any], targets: NDArray[Any]) -> tuple[Classes, Numbers]:
    """Return the class numbers and (records, columns) logits, one column for two classes."""
    if _columns(targets) > 1:
        raise InputError(f"needs one class number per record, but the targets are {_shape(targets)}; {FOR_LABELS}")
    logits = _rows(outputs)
    if logits.ndim != 2:
        raise InputError(
            f"needs one logit per record, or one per class, but the outputs are {_shape(outputs)}; reduce them in the "
            'model, or name a metric of your own, "package.module:function"'
        )
    found = _rows(targets)[:, 0]
    actual = found.astype(np.int64) if np.isfinite(found).all() else np.full(len(found), -1)
    if (actual != found).any():
        raise InputError(f"needs class numbers as targets, but they are no whole numbers; {FOR_REGRESSION}")
    count = max(2, logits.shape[1])
    if actual.size and not 0 <= actual.min() <= actual.max() < count:
        raise InputError(
            f"needs class numbers from 0 to {count - 1}, because the model gives {_shape(outputs)}, but the targets go "
            f"from {actual.min()} to {actual.max()}; number the classes from 0 and give the model one output for each "
            f"({FOR_REGRESSION})"
        )
    return actual, logits


def _label_logits(outputs: NDArray[Any], targets: NDArray[Any]) -> tuple[Truth, Numbers]:
    if _columns(targets) < 2 or targets.ndim != 2 or not np.isin(targets, (0, 1)).all():
        raise InputError(
            f"needs targets of 0 and 1 of shape (records, labels), but these are {_shape(targets)}; for one class "
            f"number per record, name metrics such as accuracy, auc, f1"
        )
    if outputs.shape != targets.shape:
        raise InputError(
            f"needs one logit for every label, but outputs are {_shape(outputs)} and targets {_shape(targets)}; "
            "give the model one output for each label"
        )
    return targets == 1, outputs


def _rows(array: NDArray[Any]) -> NDArray[Any]:
    """The array with one row per record: (records,) becomes (records, 1)."""
    return array[:, None] if array.ndim == 1 else array


def _columns(array: NDArray[Any]) -> int:
    return 1 if array.ndim == 1 else int(np.prod(array.shape[1:]))


def _shape(array: NDArray[Any]) -> str:
    """The shape in words that hold for any number of records."""
    return f"({', '.join(['records', *map(str, array.shape[1:])])}{',' if array.ndim == 1 else ''})"
