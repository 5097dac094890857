"""Evaluating the global model on test records, which count as public in simulations only (privacy.md, rule 13)."""

from __future__ import annotations

import copy
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from rpdp.errors import InputError
from rpdp.federation.score import ClassCount, GroupScore, Score
from rpdp.metrics import Metric, Predictions, metric_named
from rpdp.metrics.classification import share_of_hits
from rpdp.planning.silo_plan import rows_by_budget
from rpdp.training import FlatModel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from rpdp.training import Records

    Correct = Callable[[Tensor, Tensor], Tensor]
    """Maps outputs and targets to one truth value per record."""

CHUNK = 1024
BATCH = 256
"""How many records of each silo are looked at before a run."""

_DEFAULTS = (("classes", ("accuracy",)), ("labels", ("multilabel_f1",)), ("numbers", ("rmse", "mae", "r2")))
"""What is measured where nobody names metrics: the first of these that outputs and targets suit."""


@dataclass(frozen=True)
class Evaluation:
    """Test records by silo, and what is measured on them.

    Attributes:
        test: Test records by silo.
        correct: Says which outputs are right, one truth value per record: another way to count accuracy, for outputs
            that no metric reads, such as texts.
        metrics: Metrics by name or as objects; the first one decides. Without any, they follow from outputs and
            targets: accuracy, multilabel_f1, or rmse, mae and r2.

    >>> from rpdp.training import Records
    >>> records = Records.of(torch.tensor([[2.0], [-1.0], [0.5], [-3.0]]), torch.tensor([1, 0, 0, 0]))
    >>> Evaluation({"a": records}, metrics=["accuracy", "auc"]).measure(FlatModel(torch.nn.Linear(1, 1))).first
    'accuracy'
    """

    test: Mapping[str, Records]
    correct: Correct | None = None
    _: KW_ONLY
    metrics: Sequence[str | Metric] = ()
    named: tuple[Metric, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.test or all(len(records) == 0 for records in self.test.values()):
            raise InputError("there is no test record to evaluate on; give test records to at least one silo")
        if self.correct is not None and not callable(self.correct):
            raise InputError(f'correct={self.correct!r} is no function; name metrics as metrics=["accuracy"]')
        if isinstance(self.metrics, str | Metric):
            raise InputError(f"metrics={self.metrics!r} must be a list, such as metrics=[{self.metrics!r}]")
        chosen = [self._resolved(one) for one in self.metrics or (() if self.correct is None else ("accuracy",))]
        if len({metric.name for metric in chosen}) < len(chosen):
            raise InputError(f"metrics={[metric.name for metric in chosen]} must not name anything twice")
        object.__setattr__(self, "named", tuple(chosen))

    def _resolved(self, given: str | Metric) -> Metric:
        metric = given if isinstance(given, Metric) else metric_named(given)
        if metric.name == "accuracy" and self.correct is not None:
            return Metric("accuracy", metric.explanation, share_of_hits, "hits")
        return metric

    def checked(self, model: nn.Module) -> Evaluation:
        """Return this evaluation with its metrics decided; refused in words if one of them does not fit the data.

        A batch of every silo's test records is evaluated, so that nothing is found out after training only.
        """
        flat = FlatModel(copy.deepcopy(model))
        held = {silo: records.rows(0, BATCH) for silo, records in self.test.items() if len(records)}
        parts = {silo: self._tried(flat, silo, records) for silo, records in held.items()}
        made = self if self.named else Evaluation(self.test, self.correct, metrics=_fitting(parts))
        for metric in made.named:
            for silo, predictions in parts.items():
                try:
                    metric(predictions)
                except InputError as error:
                    raise InputError(f"silo {silo}: {error}") from None
        return made

    def _tried(self, model: FlatModel, silo: str, records: Records) -> Predictions:
        try:
            return self.predict(model, records)
        except InputError:
            raise
        except Exception as error:  # the user's own code may raise anything
            text = (str(error) or "no message").splitlines()[0]
            raise InputError(
                f"silo {silo}: the model fails on its test records: {type(error).__name__}: {text}"
            ) from error

    def predict(self, model: FlatModel, records: Records) -> Predictions:
        """Return the model's outputs, and which of them are right, beside the targets."""
        keeps = not self.named or any(metric.needs != "hits" for metric in self.named)
        with model.evaluating(), torch.no_grad():
            parts = [self._part(model, chunk, keeps) for chunk in records.chunks(CHUNK)]
        if not parts:
            nobody = np.zeros(0, dtype=np.bool_)
            return Predictions(None, records.targets.cpu().numpy(), nobody if self.correct is not None else None)
        return Predictions.together(parts)

    def _part(self, model: FlatModel, chunk: Records, keeps: bool) -> Predictions:
        outputs = model.module(*[model.prepare(tensor) for tensor in chunk.inputs])
        targets = chunk.targets.to(model.device)
        hits = None if self.correct is None else _hits(self.correct(outputs, targets), len(chunk))
        return Predictions(_array(outputs) if keeps else None, chunk.targets.cpu().numpy(), hits)

    def measure(self, model: FlatModel) -> Score:
        """Return all metrics of a model, by silo and by class too."""
        made = self if self.named else self.checked(model.module)
        return made.score({silo: made.predict(model, records) for silo, records in made.test.items()})

    def score(self, predictions: Mapping[str, Predictions], *, details: bool = True) -> Score:
        """Turn predictions by silo into metrics; with `details`, also by silo and by class."""
        held = {silo: one for silo, one in predictions.items() if len(one)}
        together = Predictions.together(list(held.values()))
        remarks: list[str] = []
        values = {metric.name: _value(metric, together, remarks) for metric in self.named}
        if together.not_finite:
            remarks.append(f"the model gives NaN or infinity for {together.not_finite:,} of {len(together):,} records")
        if not details:
            return Score(values, remarks=tuple(remarks))
        by_silo = {silo: {metric.name: _value(metric, one, []) for metric in self.named} for silo, one in held.items()}
        by_class = {
            metric.name: found
            for metric in self.named
            if values[metric.name] is not None and (found := dict(metric.classwise(together)))
        }
        return Score(values, by_silo, by_class, self._classes(together), tuple(remarks))

    def by_budget(self, predictions: Predictions, budgets: NDArray[np.float64]) -> tuple[GroupScore, ...]:
        """Return the metrics of training records by their budgets; nothing where budgets are infinite. Sensitive."""
        if not np.isfinite(budgets).all():
            return ()
        scores = []
        for rows in rows_by_budget(budgets):
            values = self.score({"": predictions.select(rows)}, details=False).values
            scores.append(GroupScore(float(budgets[rows].min()), float(budgets[rows].max()), rows.size, values))
        return tuple(scores)

    def correct_answers(self, predictions: Predictions) -> NDArray[np.bool_] | None:
        """Return which records are answered correctly; None where that has no meaning, as for numbers."""
        if predictions.hits is not None:
            return predictions.hits
        if not predictions.suits("classes"):
            return None
        actual, predicted = predictions.seen_as("classes")
        right: NDArray[np.bool_] = actual == predicted
        return right

    def _classes(self, predictions: Predictions) -> dict[str, ClassCount]:
        """Count records by class, if any metric is about classes."""
        about_classes = any(metric.needs in ("classes", "probabilities", "ranking") for metric in self.named)
        if not about_classes or not predictions.suits("classes"):
            return {}
        actual, predicted = predictions.seen_as("classes")
        return {
            str(label): ClassCount(int((actual == label).sum()), int((predicted == label).sum()))
            for label in np.union1d(actual, predicted)
        }


def _fitting(parts: Mapping[str, Predictions]) -> tuple[str, ...]:
    """Return the names of metrics that suit what the model gives; refused if there are none."""
    for need, names in _DEFAULTS:
        if all(predictions.suits(need) for predictions in parts.values()):  # type: ignore[arg-type]
            return names
    together = next(iter(parts.values()))
    reasons = []
    for need, _ in _DEFAULTS:
        try:
            together.seen_as(need)  # type: ignore[arg-type]
        except InputError as error:
            reasons.append(f"one of {need} {error}")
    raise InputError(f"no metric is named, and none fits by itself: {reasons[0]}")


def _value(metric: Metric, predictions: Predictions, remarks: list[str]) -> float | None:
    """Return the value of a metric. What fails in the middle of a run has no value, and says why; the run goes on."""
    try:
        return metric(predictions)
    except InputError as error:
        remarks.append(str(error))
        return None


def _hits(found: object, count: int) -> NDArray[np.bool_]:
    """Check what the user's function for correct answers returned."""
    if not isinstance(found, torch.Tensor) or found.shape != (count,) or found.dtype != torch.bool:
        what = type(found).__name__
        if isinstance(found, torch.Tensor):
            what = f"a tensor of shape {tuple(found.shape)} and {found.dtype}"
        raise InputError(
            f"correct returned {what} for {count} records; it must return one truth value per record, a tensor of "
            f"shape ({count},) and torch.bool"
        )
    hits: NDArray[np.bool_] = found.cpu().numpy()
    return hits


def _array(outputs: Any) -> NDArray[Any]:
    """Return outputs as an array; torch's own short floats become float32."""
    if not isinstance(outputs, torch.Tensor):
        raise InputError(
            f"the model returned {type(outputs).__name__}; metrics read one tensor. Let the model return it, or say "
            "with `correct` which answers are right"
        )
    kept = outputs.float() if outputs.is_floating_point() and outputs.dtype != torch.float64 else outputs
    array: NDArray[Any] = kept.cpu().numpy()
    return array
